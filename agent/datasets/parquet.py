"""The rows of Parquet files, by pyarrow (extra `io`)."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from datetime import date, time
from pathlib import Path
from typing import IO, Any

from agent.datasets.sources import BadLine, Record
from agent.errors import ExtraMissing, InputError

_BATCH = 1000
"""Rows that are in memory as Python objects at once."""


def parquet_rows(file: IO[bytes], path: Path) -> Iterator[Record | BadLine]:
    """Yield an object for each row, in JSON's types (`as_json_type`).

    Raises:
        InputError: it is no Parquet file, a damaged one, or names a column twice.
        ExtraMissing: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ExtraMissing("io", error) from error
    try:
        with tempfile.TemporaryFile() as unpacked:
            if not file.seekable() or path.suffix.lower() == ".gz":
                shutil.copyfileobj(file, unpacked)  # read from its end
                file = unpacked
            table = pyarrow.parquet.ParquetFile(file)
            names = table.schema_arrow.names
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise InputError(f"has two columns named {twice!r}; rename one", path=path)
            yield from table_records(table.iter_batches(_BATCH))
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"cannot be read as Parquet ({error})", path=path) from None


def table_records(batches: Any) -> Iterator[Record | BadLine]:
    """Yield an object for each row of Arrow's tables or batches."""
    number = 0
    for batch in batches:
        for row in batch.to_pylist():
            number += 1
            prefix = f"row {number}: "
            try:
                value = {name: as_json_type(cell) for name, cell in row.items()}
            except ValueError as error:
                yield BadLine(number, str(error), prefix=prefix)
            else:
                yield Record(number, number, value, prefix)


def as_json_type(value: Any) -> Any:
    """Return a value of Arrow's as JSON has it.

    What is no number (NaN, infinity) becomes null, dates and times ISO 8601, bytes their text, and what else there is
    (decimals, durations) what Python prints of it.

    Raises:
        ValueError: bytes that are not UTF-8.
    """
    if isinstance(value, dict):
        return {str(name): as_json_type(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json_type(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value if value is None or isinstance(value, str | int | float) else str(value)
