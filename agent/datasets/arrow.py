"""Read Parquet files (with pyarrow) and Hugging Face dataset folders (with `datasets`). Requires the `io` extra."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, time
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from agent.datasets.sources import LONGEST_LINE, BadLine, SourceRow
from agent.errors import InputError, needs_extra

_BATCH = 1000  # maximum number of rows converted to Python objects at a time
_OBJECT_SIZE, _MAX_ROW_SIZE = 50, 2 * LONGEST_LINE
_MAX_SIZE, _MAX_RATIO = 256 << 20, 50  # limits of a group of rows, in bytes and times its compressed size
_BAD_VALUES = (ValueError, KeyError, TypeError, OverflowError, NotImplementedError)
_SAVED = ("dataset_dict.json", "state.json")
_MARKS = (*_SAVED, "dataset_info.json", "dataset_infos.json", "README.md", "data")


def read_parquet(file: IO[bytes], path: Path) -> Iterator[SourceRow | BadLine]:
    """Iterate over the rows of a Parquet file, converted to JSON objects with `as_json_type`.

    Raises:
        InputError: the file is not Parquet, is damaged, or has two columns with the same name.
        ExtraMissing: pyarrow is not installed.
    """
    with needs_extra("io"):
        import pyarrow
        import pyarrow.parquet
    try:
        with TemporaryFile() as unpacked:
            if not file.seekable() or path.suffix.lower() == ".gz":
                shutil.copyfileobj(file, unpacked)  # Parquet readers seek to the end of the file first
                file = unpacked
            dictionaries = _find_dictionaries(pyarrow.parquet.read_metadata(file), path)
            table = pyarrow.parquet.ParquetFile(file, read_dictionary=dictionaries)
            names = table.schema_arrow.names
            if duplicate := next((name for name in names if names.count(name) > 1), None):
                raise InputError(f"has two columns named {duplicate!r}. Rename one", path=path)
            yield from convert_batches(_check_rows(batch, path) for batch in table.iter_batches(_BATCH))
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"cannot be read as Parquet ({error})", path=path) from None


def _find_dictionaries(metadata: Any, path: Path) -> list[str]:
    """Return the columns of texts. Read as dictionaries, equal texts need memory only once.

    Raises:
        InputError: the file is small, but needs too much memory.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(position) for position in range(group.num_columns)]
        size = sum(column.total_uncompressed_size + 8 * column.num_values for column in columns)
        if size > max(_MAX_SIZE, _MAX_RATIO * sum(column.total_compressed_size for column in columns)):
            raise InputError(f"expands to more than {_MAX_SIZE >> 20} MB, {_MAX_RATIO} times its size", path=path)
    columns = [metadata.schema.column(position) for position in range(metadata.num_columns)]
    texts = [column.path for column in columns if column.logical_type.type == "STRING"]
    return [path for path in texts if ".key_value." not in path]  # Arrow cannot flatten maps of dictionaries


def _check_rows(batch: Any, path: Path) -> Any:
    """Return the batch.

    Raises:
        InputError: a row needs too much memory.
    """
    rows = batch.to_struct_array()
    if _measure(rows) > _MAX_ROW_SIZE and any(_measure(rows[n : n + 1]) > _MAX_ROW_SIZE for n in range(len(rows))):
        raise InputError(f"a row is larger than {_MAX_ROW_SIZE >> 20} MB", path=path)
    return batch


def _measure(array: Any) -> int:
    """Return the approximate size of an Arrow array as Python objects, in bytes."""
    import pyarrow
    import pyarrow.compute

    size = _OBJECT_SIZE * len(array)
    if pyarrow.types.is_dictionary(array.type):
        lengths = pyarrow.compute.binary_length(array.dictionary)
        return size + (pyarrow.compute.sum(lengths.take(array.indices)).as_py() or 0)
    if pyarrow.types.is_struct(array.type):
        return size + sum(map(_measure, array.flatten()))
    if pyarrow.types.is_nested(array.type) and not pyarrow.types.is_map(array.type):
        return size + _measure(array.flatten())
    return size + int(array.nbytes)


def convert_batches(batches: Any) -> Iterator[SourceRow | BadLine]:
    """Iterate over the rows of Arrow tables or batches, converted to JSON objects.

    The codes of class labels become their names, because the same code means different things in different files.
    """
    numbers = count(1)
    for batch in batches:
        features = _read_features((batch.schema.metadata or {}).get(b"huggingface", b"{}"))
        for cells in zip(*batch.columns, strict=True):
            number, value, name = next(numbers), dict[str, Any](), ""
            prefix = f"row {number}: "
            try:
                for name, cell in zip(batch.column_names, cells, strict=True):
                    value[name] = _decode_labels(as_json_type(_read_cell(cell)), features.get(name))
            except _BAD_VALUES as error:
                yield BadLine(number, f"column {name!r}: {error}", prefix=prefix)
            else:
                yield SourceRow(number, number, value, prefix)


