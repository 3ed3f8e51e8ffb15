"""Makes the program that the kernel runs on each call: classic BPF, as `bwrap --seccomp` and seccomp(2) take it.

There is a library that does this, libseccomp; its Python bindings are built with it and are not on PyPI, and the
wrapper that is (pyseccomp) has had no release since 2021 and needs the library on the user's machine. The instructions
used are six, so the program is made here and checked in; the tests run it, in an interpreter and in the kernel.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from itertools import groupby

from agent.sandbox.seccomp.rules import Match, Restriction
from agent.sandbox.seccomp.table import MACHINES, Verdict, numbers, verdict

Instruction = tuple[int, int, int, int]
"""Operation, how many instructions to skip when it holds and when it does not, and its constant."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP, _EQUAL, _AT_LEAST = 0x05, 0x15, 0x35
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_FARTHEST, _LOW = 0xFF, 0xFFFFFFFF


def program(machine: str) -> bytes:
    """Return a machine's filter. A call of another architecture ends the process: only an attack makes one.

    Raises:
        KeyError: there is no table for this machine.
    """
    code = [
        _load(_ARCHITECTURE),
        (_EQUAL, 1, 0, MACHINES[machine].architecture),
        _return(_KILL),
        _load(_NUMBER),
        *_search(_ranges(machine)),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _ranges(machine: str) -> list[tuple[int, Verdict]]:
    """Return where each run of numbers with one verdict starts, from 0 on. Numbers that no call has are refused."""
    known = {number: verdict(name, number) for name, number in numbers(machine).items()}
    every = [known.get(number, errno.ENOSYS) for number in range(max(known) + 2)]
    runs = groupby(enumerate(every), key=lambda entry: entry[1])
    return [(next(entries)[0], said) for said, entries in runs]


def _search(ranges: Sequence[tuple[int, Verdict]]) -> list[Instruction]:
    """Return code that finds the verdict for the loaded number by halving the ranges."""
    if len(ranges) == 1:
        return _leaf(ranges[0][1])
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    start = ranges[middle][0]
    if len(below) <= _FARTHEST:
        return [(_AT_LEAST, len(below), 0, start), *below, *above]
    return [(_AT_LEAST, 0, 1, start), (_JUMP, 0, 0, len(below)), *below, *above]


def _leaf(said: Verdict) -> list[Instruction]:
    if isinstance(said, Restriction):
        code = [instruction for matches in said.allowed for instruction in _all(matches)]
        return [*code, _return(_ERRNO | errno.EPERM)]
    return [_return(_ERRNO | said if said else _ALLOW)]


def _all(matches: Sequence[Match]) -> list[Instruction]:
    """Return code that allows the call when all matches hold, and else goes on behind itself."""
    code = [_return(_ALLOW)]
    for match in reversed(matches):
        for half in (1, 0):
            mask, value = (part >> 32 * half & _LOW for part in (match.mask, match.value))
            if mask:
                narrow = [] if mask == _LOW else [(_AND, 0, 0, mask)]
                # the machines of the table are little-endian: the lower half comes first
                load = _load(_ARGUMENTS + 8 * match.argument + 4 * half)
                code = [load, *narrow, (_EQUAL, 0, len(code), value), *code]
    return code


def _load(offset: int) -> Instruction:
    return _LOAD, 0, 0, offset


def _return(value: int) -> Instruction:
    return _RETURN, 0, 0, value
