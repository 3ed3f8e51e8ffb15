"""Everybody whose labels are to be scored: runs, their reviewers, the annotators of files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from agent.errors import InputError, UsageError
from agent.scoring.estimates import MAJORITY, Reviewed, Words, read_reviewed
from agent.scoring.labels import Annotator, majority_of, read_labels
from agent.scoring.run_labels import RunLabels, read_run_labels
from agent.store import files

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
