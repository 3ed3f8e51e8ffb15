"""Everybody whose labels are to be scored: runs, their reviewers, the annotators of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.errors import InputError, UsageError
from agent.evaluation.estimates import MAJORITY, ReviewChoice, Reviewed, read_reviewed
from agent.evaluation.labels import Rater, majority_of, read_labels
from agent.evaluation.tally import Tally, annotated_pairs, as_one
from agent.store import files
from agent.store.run_view import RunView, criterion_of, load_run

# what is read by the run's folder as a whole: labels, rounds and reviewers
_PARTS = frozenset({files.ANNOTATIONS, files.LABELS, files.REVIEWS})


@dataclass(frozen=True)
class RunSource:
    """A run's labels: of one round, or the majority of its `rounds` (of which a tie is None), by what criterion.

    `confidences` are those of the labels, as in `labels.jsonl`; `tally` counts the pairs, each as its rounds together.
    `rounds` are those whose labels these are, none where it is a single one.
    """

    annotator: Rater
    rounds: tuple[Rater, ...]
    confidences: Mapping[str, float]
    tally: Tally
    queries: Mapping[str, str]
    criterion: str
    reviewed: Reviewed

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.annotator.name


def read_run(
    path: Path | str,
    round: int | None = None,
    gold: Mapping[str, int] | None = None,
    words: ReviewChoice = "blind",
    *,
    name: str | None = None,
) -> RunSource:
    """Read a run's labels: those of `round`, or the majority of all its rounds; the tally compares them with `gold`.

    `words` says which reviews of the run count. `name` is what the run is called, if not as its folder.

    Raises:
        RunFolderError: the folder is no run, or is damaged.
        UsageError: the run has no such round, or no annotations.
    """
    with load_run(path) as view:
        there = sorted({number for _, number in view.index.annotated()})
        if not there:
            raise UsageError(f"{view.path}: has no annotations yet")
        if round is not None and round not in there:
            raise UsageError(f"{view.path}: has no round {round}; there is {', '.join(map(str, there))}")
        wanted = there if round is None else [round]
        return _read(view, wanted, gold, words, name or view.path.resolve().name)


def _read(
    view: RunView, wanted: Sequence[int], gold: Mapping[str, int] | None, words: ReviewChoice, name: str
) -> RunSource:
    tally, labels, confidences = Tally(), dict[str, int | None](), dict[str, float]()
    rounds: dict[int, dict[str, int | None]] = {number: {} for number in wanted}
    queries: dict[str, str] = {}
    for pair, every in annotated_pairs(view, gold=gold):
        seen = [each for each in every if each.annotation.round in rounds]
        if not seen:
            continue
        for each in seen:
            rounds[each.annotation.round][pair.id] = each.annotation.label
        whole = as_one(seen)
        tally.add(whole)
        labels[pair.id], queries[pair.id] = whole.annotation.label, pair.query
        if whole.annotation.confidence is not None:
            confidences[pair.id] = whole.annotation.confidence
    several = rounds if len(rounds) > 1 else {}
    return RunSource(
        annotator=Rater(name, labels, "run"),
        rounds=tuple(Rater(f"{name} round {number}", of_round, "round") for number, of_round in several.items()),
        confidences=confidences,
        tally=tally,
        queries=queries,
        criterion=criterion_of(view.manifest),
        reviewed=read_reviewed(view, words),
    )


@dataclass
class LabelSources:
    """The sources in the order given; `queries` are those of their pairs, `differing` the pairs with two.

    `words` says which reviews of the runs count; `gold` are the labels that runs are compared with.
    """

    words: ReviewChoice = "blind"
    gold: Mapping[str, int] | None = None
    runs: list[RunSource] = field(default_factory=list)
    files: list[Rater] = field(default_factory=list)
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
            name = self._unused(path.resolve().name, str(path))
            run = read_run(path, round, self.gold, self.words, name=name)
            self._names.update(rater.name for rater in (run.annotator, *run.rounds))
            reviewers = tuple(self._named(each, name) for each in run.reviewed.reviewers)
            self.runs.append(replace(run, reviewed=replace(run.reviewed, reviewers=reviewers)))
            self.learn(run.queries)
            return
        if path.name in _PARTS and (path.parent / files.MANIFEST).is_file():
            raise InputError(f"is part of a run: give the run's folder, {path.parent}", path=path)
        annotators, queries = read_labels(path)
        self.files += [self._named(annotator, str(path)) for annotator in annotators]
        self.learn(queries)

    def learn(self, queries: Mapping[str, str]) -> None:
        """Take over queries; the first one of a pair stays."""
        for pair, query in queries.items():
            if self.queries.setdefault(pair, query) != query:
                self.differing.add(pair)

    def annotators(self) -> list[Rater]:
        """Return everybody, each run before its rounds and reviewers, and majorities after those they are of."""
        raters: list[Rater] = []
        for run in self.runs:
            raters += [run.annotator, *run.rounds]
            raters += _with_majority(run.reviewed.reviewers, self._unused(MAJORITY, run.name))
        return raters + _with_majority(self.files, self._unused("majority", "files"))

    def panels(self) -> list[tuple[str, Sequence[Rater]]]:
        """Return the groups within which agreement is of interest, each with a name."""
        people = [("annotators", self.files)] if self.runs else []
        everybody = [*(run.annotator for run in self.runs), *self.files]
        for run in self.runs:
            everybody += run.reviewed.reviewers
            people += [
                (f"rounds of {run.name}", list(run.rounds)),
                (f"reviewers of {run.name}", list(run.reviewed.reviewers)),
            ]
        panels = [("all", everybody), *people] if self.runs else [("annotators", everybody)]
        return [(name, members) for name, members in panels if len(members) > 1]

    def _named(self, annotator: Rater, source: str) -> Rater:
        name = self._unused(annotator.name, source)
        self._names.add(name)
        return replace(annotator, name=name)

    def _unused(self, name: str, source: str) -> str:
        if name in self._names:
            name = f"{name} ({source})"
        if name in self._names:
            raise InputError(f"two annotators are called {name[:80]!r}: is it given twice?")
        return name


def _with_majority(annotators: Sequence[Rater], name: str) -> list[Rater]:
    return [*annotators, *([majority_of(annotators, name)] if len(annotators) > 1 else [])]
