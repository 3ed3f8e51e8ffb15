"""The generated filters implement the rules on every architecture and are no weaker than Docker's profile."""

from __future__ import annotations

import errno
import json
import runpy
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sandbox import seccomp
from agent.sandbox.seccomp import PROFILE, find_kernel_filter, read_engine_profile
from scripts.seccomp import filters, rules
from scripts.seccomp.filters import build_profile
from scripts.seccomp.rules import LAST_REVIEWED, REFUSALS, RESTRICTIONS, Restriction

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
ARGUMENT = st.integers(0, 2**64 - 1)
LOWER_HALF = 0xFFFFFFFF
MACHINES = sorted(rules.MACHINES)
DOCKER_CALLS = Path(__file__).with_name("docker_default_calls.txt")
NEWER_CALLS = (
    "cachestat fchmodat2 futex_requeue futex_wait futex_wake getxattrat listxattrat map_shadow_stack mseal "
    "pkey_alloc pkey_free pkey_mprotect removexattrat setxattrat uretprobe"
)
"""Calls that newer Docker engines allow. The list lacks them because they were too new."""

DANGEROUS = (
    "io_uring_setup add_key keyctl request_key unshare setns bpf ptrace process_vm_writev mount umount2 pivot_root "
    "kexec_load kexec_file_load init_module userfaultfd perf_event_open open_by_handle_at reboot swapon"
)


def judge(machine: str, number: int, arguments: tuple[int, ...] = (), architecture: int | None = None) -> int:
    """Return the kernel's verdict on a call, by interpreting the classic BPF on a `struct seccomp_data`."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    called_by = rules.MACHINES[machine].architecture if architecture is None else architecture
    data = struct.pack("<IIQ6Q", number, called_by, 0, *padded)
    program = list(struct.iter_unpack("<HBBI", filters.build_program(machine)))
    position = accumulator = 0
    while True:
        operation, when, otherwise, constant = program[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                accumulator &= constant
            case 0x05:
                position += constant
            case 0x15:
                position += when if accumulator == constant else otherwise
            case 0x35:
                position += when if accumulator >= constant else otherwise
            case 0x06:
                return int(constant)
            case _:
                raise AssertionError(f"unexpected instruction: {operation:#x}")


def judge_call(machine: str, name: str, *arguments: int) -> int:
    """Return the kernel's verdict on a call by name."""
    return judge(machine, rules.read_numbers(machine)[name], arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_implements_the_rules_for_every_number(machine: str) -> None:
    names = {number: name for name, number in rules.read_numbers(machine).items()}
    for number in range(max(names) + 50):
        verdict = rules.find_verdict(names[number], number) if number in names else errno.ENOSYS
        if not isinstance(verdict, Restriction):
            assert judge(machine, number) == (ERRNO | verdict if verdict else ALLOW), names.get(number, number)


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(0, 2**32 - 1))
def test_unknown_numbers_are_refused(machine: str, number: int) -> None:
    if number not in rules.read_numbers(machine).values():
        assert judge(machine, number) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
@given(architecture=st.integers(0, 2**32 - 1), number=st.integers(0, 500))
def test_calls_of_other_architectures_kill_the_process(machine: str, architecture: int, number: int) -> None:
    if architecture != rules.MACHINES[machine].architecture:
        assert judge(machine, number, architecture=architecture) == KILL


@given(number=st.integers(0, 600))
def test_x32_calls_are_refused(number: int) -> None:
    assert judge("x86_64", number | 0x40000000) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
