"""Rows of labels: JSON lines or an array, one object per pair (and annotator)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.datasets.fields import Fields
from agent.datasets.sources import BadLine, records
from agent.errors import InputError

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
