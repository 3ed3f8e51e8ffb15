"""Generates the filters from the rules: the BPF program for the kernel and the profile for container engines.

The program is classic BPF for `bwrap --seccomp` and seccomp(2). The libseccomp library could generate it, but its
Python bindings are not on PyPI. The pyseccomp wrapper is on PyPI, but it was last released in 2021 and needs libseccomp
on the user's machine. The program uses only six kinds of instructions, so this module generates it, and the result is
checked in. Tests run the program in an interpreter and in the kernel.
"""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from scripts.seccomp.rules import MACHINES, CallVerdict, Match, Restriction, find_verdict, read_numbers

Instruction = tuple[int, int, int, int]
"""Operation, instructions to skip if the comparison is true, instructions to skip if it is false, constant."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP, _EQUAL, _AT_LEAST = 0x05, 0x15, 0x35
_PERMIT, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_FARTHEST, _LOW = 0xFF, 0xFFFFFFFF


def build_program(machine: str) -> bytes:
    """Return the BPF program for an architecture. It kills processes that make another architecture's system calls.

    Raises:
        KeyError: there is no table for this architecture.
    """
    code = [
        _load(_ARCHITECTURE),
        (_EQUAL, 1, 0, MACHINES[machine].architecture),
        _return(_KILL),
        _load(_NUMBER),
        *_search_verdict(_find_ranges(machine)),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _find_ranges(machine: str) -> list[tuple[int, CallVerdict]]:
    """Return the start and the verdict of each range of call numbers with one verdict. Unknown numbers are refused."""
    verdicts = {number: find_verdict(name, number) for name, number in read_numbers(machine).items()}
    all_verdicts = [verdicts.get(number, errno.ENOSYS) for number in range(max(verdicts) + 2)]
    runs = groupby(enumerate(all_verdicts), key=lambda entry: entry[1])
    return [(next(entries)[0], verdict) for verdict, entries in runs]


def _search_verdict(ranges: Sequence[tuple[int, CallVerdict]]) -> list[Instruction]:
    """Return code that finds the verdict on the loaded number by binary search."""
    if len(ranges) == 1:
        return _return_verdict(ranges[0][1])
    middle = len(ranges) // 2
    below, above = _search_verdict(ranges[:middle]), _search_verdict(ranges[middle:])
    start = ranges[middle][0]
    if len(below) <= _FARTHEST:
        return [(_AT_LEAST, len(below), 0, start), *below, *above]
    return [(_AT_LEAST, 0, 1, start), (_JUMP, 0, 0, len(below)), *below, *above]


def _return_verdict(verdict: CallVerdict) -> list[Instruction]:
    if isinstance(verdict, Restriction):
        code = [instruction for matches in verdict.allowed for instruction in _match_all(matches)]
        return [*code, _return(_FAIL | errno.EPERM)]
    return [_return(_FAIL | verdict if verdict else _PERMIT)]


def _match_all(matches: Sequence[Match]) -> list[Instruction]:
    """Return code that allows the call if all matches are true, and otherwise falls through."""
    code = [_return(_PERMIT)]
    for match in reversed(matches):
        for half in (1, 0):
            mask, value = (part >> 32 * half & _LOW for part in (match.mask, match.value))
            if mask:
                narrow = [] if mask == _LOW else [(_AND, 0, 0, mask)]
                # all architectures in the table are little-endian, so the lower half comes first
                load = _load(_ARGUMENTS + 8 * match.argument + 4 * half)
                code = [load, *narrow, (_EQUAL, 0, len(code), value), *code]
    return code


def _load(offset: int) -> Instruction:
    return _LOAD, 0, 0, offset


def _return(value: int) -> Instruction:
    return _RETURN, 0, 0, value


_ALLOW, _ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"


def build_profile() -> str:
    """Return the profile as JSON.

    Calls without an entry fail with EPERM, because engines before version 23 support no other default. Docker's own
    profile does the same.
    For calls that are newer than every entry, runc returns ENOSYS. Engines and runc skip names that they do not know.
    """
    verdicts = {
        name: find_verdict(name, number) for machine in MACHINES for name, number in read_numbers(machine).items()
    }
    profile = {
        "defaultAction": _ERRNO,
        "defaultErrnoRet": errno.EPERM,
        "archMap": [{"architecture": machine.docker, "subArchitectures": []} for machine in MACHINES.values()],
        "syscalls": [
            {"names": _list_calls(verdicts, 0), "action": _ALLOW},
            {"names": _list_calls(verdicts, errno.ENOSYS), "action": _ERRNO, "errnoRet": errno.ENOSYS},
            *_iterate_restrictions(verdicts),
        ],
    }
    return json.dumps(profile, indent=1) + "\n"


def _list_calls(verdicts: dict[str, CallVerdict], wanted: int) -> list[str]:
    return sorted(name for name, verdict in verdicts.items() if verdict == wanted)


def _iterate_restrictions(verdicts: dict[str, CallVerdict]) -> Iterator[dict[str, Any]]:
    for name, verdict in sorted(verdicts.items()):
        if isinstance(verdict, Restriction):
            for matches in verdict.allowed:
                yield {"names": [name], "action": _ALLOW, "args": [_convert_match(match) for match in matches]}


def _convert_match(match: Match) -> dict[str, Any]:
    if match.mask == (1 << 64) - 1:
        return {"index": match.argument, "value": match.value, "op": "SCMP_CMP_EQ"}
    return {"index": match.argument, "value": match.mask, "valueTwo": match.value, "op": "SCMP_CMP_MASKED_EQ"}
