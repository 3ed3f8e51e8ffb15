"""The calls of Linux on each machine, and what the rules say of each."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.seccomp.rules import JUDGED, REFUSALS, RESTRICTIONS, Restriction

NUMBERS = Path(__file__).with_name("numbers.tsv")

Verdict = int | Restriction
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


def verdict(name: str, number: int) -> Verdict:
    """Return what becomes of a call that the table has."""
    if number > JUDGED:
        return errno.ENOSYS
    return _REFUSED.get(name) or RESTRICTIONS.get(name) or 0


_REFUSED = {name: refusal.errno for refusal in REFUSALS for name in refusal.names}
