"""Everybody whose labels are to be scored: runs, their reviewers, the annotators of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from agent.errors import InputError, UsageError
from agent.evaluation.estimates import MAJORITY, Reviewed, Words, read_reviewed
from agent.evaluation.labels import Annotator, majority_of, read_labels
from agent.store import files
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
            votes.add(annotation)
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


_PARTS = frozenset({files.ANNOTATIONS, files.LABELS, files.REVIEWS})
"""What a run's folder is read from as a whole: labels, rounds and reviewers."""

Kind = Literal["run", "round", "file", "reviewer", "majority"]


@dataclass(frozen=True)
class Voice:
    """An annotator, and what kind of one."""

    kind: Kind
    annotator: Annotator


@dataclass(frozen=True)
class RunSource:
    """A run under a name that no other annotator has, with its rounds (where several) and reviewers."""

    labels: RunLabels
    reviewed: Reviewed
    name: str
    rounds: tuple[Annotator, ...]
    reviewers: tuple[Annotator, ...]

    @property
    def annotator(self) -> Annotator:
        """Return the run's own labels."""
        return replace(self.labels.annotator, name=self.name)


@dataclass
class Sources:
    """The sources in the order given; `queries` is what they tell of pairs' queries, `differing` pairs with two.

    `words` says which reviews of the runs count.
    """

    words: Words = "blind"
    runs: list[RunSource] = field(default_factory=list)
    files: list[Annotator] = field(default_factory=list)
    queries: dict[str, str] = field(default_factory=dict)
    differing: set[str] = field(default_factory=set)
    paths: list[Path] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)

    def add(self, path: Path, round: int | None) -> None:
        """Read a run's folder or a file of labels.

        Raises:
            UsageError: it cannot be read, or it was read before.
        """
        if any(path.resolve() == each.resolve() for each in self.paths):
            raise UsageError(f"{path}: is given twice: agreement with oneself says nothing, give it once")
        self.paths.append(path)
        if path.is_dir():
            self._add_run(read_run_labels(path, round), read_reviewed(path, self.words))
            return
        if path.name in _PARTS and (path.parent / files.MANIFEST).is_file():
            raise InputError(f"is part of a run: give the run's folder, {path.parent}", path=path)
        found = read_labels(path)
        for annotator in found.annotators:
            self.files.append(self._named(annotator, str(path)))
        self.learn(found.queries)

    def learn(self, queries: dict[str, str]) -> None:
        """Take over queries; the first one told of a pair stays."""
        for pair, query in queries.items():
            if self.queries.setdefault(pair, query) != query:
                self.differing.add(pair)

    def voices(self) -> list[Voice]:
        """Return everybody, each run before its rounds and reviewers, and majorities after those they are of."""
        voices: list[Voice] = []
        for run in self.runs:
            voices.append(Voice("run", run.annotator))
            voices += [Voice("round", each) for each in run.rounds]
            voices += _with_majority("reviewer", run.reviewers, self._free(MAJORITY, run.name))
        return voices + _with_majority("file", self.files, self._free("majority", "files"))

    def panels(self) -> list[tuple[str, Sequence[Annotator]]]:
        """Return the groups within which agreement is of interest, each with a name."""
        people = [("annotators", self.files)] if self.runs else []
        everybody = [*(run.annotator for run in self.runs), *self.files]
        for run in self.runs:
            everybody += run.reviewers
            people += [(f"rounds of {run.name}", list(run.rounds)), (f"reviewers of {run.name}", list(run.reviewers))]
        panels = [("all", everybody), *people] if self.runs else [("annotators", everybody)]
        return [(name, members) for name, members in panels if len(members) > 1]

    def _add_run(self, labels: RunLabels, reviewed: Reviewed) -> None:
        name = self._named(labels.annotator, str(labels.path)).name
        rounds = labels.rounds if len(labels.rounds) > 1 else ()
        self.runs.append(
            RunSource(
                labels=labels,
                reviewed=reviewed,
                name=name,
                rounds=tuple(self._named(replace(each, name=f"{name} {each.name}"), "") for each in rounds),
                reviewers=tuple(self._named(each, name) for each in reviewed.reviewers),
            )
        )
        self.learn(labels.queries)

    def _named(self, annotator: Annotator, source: str) -> Annotator:
        name = self._free(annotator.name, source)
        self._names.add(name)
        return replace(annotator, name=name)

    def _free(self, name: str, source: str) -> str:
        if name in self._names:
            name = f"{name} ({source})"
        if name in self._names:
            raise InputError(f"two annotators are called {name[:80]!r}: is it given twice?")
        return name


def _with_majority(kind: Kind, annotators: Iterable[Annotator], name: str) -> list[Voice]:
    voices = [Voice(kind, annotator) for annotator in annotators]
    if len(voices) > 1:
        voices.append(Voice("majority", majority_of((voice.annotator for voice in voices), name)))
    return voices
