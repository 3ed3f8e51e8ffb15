"""Events that a run reports to `on_event`."""

from __future__ import annotations

from dataclasses import dataclass

from agent.types import Annotation, Usage


@dataclass(frozen=True)
class Note:
    """A message for the user, for example that an image is being built."""

    message: str


@dataclass(frozen=True)
class RunStarted:
    """The run is ready to annotate.

    `total` is the number of annotations, one per pair and round (None if the length of the input is unknown).
    `finished` is the number of annotations from earlier sessions.
    """

    total: int | None
    finished: int
    variant: str
    sandbox: str | None
    rounds: int = 1


@dataclass(frozen=True)
class PairStarted:
    """The annotation of a pair in one round has started."""

    id: str
    round: int = 0


@dataclass(frozen=True)
class StepDone:
    """A node of the pipeline has finished."""

    id: str
    node: str
    outcome: str
    round: int = 0


@dataclass(frozen=True)
class ReplyReceived:
    """A model call returned a reply; `usage` is zero for a reply from the cache.

    `in_flight` is the number of model calls in flight at that time, and `allowed` is the limit on that number.
    """

    role: str
    model: str
    usage: Usage
    cached: bool
    in_flight: int = 0
    allowed: int = 0


@dataclass(frozen=True)
class Waiting:
    """Work is waiting for something external, such as a retry of a model call or the installation of packages.

    `seconds` is the minimum waiting time (0: unknown).
    """

    what: str
    seconds: float = 0.0


@dataclass(frozen=True)
class PairFinished:
    """A pair has been annotated in one round.

    `generated` is true if a test program was generated. `executions` is the number of executions that tested the
    snippet.
    """

    annotation: Annotation
    generated: bool = False
    executions: int = 0


Event = Note | RunStarted | PairStarted | StepDone | ReplyReceived | Waiting | PairFinished
