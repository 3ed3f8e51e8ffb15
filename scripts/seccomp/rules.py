"""What programs in a sandbox may not ask of the kernel, on either backend: the one list that filters are made of.

A filter allows the calls of `numbers.tsv` but for those named here. So what is *not* known is refused: a number that
is not in the table, one of another architecture, one later than `JUDGED`. A list of refusals alone would let in what
the next kernel brings; and Docker's own profile, which ours replaces, is a list of what is allowed too. Ours is no
weaker in anything: tests/sandbox/test_seccomp.py compares.

A refused call ends with EPERM; with ENOSYS where libraries take that for an old kernel and do without, as libc does
without clone3. After a change here: scripts/make-seccomp.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

JUDGED = 471
"""The latest call that was judged. Later ones are refused, also when the table has them: read what they do first."""

_CLONE_NEW = 0x7E020000
_QUERY_PERSONALITY = 0xFFFFFFFF
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DGRAM, _TYPE = 1, 2, 0xF
_TCP, _UDP, _NETLINK_ROUTE = 6, 17, 0
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423


@dataclass(frozen=True)
class Match:
    """Holds when the bits of `mask` in an argument, a number of 64 bits, are those of `value`."""

    argument: int
    value: int
    mask: int = (1 << 64) - 1


@dataclass(frozen=True)
class Restriction:
    """A call that is allowed when every match of one of `allowed` holds, else refused with EPERM; and why."""

    why: str
    allowed: tuple[tuple[Match, ...], ...]


@dataclass(frozen=True)
class Refusal:
    """Calls that are refused whatever their arguments, and why."""

    why: str
    names: frozenset[str]
    errno: int


def _refused(why: str, *names: str, number: int = errno.EPERM) -> Refusal:
    return Refusal(why, frozenset(" ".join(names).split()), number)


def _none_of(argument: int, *values: int) -> Iterator[tuple[Match, ...]]:
    """Yield matches of which one holds when the lower 32 bits of an argument are none of `values`.

    The kernel drops the upper half of an `int`: a bit set there would get round a comparison of all 64, and Docker's
    profiles have no "masked and not equal". A number is none of some others when it leaves their prefixes somewhere.
    """
    prefixes = {(value >> bit, bit) for value in values for bit in range(32)}
    for prefix, bit in sorted(prefixes):
        if (prefix ^ 1, bit) not in prefixes:
            yield (Match(argument, (prefix ^ 1) << bit, 0xFFFFFFFF >> bit << bit),)


def _sockets() -> Iterator[tuple[Match, ...]]:
    """Yield what may be opened: other families and protocols are code that the kernel loads when it is asked for."""
    yield (Match(0, _UNIX),)
    yield Match(0, _NETLINK), Match(2, _NETLINK_ROUTE)
    for family in (_INET, _INET6):
        for kind, protocol in ((_STREAM, _TCP), (_DGRAM, _UDP)):
            yield Match(0, family), Match(1, kind, _TYPE), Match(2, 0)
            yield Match(0, family), Match(1, kind, _TYPE), Match(2, protocol)


_ITSELF = "of itself alone: where both have one user, a program may change its supervisor"

RESTRICTIONS = {
    "clone": Restriction("no new namespaces, as with unshare", ((Match(0, 0, _CLONE_NEW),),)),
    "ioctl": Restriction(
        "no input pushed into a terminal, no line disciplines", tuple(_none_of(1, _TIOCSTI, _TIOCLINUX, _TIOCSETD))
    ),
    "ioprio_set": Restriction(_ITSELF, ((Match(0, 1), Match(1, 0)),)),
    "personality": Restriction("only Linux's own, and asking", ((Match(0, 0),), (Match(0, _QUERY_PERSONALITY),))),
    "prlimit64": Restriction(_ITSELF, ((Match(0, 0),),)),
    "sched_setaffinity": Restriction(_ITSELF, ((Match(0, 0),),)),
    "sched_setattr": Restriction(_ITSELF, ((Match(0, 0),),)),
    "sched_setparam": Restriction(_ITSELF, ((Match(0, 0),),)),
    "sched_setscheduler": Restriction(_ITSELF, ((Match(0, 0),),)),
    "setpriority": Restriction(_ITSELF, ((Match(0, 0), Match(1, 0)),)),
    "socket": Restriction("Unix, TCP and UDP, and what lists interfaces", tuple(_sockets())),
    "socketpair": Restriction(
        "Unix alone: the kernel loads a family before it says that it has no pairs", ((Match(0, _UNIX),),)
    ),
}

REFUSALS = (
    _refused("new namespaces give the capabilities that most holes of the kernel need", "unshare setns"),
    _refused(
        "its flags are in memory, where no filter sees them; libc goes back to clone", "clone3", number=errno.ENOSYS
    ),
    _refused(
        "mounts, and ways to files that do not go through names",
        "mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr",
        "mount_setattr name_to_handle_at open_by_handle_at quotactl quotactl_fd fanotify_init fanotify_mark",
    ),
    _refused("a way to nearly every other call that no filter sees", "io_uring_setup io_uring_enter io_uring_register"),
    _refused("keyrings belong to no namespace: they are the host's", "add_key keyctl request_key"),
    _refused(
        "the memory, descriptors and state of other processes, the runner's among them",
        "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd",
    ),
    _refused(
        "code that runs in the kernel, and what helps to win races against it",
        "bpf perf_event_open userfaultfd lookup_dcookie",
    ),
    _refused(
        "the machine itself",
        "reboot kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff acct syslog",
        "sethostname setdomainname vhangup settimeofday clock_settime clock_adjtime adjtimex",
    ),
    _refused(
        "counted for each user of the host: one sandbox would take them from all others",
        "inotify_init inotify_init1",
        number=errno.ENOSYS,
    ),
    _refused("the processor's ports and segments", "iopl ioperm modify_ldt"),
    _refused("memory that the kernel itself cannot read or move", "memfd_secret"),
    _refused(
        "on which node of the machine memory lies: libraries do without",
        "get_mempolicy mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages",
        number=errno.ENOSYS,
    ),
    _refused(
        "too new or too old for programs to need them, and not in Docker's list either, or about mounts",
        "statmount listmount listns lsm_get_self_attr lsm_set_self_attr lsm_list_modules file_getattr file_setattr",
        "rseq_slice_yield uprobe sysfs ustat",
        number=errno.ENOSYS,
    ),
)
_REFUSED = {name: refusal.errno for refusal in REFUSALS for name in refusal.names}

NUMBERS = Path(__file__).with_name("numbers.tsv")

CallVerdict = int | Restriction
"""What becomes of a call: an errno, 0 for one that is allowed, or what its arguments are to be."""


@dataclass(frozen=True)
class Machine:
    """A kind of machine by the kernel's name for it. `architecture` is the kernel's AUDIT_ARCH_*, `docker` runc's."""

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


def numbers(machine: str) -> Mapping[str, int]:
    """Return a machine's calls by name.

    Raises:
        KeyError: there is no table for this machine.
    """
    header, *lines = (line.split("\t") for line in NUMBERS.read_text(encoding="ascii").splitlines() if line[0] != "#")
    column = {name: index for index, name in enumerate(header)}[machine]
    return {line[0]: int(line[column]) for line in lines if line[column] != "-"}


def verdict(name: str, number: int) -> CallVerdict:
    """Return what becomes of a call that the table has."""
    if number > JUDGED:
        return errno.ENOSYS
    return _REFUSED.get(name) or RESTRICTIONS.get(name) or 0
