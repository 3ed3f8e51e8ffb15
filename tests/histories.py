"""Builders for histories of pairs."""

from __future__ import annotations

from typing import Any

from agent.pipeline.history import Execution, History, HistoryItem, Program
from agent.types import Pair, Status, TestReport

PASSED = TestReport(status=Status.PASSED)


def make_program(source: str, template: str = "T") -> Program:
    """Create a program from its source."""
    return Program(template=template, source=source, first_line=1, last_line=1, cases=())


def make_history(pair: Pair, *events: HistoryItem | str, **fields: Any) -> History:
    """Create a history. A string is short for a program with that source and an execution of it that passed."""
    expanded: list[HistoryItem] = []
    for event in events:
        if isinstance(event, str):
            number = sum(isinstance(event, Program) for event in expanded)
            expanded += [make_program(event), Execution(program=number, report=PASSED)]
        else:
            expanded.append(event)
    return History(pair=pair, events=tuple(expanded), **fields)
