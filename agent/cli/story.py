"""What happened to a pair, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.evidence import CommandRun, Evidence, Exchange, Execution
from agent.types import Mutant, QuerySpec

_VERDICT = frozenset({"arbitrate", "judge"})
_AFTER_A_RUN = _VERDICT | {"repair"}


@dataclass(frozen=True)
class Ran:
    """The execution with this number, from 1."""

    number: int
    execution: Execution


Happening = Exchange | QuerySpec | Ran | CommandRun | tuple[Mutant, ...]


def happenings(evidence: Evidence) -> list[Happening]:
    """Return replies, readings, executions, commands and mutants in order, those that decided last."""
    told = list(_in_order(evidence))
    if evidence.spec is not None:
        told.insert(_first_use(told), evidence.spec)
    if evidence.mutants:
        told.insert(_end(told), evidence.mutants)
    return told


def _in_order(evidence: Evidence) -> Iterator[Happening]:
    exchanges, commands = list(evidence.exchanges), list(evidence.commands)
    asked = done = 0
    for number, execution in enumerate(evidence.executions, 1):
        until, ran = execution.exchanges_before, execution.commands_before
        if until is None or ran is None:
            # kept by a version that did not say: what led to the first program came before all of them
            until = next((at for at, each in enumerate(exchanges) if each.role in _AFTER_A_RUN), len(exchanges))
            ran = 0
        yield from _together(exchanges[asked:until], commands[done:ran])
        asked, done = max(asked, until), max(done, ran)
        yield Ran(number, execution)
    yield from _together(exchanges[asked:], commands[done:])


def _together(exchanges: Sequence[Exchange], commands: Sequence[CommandRun]) -> Iterator[Happening]:
    """Put what the model asked for behind its reply; what was installed without asking it came before."""
    asking = max((at for at, each in enumerate(exchanges, 1) if each.role == "repair"), default=0)
    replies = "\n".join(each.reply for each in exchanges[:asking])
    unasked = next((at for at, each in enumerate(commands) if each.command in replies), len(commands))
    yield from commands[:unasked]
    yield from exchanges[:asking]
    yield from commands[unasked:]
    yield from exchanges[asking:]


def _first_use(told: Sequence[Happening]) -> int:
    """Return where the readings are used first: behind the screener and those who wrote them."""
    roles = [each.role if isinstance(each, Exchange) else "" for each in told]
    return next((at for at, role in enumerate(roles) if role != "screen" and "spec" not in role), len(told))


def _end(told: Sequence[Happening]) -> int:
    """Return where the replies that decided begin."""
    at = len(told)
    while at and isinstance(each := told[at - 1], Exchange) and each.role in _VERDICT:
        at -= 1
    return at
