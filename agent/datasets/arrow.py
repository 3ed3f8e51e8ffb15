"""The rows of Parquet files, by pyarrow, and of a local Hugging Face dataset's folder, by `datasets` (extra `io`)."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from datetime import date, time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from agent.datasets.sources import BadLine, SourceRow
from agent.errors import ExtraMissing, InputError

_BATCH = 1000  # rows that are in memory as Python objects at once
_BAD_VALUES = (ValueError, KeyError, TypeError, OverflowError, NotImplementedError)
_SAVED = ("dataset_dict.json", "state.json")
_MARKS = (*_SAVED, "dataset_info.json", "dataset_infos.json", "README.md", "data")


def parquet_rows(file: IO[bytes], path: Path) -> Iterator[SourceRow | BadLine]:
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
        with TemporaryFile() as unpacked:
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


def table_records(batches: Any) -> Iterator[SourceRow | BadLine]:
    """Yield an object for each row of Arrow's tables or batches."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for number, row in enumerate(rows, start=1):
        prefix = f"row {number}: "
        try:
            value = {name: as_json_type(cell) for name, cell in row.items()}
        except ValueError as error:
            yield BadLine(number, str(error), prefix=prefix)
        else:
            yield SourceRow(number, number, value, prefix)


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


def is_dataset(folder: Path) -> bool:
    """Say whether a folder looks like what `save_to_disk` wrote, or like a dataset of the Hub."""
    return folder.is_dir() and (any((folder / mark).exists() for mark in _MARKS) or any(folder.glob("*.parquet")))


def folder_rows(folder: Path) -> Iterator[SourceRow | BadLine]:
    """Yield an object for each row of the dataset in a folder, in JSON's types (`as_json_type`).

    Raises:
        InputError: the folder holds no dataset, a damaged one, or one of several splits.
        ExtraMissing: `datasets` is not installed.
    """
    try:
        import datasets
        import yaml
    except ImportError as error:
        raise ExtraMissing("io", error) from error
    saved = any((folder / mark).exists() for mark in _SAVED)
    try:
        with TemporaryDirectory() as scratch:  # rather than the user's cache; streaming copies nothing
            read = partial(datasets.load_dataset, streaming=True, cache_dir=scratch)
            _check_stays_inside(folder)
            rows = (datasets.load_from_disk if saved else read)(str(folder))
            if isinstance(rows, dict):
                rows = _only_split(folder, rows, saved)
            yield from table_records(rows.with_format("arrow").iter(_BATCH))
    except (datasets.exceptions.DatasetsError, yaml.YAMLError, OSError, *_BAD_VALUES) as error:
        cause = str(error).partition("\n")[0]
        raise InputError(f"cannot be read as a Hugging Face dataset ({cause}); give its files", path=folder) from error


def _check_stays_inside(folder: Path) -> None:
    """Refuse a stranger's dataset that has files outside of its folder read, by a link or by a path it names.

    Raises:
        InputError: names the link or the path.
    """
    from huggingface_hub import DatasetCard

    root = os.path.realpath(folder)
    for entry in folder.rglob("*"):
        if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(root):
            raise InputError("is a link to outside of the dataset's folder; give the files of pairs", path=entry)
    named = [(file, "_data_files") for file in folder.rglob("state.json")]
    named += [(file, "splits") for file in folder.glob("dataset_dict.json")]
    paths: dict[Path, Any] = {file: json.loads(file.read_text("utf-8"))[key] for file, key in named}
    card = folder / "README.md"
    if card.is_file():
        paths[card] = DatasetCard.load(card).data.get("configs")
    for file, value in paths.items():
        for text in _texts(value):
            if "://" in text or "::" in text or Path(text).is_absolute() or ".." in Path(text).parts:
                raise InputError(
                    f"its {file.name} names files outside of the folder ({text[:60]!r}), which are not read; "
                    "give the files of pairs",
                    path=folder,
                )
    if (folder / ".huggingface.yaml").exists():
        raise InputError("its .huggingface.yaml is not read; give the files of pairs", path=folder)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _only_split(folder: Path, splits: Any, saved: bool) -> Any:
    first, *others = splits
    if others:
        remedy = f"its folder, as in {folder / first}" if saved else f"its files, as in '{folder / '**' / first}*'"
        raise InputError(f"holds the splits {', '.join(map(repr, splits))}; give one of them: {remedy}", path=folder)
    return splits[first]
