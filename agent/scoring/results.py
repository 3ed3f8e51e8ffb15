"""What `agent score` tells, as one value."""

from __future__ import annotations

from pydantic import Field

from agent.scoring.annotators import Agreement
from agent.scoring.breakdown import Breakdown
from agent.scoring.confidence import Calibration
from agent.scoring.estimates import RunEstimates, Words
from agent.scoring.scores import Scores
from agent.scoring.sources import Kind
from agent.types import Frozen


class AnnotatorReport(Frozen):
    """One annotator: `pairs` they were given, of which `labelled` have a label; against gold where there is any."""

    name: str
    kind: Kind
    pairs: int
    labelled: int
    scores: Scores | None


class RunReport(Frozen):
    """What only a run can be asked; `errors` counts its pairs that ended in one, by type.

    `reviews` says which reviews count, `reviews_left_out` how many (of a pair by a reviewer) therefore do not.
    """

    name: str
    errors: dict[str, int]
    reviews: Words = "blind"
    reviews_left_out: int = 0
    breakdown: Breakdown | None = None
    calibration: Calibration | None = None
    estimates: RunEstimates | None = None


class GoldReport(Frozen):
    """The gold file: `labels` are 0 or 1, `without_label` null."""

    path: str
    labels: int
    without_label: int


class ScoreReport(Frozen):
    """Scores, agreement and breakdowns; `notes` are warnings in words."""

    schema_version: int = Field(default=1, serialization_alias="schema")
    gold: GoldReport | None
    annotators: tuple[AnnotatorReport, ...]
    agreement: tuple[Agreement, ...]
    runs: tuple[RunReport, ...]
    notes: tuple[str, ...]
