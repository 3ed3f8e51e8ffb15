"""What of a pair's history is printed, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.history import Command, Exchange, Execution, History, Visit
from agent.types import QuerySpec


@dataclass(frozen=True)
class Ran:
    """The execution with this number, from 1, and the source of its program."""

    number: int
    execution: Execution
    source: str


Happening = Exchange | QuerySpec | Ran | Command | tuple[Execution, ...]


def happenings(history: History) -> list[Happening]:
    """Return replies, readings, tests, commands and mutants in order."""
    return list(_happenings(history))


def _happenings(history: History) -> Iterator[Happening]:
    mutants, programs, number = history.mutants, history.programs, 0
    for event in history.events:
        if isinstance(event, Exchange | Command):
            yield event
        elif isinstance(event, Visit) and event.spec is not None:
            yield event.spec
        elif isinstance(event, Execution) and event.purpose == "test":
            number += 1
            yield Ran(number, event, programs[event.program].source)
        elif mutants and event is mutants[-1]:
            yield mutants
