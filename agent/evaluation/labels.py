"""Reads labels and gold labels from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent.datasets.fields import Fields
from agent.datasets.formats import read_records, strip_suffixes
from agent.datasets.sources import BadLine
from agent.datasets.values import describe, parse_label
from agent.errors import InputError
from agent.types import majority

Labels = Mapping[str, int | None]
RaterKind = Literal["run", "round", "file", "reviewer", "majority"]


@dataclass(frozen=True)
class _Row:
    """A row of a labels file. `votes` contains the labels of several annotators."""

    line: int
    id: str
    query: str | None
    has_label: bool
    label: int | None
    votes: list[int | None]
    annotator: str | None


@dataclass(frozen=True)
class Rater:
    """An annotator's labels, keyed by pair id.

    None means that the annotator was undecided or failed. Pairs that the annotator did not see are absent.
    """

    name: str
    labels: Labels
    kind: RaterKind = "file"


@dataclass(frozen=True)
class Gold:
    """Gold labels and queries, keyed by pair id. `without_label` counts pairs whose label is null."""

    labels: dict[str, int]
    queries: dict[str, str]
    without_label: int


def collect_votes(annotators: Iterable[Rater]) -> dict[str, list[int | None]]:
    """Collect the labels of each pair from all annotators."""
    votes: dict[str, list[int | None]] = {}
    for annotator in annotators:
        for pair, label in annotator.labels.items():
            votes.setdefault(pair, []).append(label)
    return votes


def compute_majority(annotators: Iterable[Rater], name: str = "majority") -> Rater:
    """Compute the majority label of each pair that at least one annotator saw."""
    return Rater(name, {pair: majority(votes) for pair, votes in collect_votes(annotators).items()}, "majority")


def read_gold(path: Path | str, fields: Fields | None = None) -> Gold:
    """Read a file of gold labels in any format for pairs. `fields` has the names of its fields.

    Each row has an `id`, a `label` (see `parse_label`) and optionally a `query`. Other fields, such as `votes`, are
    ignored. Duplicate rows are accepted if they are identical.

    Raises:
        InputError: the file cannot be read, has no labels, or has conflicting rows for a pair.
    """
    path = Path(path)
    rows: dict[str, _Row] = {}
    for row in _iterate_rows(path, fields or Fields()):
        if not row.has_label:
            cause = "field 'label' is missing. Every line of a file with gold labels needs a label of 0, 1 or null."
            raise InputError(cause, path=path, line=row.line)
        earlier = rows.setdefault(row.id, row)
        if (earlier.label, earlier.query) != (row.label, row.query):
            cause = f"pair {row.id[:60]!r} has a different label or query on line {earlier.line}"
            raise InputError(cause, path=path, line=row.line)
    labels = {row.id: row.label for row in rows.values() if row.label is not None}
    if not labels:
        raise InputError("contains no label that is 0 or 1", path=path)
    queries = {row.id: row.query for row in rows.values() if row.query is not None}
    return Gold(labels, queries, without_label=len(rows) - len(labels))


def read_labels(path: Path | str, fields: Fields | None = None) -> tuple[list[Rater], dict[str, str]]:
    """Read a file of labels. Return its annotators in order of appearance, and the queries, keyed by pair id.

    The file has any format for pairs, and `fields` has the names of its fields. Each row has an `id`. It has either a
    single `label` and optionally the name of the `annotator` (default: the name of the file), or a `votes` list with
    one label per annotator. If a row has `votes`, its `label` is ignored.

    Raises:
        InputError: the file cannot be read, has no labels, or has conflicting labels for a pair by the same annotator.
    """
    path = Path(path)
    labels: dict[str, dict[str, int | None]] = {}
    lines: dict[tuple[str, str], int] = {}
    queries: dict[str, str] = {}
    with_votes: bool | None = None
    for row in _iterate_rows(path, fields or Fields()):
        with_votes = bool(row.votes) if with_votes is None else with_votes
        if bool(row.votes) != with_votes:
            cause = "some lines have 'votes' and some do not. Use the same fields in all lines."
            raise InputError(cause, path=path, line=row.line)
        if row.query is not None:
            queries.setdefault(row.id, row.query)
        for name, label in _iterate_labels(path, row):
            line = lines.setdefault((name, row.id), row.line)
            if labels.setdefault(name, {}).setdefault(row.id, label) != label:
                cause = f"pair {row.id[:60]!r}: the label from {name[:60]!r} differs from the label on line {line}"
                raise InputError(cause, path=path, line=row.line)
    if not labels:
        raise InputError("contains no labels", path=path)
    return [Rater(name, labels[name]) for name in labels], queries


def _iterate_labels(path: Path, row: _Row) -> Iterator[tuple[str, int | None]]:
    name = strip_suffixes(path)
    if row.votes:
        if row.annotator is not None:
            cause = "has both 'votes' and 'annotator'. Remove one of these fields."
            raise InputError(cause, path=path, line=row.line)
        yield from ((f"{name} vote {number}", vote) for number, vote in enumerate(row.votes, start=1))
    elif row.has_label:
        yield name if row.annotator is None else row.annotator, row.label
    else:
        cause = "has neither 'label' nor 'votes'. Add the label 0, 1 or null, or a list of votes."
        raise InputError(cause, path=path, line=row.line)


def _iterate_rows(path: Path, fields: Fields) -> Iterator[_Row]:
    for record in read_records(path):
        if isinstance(record, BadLine):
            raise InputError(f"{record.prefix}{record.cause}", path=path, line=record.line)
        try:
            yield _read_row(record.line, *fields.read_identity(record.value, record.number), record.value, fields)
        except ValueError as error:
            raise InputError(f"{record.prefix}{error}", path=path, line=record.line) from None


def _read_row(line: int, pair_id: str, query: str | None, record: Mapping[str, Any], fields: Fields) -> _Row:
    name = next((name for name in fields.names["label"] if name in record), "")
    votes, annotator = record.get("votes"), record.get("annotator")
    if not isinstance(votes, list | None):
        raise ValueError(f"'votes' is {describe(votes)}; expected a list of labels")
    if not isinstance(annotator, str | None):
        raise ValueError(f"'annotator' is {describe(annotator)}; expected text")
    labels: list[int | None] = []
    for place, value in ((name, record.get(name)), *((f"votes.{n}", vote) for n, vote in enumerate(votes or []))):
        try:
            labels.append(parse_label(value))
        except ValueError as error:
            raise ValueError(f"{place!r} is {error}") from None
    return _Row(line, pair_id, query, bool(name), labels[0], labels[1:], annotator)
