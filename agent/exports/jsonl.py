"""JSON lines: a row a line, its fields as they are in the input."""

from __future__ import annotations

from pathlib import Path

from agent.datasets.encoding import dumps
from agent.exports.rows import Export


def write(export: Export, path: Path) -> None:
    """Write the rows of an export; a field that a pair lacks is not in its line.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("wb") as file:
        file.writelines(dumps(row) + b"\n" for row in export.rows())
