"""Gold labels: what annotators are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.errors import InputError
from agent.scoring.rows import Row, read_rows


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
