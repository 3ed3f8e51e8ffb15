"""CSV in UTF-8: text in quotes, so that an empty text ("") and a missing value (nothing) are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.exports.rows import Export, cell


def write(export: Export, path: Path) -> None:
    """Write a line of names, and the rows of an export.

    Cells are what they are, also where a spreadsheet would take one for a formula: a prefix would change code.

    Raises:
        OSError: the file cannot be written.
    """
    columns = export.columns
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(map(_written, columns)) + "\n")
        for row in export.rows():
            file.write(",".join(_written(cell(row.get(name), kind)) for name, kind in columns.items()) + "\n")


def _written(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return "" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