def _read_features(metadata: bytes) -> Mapping[str, Any]:
    """Return the features that the library `datasets` stored in a schema, by column."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        return {**json.loads(metadata)["info"]["features"]}
    return {}


def _read_cell(cell: Any) -> Any:
    """Return the value of a cell. A time that Python cannot represent, such as the year 10000, becomes text."""
    try:
        return cell.as_py()
    except _BAD_VALUES:
        if not hasattr(cell, "value"):
            raise
        return f"<{cell.type}: {cell.value}>"


def _decode_labels(value: Any, feature: Any) -> Any:
    """Replace the code of a class label, or a list of codes, with names. Code -1 means no label.

    Raises:
        ValueError: a code has no name.
    """
    if isinstance(feature, list) and feature:  # how earlier versions of `datasets` write lists
        feature = {"feature": feature[0]}
    feature = feature if isinstance(feature, dict) else {}
    if isinstance(value, list):
        return [_decode_labels(item, feature.get("feature")) for item in value]
    if not isinstance(value, int) or feature.get("_type") != "ClassLabel":
        return value
    if not -1 <= value < len(feature["names"]):
        raise ValueError(f"the class label {value} has no name")
    return None if value == -1 else str(feature["names"][value])


def as_json_type(value: Any) -> Any:
    """Convert an Arrow value to a JSON type.

    NaN and infinity become null, dates and times become ISO 8601 text, and bytes are decoded as UTF-8. Other types,
    such as decimals and durations, are converted with `str`.

    Raises:
        ValueError: the bytes are not UTF-8.
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
    """Return whether a folder looks like a dataset saved with `save_to_disk` or downloaded from the Hub."""
    return folder.is_dir() and (any((folder / mark).exists() for mark in _MARKS) or any(folder.glob("*.parquet")))


def read_folder(folder: Path) -> Iterator[SourceRow | BadLine]:
    """Iterate over the rows of a dataset folder, converted to JSON objects with `as_json_type`.

    Raises:
        InputError: the folder does not contain a dataset, the dataset is damaged, or it has several splits.
        ExtraMissing: `datasets` is not installed.
    """
    with needs_extra("io"):
        import datasets
        import pyarrow.parquet
        import yaml
    saved_to_disk = any((folder / mark).exists() for mark in _SAVED)
    try:
        with TemporaryDirectory() as scratch:  # keeps the user's cache clean; streaming copies no data
            read = partial(datasets.load_dataset, streaming=True, cache_dir=scratch)
            _check_paths(folder)
            for path in folder.rglob("*.parquet"):
                _find_dictionaries(pyarrow.parquet.read_metadata(path), path)
            rows = (datasets.load_from_disk if saved_to_disk else read)(str(folder))
            if isinstance(rows, dict):
                rows = _get_only_split(folder, rows, saved_to_disk=saved_to_disk)
            yield from convert_batches(rows.with_format("arrow").iter(_BATCH))
    except (datasets.exceptions.DatasetsError, yaml.YAMLError, OSError, *_BAD_VALUES) as error:
        cause = str(error).partition("\n")[0]
        raise InputError(
            f"cannot be read as a Hugging Face dataset ({cause}). Pass its data files instead", path=folder
        ) from error


def _check_paths(folder: Path) -> None:
    """Check that an untrusted dataset does not refer to files outside its folder.

    Raises:
        InputError: a link, or a path in a file, points outside the folder.
    """
    from huggingface_hub import DatasetCard

    root = os.path.realpath(folder)
    for entry in folder.rglob("*"):
        if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(root):
            raise InputError(
                "is a link to a file outside the dataset folder. Pass the files that contain the pairs instead",
                path=entry,
            )
    keys = [(file, "_data_files") for file in folder.rglob("state.json")]
    keys += [(file, "splits") for file in folder.glob("dataset_dict.json")]
    paths: dict[Path, Any] = {file: json.loads(file.read_text("utf-8"))[key] for file, key in keys}
    card = folder / "README.md"
    if card.is_file():
        paths[card] = DatasetCard.load(card).data.get("configs")
    for file, value in paths.items():
        for text in _iterate_strings(value):
            if "://" in text or "::" in text or Path(text).is_absolute() or ".." in Path(text).parts:
                raise InputError(
                    f"{file.name} refers to files outside the folder ({text[:60]!r}). "
                    "Pass the files that contain the pairs instead",
                    path=folder,
                )
    if (folder / ".huggingface.yaml").exists():
        raise InputError(
            "contains .huggingface.yaml, which is not supported. Pass the files that contain the pairs instead",
            path=folder,
        )


def _iterate_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _iterate_strings(inner)


def _get_only_split(folder: Path, splits: Any, *, saved_to_disk: bool) -> Any:
    first, *others = splits
    if others:
        remedy = f"folder, such as {folder / first}" if saved_to_disk else f"files, such as '{folder / '**' / first}*'"
        splits = ", ".join(map(repr, splits))
        raise InputError(f"contains the splits {splits}. Choose one and pass its {remedy}", path=folder)
    return splits[first]
