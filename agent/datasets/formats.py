"""Which files hold pairs: the command line's names and patterns, and the reader of each format."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

from agent.datasets.arrow import folder_rows, is_dataset, parquet_rows
from agent.datasets.sources import STDIN, BadLine, SourceRow, in_words, opened
from agent.datasets.text_files import json_array, json_lines, table_rows
from agent.errors import InputError

Reader = Callable[[IO[bytes], Path], Iterator[SourceRow | BadLine]]

_READERS: Mapping[str, Reader] = {
    ".jsonl": json_lines,
    ".json": json_array,
    ".csv": table_rows,
    ".tsv": partial(table_rows, delimiter="\t"),
    ".parquet": parquet_rows,
}


def files_of(names: Iterable[str | Path]) -> list[Path]:
    """Return the files that are named, in their order; those of a pattern (`*`, `?`, `[`, `**`) in that of their names.

    Raises:
        InputError: a pattern that no file matches, or a file that is named twice.
    """
    files: list[Path] = []
    for name in names:
        path = Path(name)
        if path == STDIN or not glob.has_magic(str(name)) or path.exists():
            files.append(path)
            continue
        matches = sorted(map(Path, glob.glob(str(name), recursive=True)))  # noqa: PTH207 - patterns may be absolute
        if not matches:
            raise InputError("no file has a name of this pattern", path=path)
        files += matches
    counts = Counter(file.absolute() for file in files)
    for file in files:
        if counts[file.absolute()] > 1:
            raise InputError("is given twice; name each file once", path=file)
    return files


def records(path: Path, *, regular: bool = False) -> Iterator[SourceRow | BadLine]:
    """Yield the records of a file or a dataset's folder in order; what is no record as a `BadLine`.

    With `regular`, what is no ordinary file is refused rather than waited for.

    Raises:
        InputError: the file as a whole cannot be read.
        ExtraMissing: the libraries for its format are not installed.
    """
    if "\0" in str(path):
        raise InputError("a path cannot hold NUL", path=repr(str(path)))
    with in_words(path):
        folder = not regular and is_dataset(path)
    if folder:
        yield from folder_rows(path)
        return
    with opened(path, regular=regular) as file:
        yield from _reader(path)(file, path)


def stem(path: Path) -> str:
    """Return the name of a file without what says its format."""
    if path == STDIN:
        return "stdin"
    name = path.name or path.absolute().name
    name = name[:-3] if name.lower().endswith(".gz") else name
    return next((name[: -len(suffix)] for suffix in _READERS if name.lower().endswith(suffix)), name)


def _reader(path: Path) -> Reader:
    if path == STDIN:
        return json_lines
    name = path.name.lower().removesuffix(".gz")
    for suffix, reader in _READERS.items():
        if name.endswith(suffix):
            return reader
    raise InputError(
        f"the name ends in none of {', '.join(_READERS)}, also with .gz; or give JSON lines on standard input (-)",
        path=path,
    )
