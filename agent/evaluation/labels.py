"""Labels of anybody and gold labels, read from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from agent.datasets.fields import Fields
from agent.datasets.formats import read_records, strip_suffixes
from agent.datasets.sources import BadLine
from agent.errors import InputError
from agent.types import Pair, majority
from agent.wording import describe_error

Labels = Mapping[str, int | None]
RaterKind = Literal["run", "round", "file", "reviewer", "majority"]

# CoSQA+ writes words, spreadsheets and CSV converters write text.
_LABELS: Mapping[Any, int] = {0: 0, 1: 1, "0": 0, "1": 1, "no": 0, "yes": 1}


def _label(value: Any) -> int | None:
    # true and 1.0 are equal to 1, and not what was asked for
    if value is None or (type(value) in (int, str) and value in _LABELS):
        return None if value is None else _LABELS[value]
    raise PydanticCustomError("label", "{value} must be 0, 1 or null (or yes, no)", {"value": repr(value)[:60]})


class _Row(BaseModel):
    """What one line says of a pair; `votes` are several annotators' labels."""

    model_config = ConfigDict(frozen=True, strict=True)

    line: int
    id: str
    query: str | None
    label: Annotated[int | None, BeforeValidator(_label)] = None
    votes: list[Annotated[int | None, BeforeValidator(_label)]] | None = None
    annotator: str | None = None

    @property
    def labelled(self) -> bool:
        """Whether the line has a label, if only null."""
        return "label" in self.model_fields_set


@dataclass(frozen=True)
class Rater:
    """Somebody's labels by id: None where they gave none (an error is one of those), absent where not asked."""

    name: str
    labels: Labels
    kind: RaterKind = "file"


@dataclass(frozen=True)
class Gold:
    """Gold labels by id; `without_label` counts pairs whose label is null, `queries` are those that the file gives."""

    labels: dict[str, int]
    queries: dict[str, str]
    without_label: int


def collect_votes(annotators: Iterable[Rater]) -> dict[str, list[int | None]]:
    """Return the labels that the annotators gave to each pair."""
    votes: dict[str, list[int | None]] = {}
    for annotator in annotators:
        for pair, label in annotator.labels.items():
            votes.setdefault(pair, []).append(label)
    return votes


def take_majority(annotators: Iterable[Rater], name: str = "majority") -> Rater:
    """Return the majority label of every pair that any annotator was asked for."""
    return Rater(name, {pair: majority(votes) for pair, votes in collect_votes(annotators).items()}, "majority")


def read_gold(path: Path | str) -> Gold:
    """Read gold from JSON lines or a JSON array of objects with `id`, `label` (0, 1 or null) and perhaps `query`.

    Further fields, such as `votes`, do not matter here. A row may come again as long as it says the same.

    Raises:
        InputError: the file cannot be read, has no label at all, or says different things of one pair.
    """
    path = Path(path)
    rows: dict[str, _Row] = {}
    for row in _rows(path):
        if not row.labelled:
            raise _bad(path, row, "no label: a gold file has a 'label' of 0, 1 or null in every line")
        earlier = rows.setdefault(row.id, row)
        if (earlier.label, earlier.query) != (row.label, row.query):
            cause = f"the pair {row.id[:60]!r} is that of line {earlier.line} too, with another label or query"
            raise _bad(path, row, cause)
    labels = {row.id: row.label for row in rows.values() if row.label is not None}
    if not labels:
        raise InputError("holds no label of 0 or 1", path=path)
    queries = {row.id: row.query for row in rows.values() if row.query is not None}
    return Gold(labels, queries, without_label=len(rows) - len(labels))


def gold_from_pairs(pairs: Iterable[Pair]) -> dict[str, int]:
    """Return the gold that pairs bring along in a field `label`, by id; those without, or with null, are left out.

    Raises:
        InputError: a label is something else than 0 or 1.
    """
    gold: dict[str, int] = {}
    for pair in pairs:
        try:
            label = _label(pair.meta.get("label"))
        except ValueError as error:
            raise InputError(f"pair {pair.id[:60]!r}: label {error}; or give gold with --gold FILE") from None
        if label is not None:
            gold[pair.id] = label
    return gold


def read_labels(path: Path | str) -> tuple[list[Rater], dict[str, str]]:
    """Return the annotators of a file, in the order they come in it, and the queries it gives.

    It is JSON lines or a JSON array of objects with `id` and a label of 0, 1 or null.

    A line has a `label` (the file is one annotator, named after it; or, with `annotator`, of those it names), or
    `votes`, a list with one label per annotator (then `label` does not matter).

    Raises:
        InputError: the file cannot be read, holds no labels, or gives one annotator two different labels for a pair.
    """
    path = Path(path)
    labels: dict[str, dict[str, int | None]] = {}
    lines: dict[tuple[str, str], int] = {}
    queries: dict[str, str] = {}
    with_votes: bool | None = None
    for row in _rows(path):
        with_votes = bool(row.votes) if with_votes is None else with_votes
        if bool(row.votes) != with_votes:
            raise _bad(path, row, "some lines have votes and some have none: whose label is this?")
        if row.query is not None:
            queries.setdefault(row.id, row.query)
        for name, label in _given(path, row):
            line = lines.setdefault((name, row.id), row.line)
            if labels.setdefault(name, {}).setdefault(row.id, label) != label:
                raise _bad(path, row, f"the pair {row.id[:60]!r} has another label of {name[:60]!r} on line {line}")
    if not labels:
        raise InputError("holds no labels", path=path)
    return [Rater(name, labels[name]) for name in labels], queries


def _given(path: Path, row: _Row) -> Iterator[tuple[str, int | None]]:
    """Yield the annotators of a row with their labels."""
    name = strip_suffixes(path)
    if row.votes:
        if row.annotator is not None:
            raise _bad(path, row, "'votes' are several annotators' labels, 'annotator' is one: give one of them")
        yield from ((f"{name} vote {number}", vote) for number, vote in enumerate(row.votes, start=1))
    elif row.labelled:
        yield name if row.annotator is None else row.annotator, row.label
    else:
        raise _bad(path, row, "no label: a line has a 'label' of 0, 1 or null, or 'votes'")


def _bad(path: Path, row: _Row, cause: str) -> InputError:
    return InputError(cause, path=path, line=row.line)


def _rows(path: Path) -> Iterator[_Row]:
    """Yield the rows of JSON lines or a JSON array in order."""
    fields = Fields()
    for record in read_records(path):
        if isinstance(record, BadLine):
            raise InputError(record.cause, path=path, line=record.line)
        try:
            pair_id, query = fields.read_identity(record.value, record.number)
            given = {name: record.value[name] for name in ("label", "votes", "annotator") if name in record.value}
            row = _Row(line=record.line, id=pair_id, query=query, **given)
        except ValueError as error:
            raise InputError(f"{record.prefix}{describe_error(error)}", path=path, line=record.line) from None
        yield row
