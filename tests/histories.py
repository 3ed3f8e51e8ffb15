"""Histories of pairs to store and to print."""

from __future__ import annotations

from typing import Any

from agent.history import Event, Execution, History, Mutant, Program
from agent.types import Pair, Status, TestReport

PASSED = TestReport(status=Status.PASSED)


def program_of(source: str, template: str = "T") -> Program:
    """Create a program from its source."""
    return Program(template=template, source=source, first_line=1, last_line=1, cases=())


def mutant_of(kind: str, status: Status, *, program: int = 0, change: str = "", **fields: Any) -> Execution:
    """Create an execution of a program on a mutant."""
    mutant = Mutant(kind=kind, change=change)
    return Execution(program=program, purpose="mutant", mutant=mutant, report=TestReport(status=status), **fields)


def make_history(pair: Pair, *events: Event | str, **fields: Any) -> History:
    """Create a history. A string stands for a program with that source and a passed test of it."""
    expanded: list[Event] = []
    for event in events:
        if isinstance(event, str):
            number = sum(isinstance(event, Program) for event in expanded)
            expanded += [program_of(event), Execution(program=number, report=PASSED)]
        else:
            expanded.append(event)
    return History(pair=pair, events=tuple(expanded), **fields)
