"""Labels of anybody and gold labels, read from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.datasets.fields import Fields
from agent.datasets.sources import BadLine, records
from agent.errors import InputError
from agent.store.majority import majority

# CoSQA+ writes words, spreadsheets and CSV converters write text.
_LABELS: Mapping[Any, int] = {0: 0, 1: 1, "0": 0, "1": 1, "no": 0, "yes": 1}


@dataclass(frozen=True)
class Row:
    """What one line says of a pair. `labelled`: the line has a label, if only null; `votes` are several annotators'."""

    line: int
    id: str
    labelled: bool
    label: int | None
    votes: tuple[int | None, ...]
    annotator: str | None
    query: str | None


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file in order.

    Raises:
        InputError: the file or a line of it cannot be read; names file and line.
    """
    fields = Fields()
    for record in records(path):
        if isinstance(record, BadLine):
            raise InputError(record.cause, path=path, line=record.line)
        try:
            pair_id, query = fields.identity(record.value, record.number)
            row = _row(record.value, record.line, pair_id, query)
        except ValueError as error:
            raise InputError(f"{record.prefix}{error}", path=path, line=record.line) from None
        yield row


def _row(value: Mapping[str, Any], line: int, pair_id: str, query: str | None) -> Row:
    votes = value.get("votes")
    if votes is not None and not isinstance(votes, list):
        raise ValueError(f"'votes' is {_shown(votes)}; a list of 0, 1 and null expected")
    annotator = value.get("annotator")
    if annotator is not None and not isinstance(annotator, str):
        raise ValueError(f"'annotator' is {_shown(annotator)}; a name expected")
    return Row(
        line=line,
        id=pair_id,
        labelled="label" in value,
        label=_label(value.get("label"), "label"),
        votes=tuple(_label(vote, f"vote {number}") for number, vote in enumerate(votes or (), start=1)),
        annotator=annotator,
        query=query,
    )


def _label(value: Any, name: str) -> int | None:
    if value is None:
        return None
    # true and 1.0 are equal to 1, and not what was asked for
    if type(value) in (int, str) and value in _LABELS:
        return _LABELS[value]
    raise ValueError(f"the {name} is {_shown(value)}; it must be 0, 1 or null (or yes, no)")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


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


@dataclass(frozen=True)
class Gold:
    """Gold labels by id; `without_label` counts pairs whose label is null, `queries` are those that the file gives."""

    path: Path
    labels: dict[str, int]
    queries: dict[str, str]
    without_label: int


def read_gold(path: Path | str) -> Gold:
    """Read gold from JSON lines or a JSON array of objects with `id`, `label` (0, 1 or null) and perhaps `query`.

    Further fields, such as `votes`, do not matter here. A row may come again as long as it says the same.

    Raises:
        InputError: the file cannot be read, has no label at all, or says different things of one pair.
    """
    path = Path(path)
    rows: dict[str, Row] = {}
    for row in read_rows(path):
        if not row.labelled:
            raise InputError(
                "no label: a gold file has a 'label' of 0, 1 or null in every line", path=path, line=row.line
            )
        earlier = rows.setdefault(row.id, row)
        if (earlier.label, earlier.query) != (row.label, row.query):
            raise InputError(
                f"the pair {row.id[:60]!r} is that of line {earlier.line} too, with another label or query",
                path=path,
                line=row.line,
            )
    labels = {row.id: row.label for row in rows.values() if row.label is not None}
    if not labels:
        raise InputError("holds no label of 0 or 1", path=path)
    queries = {row.id: row.query for row in rows.values() if row.query is not None}
    return Gold(path, labels, queries, without_label=len(rows) - len(labels))
