"""Exports labels as JSON Lines, CSV or Parquet. Parquet requires pyarrow (the `io` extra)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps
from agent.errors import needs_extra
from agent.exports.rows import ColumnKind, Export, Row, as_cell

# rows per Parquet row group
_GROUP_SIZE = 2_000


def write_jsonl(export: Export, path: Path) -> None:
    """Write one JSON object per pair, with the pair's input fields and results. Omits fields that a pair does not have.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("wb") as file:
        file.writelines(dumps(row) + b"\n" for row in export.iterate_rows())


def write_csv(export: Export, path: Path) -> None:
    """Write the rows of an export as a UTF-8 CSV file with a header.

    All text is quoted to distinguish an empty text (`""`) from a missing value (an empty cell). Text that looks like a
    spreadsheet formula is not escaped, because escaping would change code snippets.

    Raises:
        OSError: the file cannot be written.
    """
    columns = export.columns
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(map(_format_csv, columns)) + "\n")
        for row in export.iterate_rows():
            file.write(",".join(_format_csv(as_cell(row.get(name), kind)) for name, kind in columns.items()) + "\n")


def _format_csv(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return "" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def write_parquet(export: Export, path: Path) -> None:
    """Write the rows of an export as a Parquet file.

    Raises:
        ExtraMissing: pyarrow is not installed.
        OSError: the file cannot be written.
    """
    write_parquet_rows(path, export.columns, export.iterate_rows())


def write_parquet_rows(path: Path, columns: Mapping[str, ColumnKind], rows: Iterable[Row]) -> None:
    """Write rows as a Parquet file with the given columns. Missing fields become null.

    Raises:
        ExtraMissing: pyarrow is not installed.
        OSError: the file cannot be written.
    """
    with needs_extra("io"):
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
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
        while group := list(islice(source, _GROUP_SIZE)):
            cells = [[as_cell(row.get(name), kind) for row in group] for name, kind in columns.items()]
            arrays = [pa.array(values, field.type) for values, field in zip(cells, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
