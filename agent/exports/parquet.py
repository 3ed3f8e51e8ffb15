"""Parquet, by pyarrow (extra `io`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

from agent.errors import ExtraMissing
from agent.exports.rows import Export, Kind, Row, cell

_ROWS = 2_000
"""Held at once, and written as one group."""


def write(export: Export, path: Path) -> None:
    """Write the rows of an export as one table.

    Raises:
        ExtraMissing: pyarrow is not installed.
        OSError: the file cannot be written.
    """
    write_table(path, export.columns, export.rows())


def write_table(path: Path, columns: Mapping[str, Kind], rows: Iterable[Row]) -> None:
    """Write rows with these columns; what a row lacks is null.

    Raises:
        ExtraMissing: pyarrow is not installed.
        OSError: the file cannot be written.
    """
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise ExtraMissing("io", error) from error
    types = {
        "text": pa.string(),
        "json": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    source = iter(rows)
    with path.open("wb") as file, ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(source, _ROWS)):
            cells = [[cell(row.get(name), kind) for row in group] for name, kind in columns.items()]
            arrays = [pa.array(values, field.type) for values, field in zip(cells, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
