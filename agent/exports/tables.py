"""Rows as files of their own: JSON lines, CSV, Parquet (by pyarrow, extra `io`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps
from agent.errors import ExtraMissing
from agent.exports.rows import ColumnKind, Export, Row, as_cell

# rows held at once, and written as one group
_ROWS = 2_000


def write_jsonl(export: Export, path: Path) -> None:
    """Write a row a line, its fields as they are in the input; a field that a pair lacks is not in its line.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("wb") as file:
        file.writelines(dumps(row) + b"\n" for row in export.iterate_rows())


def write_csv(export: Export, path: Path) -> None:
    """Write a line of names, and the rows of an export, in UTF-8.

    Text is in quotes, so that an empty text ("") and a missing value (nothing) are told apart. Cells are what they are,
    also where a spreadsheet would take one for a formula: a prefix would change code.

    Raises:
        OSError: the file cannot be written.
    """
    columns = export.columns
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(map(_in_csv, columns)) + "\n")
        for row in export.iterate_rows():
            file.write(",".join(_in_csv(as_cell(row.get(name), kind)) for name, kind in columns.items()) + "\n")


def _in_csv(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return "" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def write_parquet(export: Export, path: Path) -> None:
    """Write the rows of an export as one table.

    Raises:
        ExtraMissing: pyarrow is not installed.
        OSError: the file cannot be written.
    """
    write_parquet_rows(path, export.columns, export.iterate_rows())


def write_parquet_rows(path: Path, columns: Mapping[str, ColumnKind], rows: Iterable[Row]) -> None:
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
            cells = [[as_cell(row.get(name), kind) for row in group] for name, kind in columns.items()]
            arrays = [pa.array(values, field.type) for values, field in zip(cells, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
