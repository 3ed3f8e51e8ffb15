"""Find pairs files by name or pattern, and choose the reader for each format."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

from agent.datasets.arrow import is_dataset, read_folder, read_parquet
from agent.datasets.sources import STDIN, BadLine, SourceRow, open_source, translate_os_errors
from agent.datasets.text_files import read_json_array, read_json_lines, read_table
from agent.errors import InputError

Reader = Callable[[IO[bytes], Path], Iterator[SourceRow | BadLine]]

_READERS: Mapping[str, Reader] = {
    ".jsonl": read_json_lines,
    ".json": read_json_array,
    ".csv": read_table,
    ".tsv": partial(read_table, delimiter="\t"),
    ".parquet": read_parquet,
}


def expand_patterns(names: Iterable[str | Path]) -> list[Path]:
    """Replace each pattern (`*`, `?`, `[`, `**`) with the files that match it, sorted by name.

    The order of the arguments is preserved.

    Raises:
        InputError: no file matches a pattern, or a file occurs twice.
    """
    files: list[Path] = []
    for name in names:
        path = Path(name)
        if path == STDIN or not glob.has_magic(str(name)) or path.exists():
            files.append(path)
            continue
        matches = sorted(map(Path, glob.glob(str(name), recursive=True)))  # noqa: PTH207 - patterns may be absolute
        if not matches:
            raise InputError("no file matches this pattern", path=path)
        files += matches
    counts = Counter(file.absolute() for file in files)
    for file in files:
        if counts[file.absolute()] > 1:
            raise InputError("appears twice. Pass each file once", path=file)
    return files


def read_records(path: Path, *, regular: bool = False) -> Iterator[SourceRow | BadLine]:
    """Iterate over the records of a file or a dataset folder. Yields a `BadLine` for each line that is not a record.

    If `regular` is set, only regular files are accepted, because reading a pipe could block.

    Raises:
        InputError: the file cannot be read at all.
        ExtraMissing: the libraries for the file's format are not installed.
    """
    if "\0" in str(path):
        raise InputError("a path cannot contain NUL", path=repr(str(path)))
    with translate_os_errors(path):
        folder = not regular and is_dataset(path)
    if folder:
        yield from read_folder(path)
        return
    with open_source(path, regular=regular) as file:
        yield from _choose_reader(path)(file, path)


def strip_suffixes(path: Path) -> str:
    """Return a file's name without its format suffixes."""
    if path == STDIN:
        return "stdin"
    name = path.name or path.absolute().name
    name = name[:-3] if name.lower().endswith(".gz") else name
    return next((name[: -len(suffix)] for suffix in _READERS if name.lower().endswith(suffix)), name)


def _choose_reader(path: Path) -> Reader:
    if path == STDIN:
        return read_json_lines
    name = path.name.lower().removesuffix(".gz")
    for suffix, reader in _READERS.items():
        if name.endswith(suffix):
            return reader
    raise InputError(
        f"unknown format. Supported: {', '.join(_READERS)}, each optionally with .gz, and JSON lines on standard "
        "input (-)",
        path=path,
    )
