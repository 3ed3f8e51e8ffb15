"""A folder that `datasets.load_dataset` reads: Parquet, and a dataset card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.exports.card import Origins, card
from agent.exports.parquet import write_table
from agent.exports.rows import Export, Row


def write(export: Export, folder: Path) -> None:
    """Write `data/train.parquet` and, from what it holds and what the run knows, `README.md`.

    Raises:
        ExtraMissing: pyarrow is not installed.
        OSError: a file cannot be written.
    """
    origins = Origins()

    def watched() -> Iterator[Row]:
        for row in export.rows():
            origins.add(row)
            yield row

    (folder / "data").mkdir()
    write_table(folder / "data" / "train.parquet", export.columns, watched())
    (folder / "README.md").write_text(card(export, origins), encoding="utf-8")
