"""Labels of anybody, each annotator under a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import InputError
from agent.scoring.rows import Row, read_rows
from agent.store.majority import majority

Labels = Mapping[str, int | None]


@dataclass(frozen=True)
class Annotator:
    """Somebody's labels by id: None where they gave none (an error is one of those), absent where not asked."""

    name: str
    labels: Labels


@dataclass(frozen=True)
class LabelFile:
    """The annotators of a file, in the order they come in it, and the queries it gives."""

    path: Path
    annotators: tuple[Annotator, ...]
    queries: dict[str, str]


def majority_of(annotators: Iterable[Annotator], name: str = "majority") -> Annotator:
    """Return the majority label of every pair that any annotator was asked for."""
    votes: dict[str, list[int | None]] = {}
    for annotator in annotators:
        for pair, label in annotator.labels.items():
            votes.setdefault(pair, []).append(label)
    return Annotator(name, {pair: majority(cast) for pair, cast in votes.items()})


def read_labels(path: Path | str) -> LabelFile:
    """Read labels from JSON lines or a JSON array of objects with `id` and a label of 0, 1 or null.

    A line has a `label` (the file is one annotator, named after it; or, with `annotator`, of those it names), or
    `votes`, a list with one label per annotator (then `label` does not matter).

    Raises:
        InputError: the file cannot be read, holds no labels, or gives one annotator two different labels for a pair.
    """
    path = Path(path)
    collected = _Collected(path)
    for row in read_rows(path):
        collected.add(row)
    if not collected.labels:
        raise InputError("holds no labels", path=path)
    annotators = tuple(Annotator(name, labels) for name, labels in collected.labels.items())
    return LabelFile(path, annotators, collected.queries)


@dataclass
class _Collected:
    path: Path
    labels: dict[str, dict[str, int | None]] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    with_votes: bool | None = None

    def add(self, row: Row) -> None:
        if self.with_votes is None:
            self.with_votes = bool(row.votes)
        if bool(row.votes) != self.with_votes:
            raise self._bad(row, "some lines have votes and some have none: whose label is this?")
        if row.query is not None:
            self.queries.setdefault(row.id, row.query)
        name = self.path.name.split(".json")[0]
        if row.votes:
            if row.annotator is not None:
                raise self._bad(row, "'votes' are several annotators' labels, 'annotator' is one: give one of them")
            for number, vote in enumerate(row.votes, start=1):
                self._take(row, f"{name} vote {number}", vote)
        elif row.labelled:
            self._take(row, name if row.annotator is None else row.annotator, row.label)
        else:
            raise self._bad(row, "no label: a line has a 'label' of 0, 1 or null, or 'votes'")

    def _take(self, row: Row, name: str, label: int | None) -> None:
        line = self.lines.setdefault((name, row.id), row.line)
        if self.labels.setdefault(name, {}).setdefault(row.id, label) != label:
            raise self._bad(row, f"the pair {row.id[:60]!r} has another label of {name[:60]!r} on line {line}")

    def _bad(self, row: Row, cause: str) -> InputError:
        return InputError(cause, path=self.path, line=row.line)
