"""Histories of pairs to store and to print."""

from __future__ import annotations

from typing import Any

from agent.history import Event, Execution, History, Mutant, Program
from agent.types import Pair, Status, TestReport

PASSED = TestReport(status=Status.PASSED)


def program_of(source: str, template: str = "T") -> Program:
    """A program of this source."""
    return Program(template=template, source=source, first_line=1, last_line=1, cases=())


def mutant_of(kind: str, status: Status, *, program: int = 0, change: str = "", **fields: Any) -> Execution:
    """A program's run with a mutant in the snippet's place."""
    mutant = Mutant(kind=kind, change=change)
    return Execution(program=program, purpose="mutant", mutant=mutant, report=TestReport(status=status), **fields)


def make_history(pair: Pair, *events: Event | str, **fields: Any) -> History:
    """A history of these events; a text stands for a program of that source, and a test of it that passed."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, str):
            number = sum(isinstance(each, Program) for each in found)
            found += [program_of(event), Execution(program=number, report=PASSED)]
        else:
            found.append(event)
    return History(pair=pair, events=tuple(found), **fields)
