"""Compares two outcomes of one program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agent.languages.canonical import canonical
from agent.types import CaseResult, TestReport

_NONE = "none"
_ENVIRONMENT = re.compile(r"/envs/[0-9a-f]{8,64}\b")
_ABSENT = CaseResult.model_construct(name="", outcome="absent", message="", cause=None)


@dataclass(frozen=True)
class Difference:
    """Something that ended otherwise: of the case `case`, or of the whole program (empty).

    A `message` is compared in its canonical form: without times, addresses and temporary paths, and without the
    places of packages.
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
    before = {case.name: case for case in then.cases}
    after = {case.name: case for case in now.cases}
    found = [
        Difference("status", "", then.status.value, now.status.value),
        Difference("cause", "", then.cause or _NONE, now.cause or _NONE),
        Difference("message", "", _comparable(then.message), _comparable(now.message)),
    ]
    for name in dict.fromkeys((*before, *after)):
        found += _of_case(name, before.get(name, _ABSENT), after.get(name, _ABSENT))
    return tuple(difference for difference in found if difference.then != difference.now)


def _of_case(name: str, then: CaseResult, now: CaseResult) -> list[Difference]:
    return [
        Difference("outcome", name, str(then.outcome), str(now.outcome)),
        Difference("cause", name, then.cause or _NONE, now.cause or _NONE),
        Difference("message", name, _comparable(then.message), _comparable(now.message)),
    ]


def _comparable(message: str) -> str:
    # equal packages may be of other files, and then they lie elsewhere
    return _ENVIRONMENT.sub("/envs/<environment>", canonical(message))
