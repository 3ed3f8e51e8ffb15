"""Reads labels and gold labels from files."""

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

# CoSQA+ uses words; spreadsheets and CSV converters write numbers as text
_LABELS: Mapping[Any, int] = {0: 0, 1: 1, "0": 0, "1": 1, "no": 0, "yes": 1}


def _parse_label(value: Any) -> int | None:
    # `in` alone would accept true and 1.0, which equal 1
    if value is None or (type(value) in (int, str) and value in _LABELS):
        return None if value is None else _LABELS[value]
    raise PydanticCustomError("label", "{value} must be 0, 1, null, yes or no", {"value": repr(value)[:60]})


class _Row(BaseModel):
    """A row of a labels file. `votes` contains the labels of several annotators."""

    model_config = ConfigDict(frozen=True, strict=True)

    line: int
    id: str
    query: str | None
    label: Annotated[int | None, BeforeValidator(_parse_label)] = None
    votes: list[Annotated[int | None, BeforeValidator(_parse_label)]] | None = None
    annotator: str | None = None

    @property
    def has_label(self) -> bool:
        """Whether the row has a `label` field, which may be null."""
        return "label" in self.model_fields_set


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


def read_gold(path: Path | str) -> Gold:
    """Read a file of gold labels.

    The file is JSON Lines or a JSON array. Each object has an `id`, a `label` (0, 1 or null) and optionally a `query`.
    Other fields, such as `votes`, are ignored. Duplicate rows are accepted if they are identical.

    Raises:
        InputError: the file cannot be read, has no labels, or has conflicting rows for a pair.
    """
    path = Path(path)
    rows: dict[str, _Row] = {}
    for row in _iterate_rows(path):
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


def gold_from_pairs(pairs: Iterable[Pair]) -> dict[str, int]:
    """Return the gold labels from the `label` field of the pairs, keyed by pair id.

    Missing and null labels are omitted.

    Raises:
        InputError: a label is not 0, 1 or null.
    """
    gold: dict[str, int] = {}
    for pair in pairs:
        try:
            label = _parse_label(pair.meta.get("label"))
        except ValueError as error:
            cause = f"pair {pair.id[:60]!r}: label {error}. Correct the label or pass gold labels with --gold FILE."
            raise InputError(cause) from None
        if label is not None:
            gold[pair.id] = label
    return gold


def read_labels(path: Path | str) -> tuple[list[Rater], dict[str, str]]:
    """Read a file of labels. Return its annotators in order of appearance, and the queries, keyed by pair id.

    The file is JSON Lines or a JSON array. Each object has an `id` and labels of 0, 1 or null. It has either a single
    `label` and optionally the name of the `annotator` (default: the name of the file), or a `votes` list with one label
    per annotator. If an object has `votes`, its `label` is ignored.

    Raises:
        InputError: the file cannot be read, has no labels, or has conflicting labels for a pair by the same annotator.
    """
    path = Path(path)
    labels: dict[str, dict[str, int | None]] = {}
    lines: dict[tuple[str, str], int] = {}
    queries: dict[str, str] = {}
    with_votes: bool | None = None
    for row in _iterate_rows(path):
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


def _iterate_rows(path: Path) -> Iterator[_Row]:
    fields = Fields()
    for record in read_records(path):
        if isinstance(record, BadLine):
            raise InputError(record.cause, path=path, line=record.line)
        try:
            pair_id, query = fields.read_identity(record.value, record.number)
            labels = {name: record.value[name] for name in ("label", "votes", "annotator") if name in record.value}
            row = _Row(line=record.line, id=pair_id, query=query, **labels)
        except ValueError as error:
            raise InputError(f"{record.prefix}{describe_error(error)}", path=path, line=record.line) from None
        yield row
