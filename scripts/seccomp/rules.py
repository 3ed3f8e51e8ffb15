"""The system calls that sandboxed programs must not make, on any backend.

A filter allows the calls in `numbers.tsv` except those named here. Everything unknown is refused: numbers that are not
in the table, calls of other architectures, and calls later than `LAST_REVIEWED`. A list of refused calls alone would
allow the calls that future kernels add. The generated profile replaces Docker's own profile, which also lists allowed
calls. The generated profile is no weaker: tests/sandbox/test_seccomp.py compares the two.

A refused call fails with EPERM, or with ENOSYS if libraries then assume an old kernel and work without the call. For
example, libc uses clone if clone3 fails with ENOSYS. After you change this file, run scripts/make-seccomp.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LAST_REVIEWED = 471
"""The number of the latest reviewed call. Later calls are refused. Review them before you raise this number."""

_CLONE_NEW = 0x7E020000
_QUERY_PERSONALITY = 0xFFFFFFFF
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DGRAM, _TYPE = 1, 2, 0xF
_TCP, _UDP, _NETLINK_ROUTE = 6, 17, 0
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423


@dataclass(frozen=True)
class Match:
    """A condition that is true if a 64-bit argument equals `value` in the bits that `mask` selects."""

    argument: int
    value: int
    mask: int = (1 << 64) - 1


@dataclass(frozen=True)
class Restriction:
    """A call that is allowed if all matches in any item of `allowed` are true. Otherwise, it fails with EPERM."""

    reason: str
    allowed: tuple[tuple[Match, ...], ...]


@dataclass(frozen=True)
class Refusal:
    """Calls that are refused regardless of their arguments."""

    reason: str
    names: frozenset[str]
    errno: int


def _refuse(reason: str, *names: str, number: int = errno.EPERM) -> Refusal:
    return Refusal(reason, frozenset(" ".join(names).split()), number)


def _iterate_others(argument: int, *values: int) -> Iterator[tuple[Match, ...]]:
    """Yield matches, one of which is true if the lower 32 bits of an argument differ from each of `values`.

    The kernel ignores the upper half of an `int`, so a bit set there would bypass a comparison of all 64 bits. Docker's
    profiles have no operator "masked and not equal". Each match therefore accepts all numbers that start with a bit
    prefix that occurs in none of the values.
    """
    prefixes = {(value >> bit, bit) for value in values for bit in range(32)}
    for prefix, bit in sorted(prefixes):
        if (prefix ^ 1, bit) not in prefixes:
            yield (Match(argument, (prefix ^ 1) << bit, 0xFFFFFFFF >> bit << bit),)


def _iterate_sockets() -> Iterator[tuple[Match, ...]]:
    """Yield the permitted sockets. For other families and protocols, the kernel would load code on demand."""
    yield (Match(0, _UNIX),)
    yield Match(0, _NETLINK), Match(2, _NETLINK_ROUTE)
    for family in (_INET, _INET6):
        for kind, protocol in ((_STREAM, _TCP), (_DGRAM, _UDP)):
            yield Match(0, family), Match(1, kind, _TYPE), Match(2, 0)
            yield Match(0, family), Match(1, kind, _TYPE), Match(2, protocol)


_ITSELF = "only for the calling process: the supervisor may run as the same user"

RESTRICTIONS = {
    "clone": Restriction("no new namespaces, for the same reason as unshare", ((Match(0, 0, _CLONE_NEW),),)),
    "ioctl": Restriction(
        "no injection of terminal input, no change of the line discipline",
        tuple(_iterate_others(1, _TIOCSTI, _TIOCLINUX, _TIOCSETD)),
    ),
    "ioprio_set": Restriction(_ITSELF, ((Match(0, 1), Match(1, 0)),)),
    "personality": Restriction(
        "only to query the personality or to set Linux's default", ((Match(0, 0),), (Match(0, _QUERY_PERSONALITY),))
    ),
    "prlimit64": Restriction(_ITSELF, ((Match(0, 0),),)),
    "sched_setaffinity": Restriction(_ITSELF, ((Match(0, 0),),)),
    "sched_setattr": Restriction(_ITSELF, ((Match(0, 0),),)),
    "sched_setparam": Restriction(_ITSELF, ((Match(0, 0),),)),
    "sched_setscheduler": Restriction(_ITSELF, ((Match(0, 0),),)),
    "setpriority": Restriction(_ITSELF, ((Match(0, 0), Match(1, 0)),)),
    "socket": Restriction("Unix, TCP, UDP, and netlink for listing interfaces", tuple(_iterate_sockets())),
    "socketpair": Restriction(
        "only Unix: the kernel loads code for other families before it rejects the call", ((Match(0, _UNIX),),)
    ),
}

REFUSALS = (
    _refuse("new namespaces grant the capabilities that most kernel exploits need", "unshare setns"),
    _refuse(
        "its flags are in memory, which filters cannot read; libc falls back to clone", "clone3", number=errno.ENOSYS
    ),
    _refuse(
        "mounts, and access to files without their paths",
        "mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr",
        "mount_setattr name_to_handle_at open_by_handle_at quotactl quotactl_fd fanotify_init fanotify_mark",
    ),
    _refuse(
        "io_uring can perform nearly every other call and bypasses the filter",
        "io_uring_setup io_uring_enter io_uring_register",
    ),
    _refuse("keyrings are not namespaced: they belong to the host", "add_key keyctl request_key"),
    _refuse(
        "the memory, descriptors and state of other processes, including the supervisor",
        "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd",
    ),
    _refuse(
        "code that runs in the kernel, and calls that make its race conditions easier to exploit",
        "bpf perf_event_open userfaultfd lookup_dcookie",
    ),
    _refuse(
        "the machine itself",
        "reboot kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff acct syslog",
        "sethostname setdomainname vhangup settimeofday clock_settime clock_adjtime adjtimex",
    ),
    _refuse(
        "limited for each host user: one sandbox could exhaust them for all others",
        "inotify_init inotify_init1",
        number=errno.ENOSYS,
    ),
    _refuse("the processor's ports and segments", "iopl ioperm modify_ldt"),
    _refuse("memory that the kernel cannot read or move", "memfd_secret"),
    _refuse(
        "the placement of memory on NUMA nodes: libraries work without these calls",
        "get_mempolicy mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages",
        number=errno.ENOSYS,
    ),
    _refuse(
        "too new or too old to be needed, or related to mounts; Docker's profile does not allow them either",
        "statmount listmount listns lsm_get_self_attr lsm_set_self_attr lsm_list_modules file_getattr file_setattr",
        "rseq_slice_yield uprobe sysfs ustat",
        number=errno.ENOSYS,
    ),
)
_REFUSED = {name: refusal.errno for refusal in REFUSALS for name in refusal.names}

NUMBERS = Path(__file__).with_name("numbers.tsv")

CallVerdict = int | Restriction
"""The verdict on a call: an errno if it is refused, 0 if it is allowed, or a restriction on its arguments."""


@dataclass(frozen=True)
class Machine:
    """An architecture. `name` and `architecture` (AUDIT_ARCH_*) identify it in the kernel, and `docker` in runc."""

    name: str
    architecture: int
    docker: str


MACHINES = {
    machine.name: machine
    for machine in (
        Machine("x86_64", 0xC000003E, "SCMP_ARCH_X86_64"),
        Machine("aarch64", 0xC00000B7, "SCMP_ARCH_AARCH64"),
    )
}


def read_numbers(machine: str) -> Mapping[str, int]:
    """Return an architecture's system call numbers by name.

    Raises:
        KeyError: there is no table for this architecture.
    """
    header, *lines = (line.split("\t") for line in NUMBERS.read_text(encoding="ascii").splitlines() if line[0] != "#")
    column = {name: index for index, name in enumerate(header)}[machine]
    return {line[0]: int(line[column]) for line in lines if line[column] != "-"}


def find_verdict(name: str, number: int) -> CallVerdict:
    """Return the verdict on a call in the table."""
    if number > LAST_REVIEWED:
        return errno.ENOSYS
    return _REFUSED.get(name) or RESTRICTIONS.get(name) or 0
