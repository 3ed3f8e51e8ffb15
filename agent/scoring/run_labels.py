"""Labels of a run's folder, and what decided each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import UsageError
from agent.scoring.labels import Annotator
from agent.store.majority import PairLabel, Votes, ended, standing_for
from agent.store.run_view import RunView, criterion_of, load_run
from agent.types import Annotation


@dataclass(frozen=True)
class Decision:
    """What led to a label: that of the first round that ended so, where there are several.

    `outcome` and `says` are those of the test (`TestReport`), None where there is none. `confidence` is that of all
    rounds in the label, as in `labels.jsonl`.
    """

    label: int | None
    decided_by: str | None
    outcome: str | None
    cause: str | None
    says: int | None
    stand_ins: bool
    confidence: float | None
    error: str | None

    @classmethod
    def of(cls, annotation: Annotation) -> Decision:
        """Return what matters to scores of an annotation."""
        test = annotation.test
        return cls(
            label=annotation.label,
            decided_by=annotation.decided_by,
            outcome=None if test is None else test.outcome,
            cause=None if test is None or test.cause is None else test.cause.value,
            says=None if test is None else test.says,
            stand_ins=bool(annotation.stand_ins),
            confidence=annotation.confidence,
            error=None if annotation.error is None else annotation.error.type,
        )


@dataclass(frozen=True)
class RunLabels:
    """A run's labels by id: of one round, or the majority of `rounds` (of which a tie is None), by what criterion."""

    path: Path
    annotator: Annotator
    decisions: dict[str, Decision]
    rounds: tuple[Annotator, ...]
    queries: dict[str, str]
    criterion: str

    @property
    def errors(self) -> Counter[str]:
        """How many pairs ended in which error; those are without a label."""
        return Counter(decision.error for decision in self.decisions.values() if decision.error is not None)


def read_run_labels(path: Path | str, round: int | None = None) -> RunLabels:
    """Read a run's labels: those of `round`, or the majority of all its rounds.

    Raises:
        RunFolderError: the folder is no run, or is damaged.
        UsageError: the run has no such round, or no annotations.
    """
    with load_run(path) as view:
        return _labels_of(view, round)


def _labels_of(view: RunView, wanted: int | None) -> RunLabels:
    rounds, votes = dict[int, dict[str, Decision]](), Votes()
    for annotation in view.annotations():
        rounds.setdefault(annotation.round, {})[annotation.id] = Decision.of(annotation)
        if wanted in (None, annotation.round):
            votes.add_annotation(annotation)
    if not rounds:
        raise UsageError(f"{view.path}: has no annotations yet")
    if wanted is not None:
        if wanted not in rounds:
            raise UsageError(f"{view.path}: has no round {wanted}; there is {', '.join(map(str, sorted(rounds)))}")
        rounds = {wanted: rounds[wanted]}
    labels = {label.id: label for label in votes.labels()}
    decided = {pair: None for number in sorted(rounds) for pair in rounds[number]}
    decisions = {
        pair: _decision(labels[pair], [rounds[number][pair] for number in sorted(rounds) if pair in rounds[number]])
        for pair in decided
    }
    name = view.path.resolve().name
    return RunLabels(
        path=view.path,
        annotator=Annotator(name, {pair: decision.label for pair, decision in decisions.items()}),
        decisions=decisions,
        rounds=tuple(
            Annotator(f"round {number}", {pair: decision.label for pair, decision in rounds[number].items()})
            for number in sorted(rounds)
        ),
        queries={pair.id: pair.query for pair in view.pairs() if pair.id in decisions},
        criterion=criterion_of(view.manifest),
    )


def _decision(label: PairLabel, rounds: Sequence[Decision]) -> Decision:
    """Return the first decision that ended as the pair; in a tie one without label and without what led to it."""
    place = standing_for([ended(each.label, failed=each.error is not None) for each in rounds])
    if place is None:
        return Decision(None, None, None, None, None, stand_ins=False, confidence=None, error=None)
    return replace(rounds[place], confidence=label.confidence)
