"""What a run reports to its listener (`on_event`)."""

from __future__ import annotations

from dataclasses import dataclass

from agent.types import Annotation, Usage


@dataclass(frozen=True)
class Note:
    """A line for the user: which sandbox was chosen, an image being built, something odd in the input."""

    message: str


@dataclass(frozen=True)
class RunStarted:
    """The run is ready to annotate.

    `total` counts annotations, one per pair and round (None for input of unknown length), `finished` those found done.
    """

    total: int | None
    finished: int
    variant: str
    sandbox: str | None
    rounds: int = 1


@dataclass(frozen=True)
class PairStarted:
    """Work on a pair began, in one round."""

    id: str
    round: int = 0


@dataclass(frozen=True)
class StepDone:
    """A node of the pipeline concluded."""

    id: str
    node: str
    outcome: str
    round: int = 0


@dataclass(frozen=True)
class ReplyReceived:
    """A model answered; `usage` is zero for a reply found in the cache.

    `in_flight` calls are on their way then, and `allowed` is how many may be.
    """

    role: str
    model: str
    usage: Usage
    cached: bool
    in_flight: int = 0
    allowed: int = 0


@dataclass(frozen=True)
class Waiting:
    """Work waits for something outside: a model's server to be asked again, packages being installed.

    `seconds` is how long at least, 0 where nobody knows.
    """

    what: str
    seconds: float = 0.0


@dataclass(frozen=True)
class PairFinished:
    """A pair has its annotation. `generated`: a program was written; `executions` is how often it was run as a test."""

    annotation: Annotation
    generated: bool = False
    executions: int = 0


Event = Note | RunStarted | PairStarted | StepDone | ReplyReceived | Waiting | PairFinished
