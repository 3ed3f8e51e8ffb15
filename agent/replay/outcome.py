"""Compares two outcomes of one program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agent.languages.canonical import canonical
from agent.types import CaseResult, Status, TestReport

_ENVIRONMENT = re.compile(r"/envs/[0-9a-f]{8,64}\b")


@dataclass(frozen=True)
class Difference:
    """Something that ended otherwise: of the case `case`, or of the whole program (empty).

    A `message` is compared in its canonical form: without times, addresses and temporary paths, and without the
    places of packages. Of a program that took all its time both times it is not compared where it stood, and so whom it
    is blamed on.
    """

    kind: Literal["status", "cause", "outcome", "message"]
    case: str
    then: str
    now: str

    @property
    def what(self) -> str:
        """Name it for a reader."""
        if not self.case:
            return self.kind
        return self.case if self.kind == "outcome" else f"{self.kind} of {self.case}"


def differences(then: TestReport, now: TestReport) -> tuple[Difference, ...]:
    """Return what differs: status and cause first, then case by case."""
    # where a program stood when its time was up is the clock's doing
    silent = then.status is Status.TIMEOUT is now.status
    before = {case.name: case for case in _cases(then, silent)}
    after = {case.name: case for case in _cases(now, silent)}
    found = [Difference("status", "", then.status.value, now.status.value)]
    if not silent:
        found.append(Difference("cause", "", _cause(then), _cause(now)))
        found.append(Difference("message", "", _comparable(then.message), _comparable(now.message)))
    for name in dict.fromkeys((*before, *after)):
        found += _of_case(name, before.get(name), after.get(name))
    return tuple(difference for difference in found if difference.then != difference.now)


def _cases(report: TestReport, silent: bool) -> Iterator[CaseResult]:
    for case in report.cases:
        if silent and case.message == report.message:
            yield case.model_copy(update={"message": "", "cause": None})
        else:
            yield case.model_copy(update={"message": _comparable(case.message)})


def _of_case(name: str, then: CaseResult | None, now: CaseResult | None) -> list[Difference]:
    if then is None or now is None:
        return [
            Difference("outcome", name, *("absent" if each is None else each.outcome.value for each in (then, now)))
        ]
    return [
        Difference("outcome", name, then.outcome.value, now.outcome.value),
        Difference("cause", name, _cause(then), _cause(now)),
        Difference("message", name, then.message, now.message),
    ]


def _cause(of: TestReport | CaseResult) -> str:
    return "none" if of.cause is None else of.cause.value


def _comparable(message: str) -> str:
    # equal packages may be of other files, and then they lie elsewhere
    return _ENVIRONMENT.sub("/envs/<environment>", canonical(message))