@given(flags=ARGUMENT)
def test_clone_creates_no_namespaces(machine: str, flags: int) -> None:
    namespaces = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
    assert judge_call(machine, "clone", flags) == (EPERM if flags & namespaces else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
@given(command=st.one_of(ARGUMENT, st.sampled_from([0x5412, 0x541C, 0x5423])), upper=st.integers(0, LOWER_HALF))
def test_terminal_ioctls_are_refused_regardless_of_the_upper_half(machine: str, command: int, upper: int) -> None:
    refused = command & LOWER_HALF in (0x5412, 0x541C, 0x5423)
    assert judge_call(machine, "ioctl", 0, command & LOWER_HALF | upper << 32) == (EPERM if refused else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
@given(family=st.integers(0, 50), kind=st.integers(0, 10), flags=st.sampled_from([0, 0x800, 0x80000]),
       protocol=st.integers(0, 300))  # fmt: skip
def test_only_unix_tcp_udp_and_route_sockets_are_allowed(
    machine: str, family: int, kind: int, flags: int, protocol: int
) -> None:
    allowed = (
        family == 1
        or (family == 16 and protocol == 0)
        or (family in (2, 10) and (kind, protocol) in {(1, 0), (1, 6), (2, 0), (2, 17)})
    )
    assert judge_call(machine, "socket", family, kind | flags, protocol) == (ALLOW if allowed else EPERM)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", DANGEROUS.split())
def test_dangerous_calls_are_refused(machine: str, name: str) -> None:
    assert judge_call(machine, name) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_clone3_looks_unimplemented(machine: str) -> None:
    assert judge_call(machine, "clone3") == ENOSYS


def test_every_name_in_the_rules_is_a_known_call() -> None:
    known = {name for machine in MACHINES for name in rules.read_numbers(machine)}
    assert {name for refusal in REFUSALS for name in refusal.names} | set(RESTRICTIONS) <= known
    assert max(number for machine in MACHINES for number in rules.read_numbers(machine).values()) >= LAST_REVIEWED


def test_calls_that_dockers_profile_refuses_are_refused() -> None:
    dockers = set(DOCKER_CALLS.read_text(encoding="ascii").split())
    ours = {rule for entry in _read_rules() if entry["action"] == "SCMP_ACT_ALLOW" for rule in entry["names"]}
    assert len(dockers) > 300
    assert ours - dockers - {"clone", "personality"} == set(NEWER_CALLS.split())


def test_the_profile_and_the_filter_allow_the_same_calls() -> None:
    entries = _read_rules()
    plain = {name for entry in entries if not entry.get("args") for name in entry["names"]
             if entry["action"] == "SCMP_ACT_ALLOW"}  # fmt: skip
    limited = {name for entry in entries if entry.get("args") for name in entry["names"]}
    for machine in MACHINES:
        for name, number in rules.read_numbers(machine).items():
            if name not in limited:
                assert (judge(machine, number) == ALLOW) == (name in plain), name
    assert limited == set(RESTRICTIONS)


@given(name=st.sampled_from(sorted(RESTRICTIONS)), arguments=st.tuples(ARGUMENT, ARGUMENT, ARGUMENT))
def test_the_profile_and_the_filter_restrict_arguments_equally(name: str, arguments: tuple[int, int, int]) -> None:
    rules = [entry["args"] for entry in _read_rules() if name in entry["names"]]
    allowed = any(all(_is_true(argument, arguments) for argument in rule) for rule in rules)
    assert judge_call("x86_64", name, *arguments) == (ALLOW if allowed else EPERM)


def test_the_generated_files_are_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "PROFILE", tmp_path / PROFILE.name)
    monkeypatch.setattr(sys, "argv", ["make-seccomp"])
    written = {
        PROFILE.name: build_profile().encode(),
        **{f"{name}.bpf": filters.build_program(name) for name in MACHINES},
    }
    runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "make-seccomp"))
    for name, content in written.items():
        assert (tmp_path / name).read_bytes() == content
        assert PROFILE.with_name(name).read_bytes() == content, "run scripts/make-seccomp"


def test_every_architecture_of_the_table_has_a_filter() -> None:
    assert all(find_kernel_filter(machine) is not None for machine in MACHINES)
    assert find_kernel_filter("riscv64") is None
    assert json.loads(read_engine_profile()) == json.loads(build_profile())
    assert "\n" not in read_engine_profile()


def _read_rules() -> list[dict[str, object]]:
    rules: list[dict[str, object]] = json.loads(build_profile())["syscalls"]
    return rules


def _is_true(argument: dict[str, int | str], values: tuple[int, ...]) -> bool:
    value = values[int(argument["index"])]
    if argument["op"] == "SCMP_CMP_EQ":
        return value == argument["value"]
    assert argument["op"] == "SCMP_CMP_MASKED_EQ"
    return value & int(argument["value"]) == argument["valueTwo"]
