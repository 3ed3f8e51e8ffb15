"""Finds source files, and reads the rows of datasets and the Python cells of Jupyter notebooks."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import filter as filter_names
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from agent.corpus.provenance import Origin, Origins
from agent.datasets.arrow import is_dataset
from agent.datasets.benchmarks.building import BenchmarkRow
from agent.datasets.fields import CODES, Names, find_field
from agent.datasets.formats import expand_patterns, read_records
from agent.datasets.sources import BadLine, translate_os_errors
from agent.errors import InputError
from agent.languages.base import Language
from agent.languages.python.source import Unparsable, normalise, parse
from agent.languages.registry import Languages
from agent.types import normalise_language

NOTEBOOK = ".ipynb"
TESTS = dict.fromkeys(
    ("test", "tests", "__tests__", "test_*.py", "*_test.py", "conftest.py", "*.test.[cjmt]*", "*.spec.[cjmt]*"), "test"
)
"""Patterns of the names of files and folders with tests, with the reason for leaving them out."""
SKIPPED = {"node_modules": "package", "bower_components": "package", "*.min.[cm]js": "minified", "*.min.js": "minified"}
"""Patterns of the names of files and folders that contain no source code, with the reason for leaving them out."""
MAX_CODE_SIZE = 1_000_000
"""Maximum size of a source file in bytes, and of a cell or a row's code in characters."""


@dataclass(frozen=True)
class SourceFile:
    """A source file, a notebook, a dataset file or a dataset folder. `name` is its path in the output."""

    path: Path
    name: str
    size: int
    origin: Origin


@dataclass(frozen=True)
class Found:
    """A function with the fields of its record, or (if `code` is None) a file, cell or row that cannot be used.

    `place` describes where it was found. `removed_by` is the reason if it is removed.
    """

    place: Mapping[str, Any]
    fields: Mapping[str, Any]
    code: str | None = None
    removed_by: str | None = None


@cache
def find_languages() -> Mapping[str, Language]:
    """Return the languages whose functions can be extracted, keyed by name."""
    languages = Languages().items()
    return {name: language for name, language in languages if type(language).outline is not Language.outline}


def find_file_language(path: Path) -> str | None:
    """Return the name of the language of a source file or notebook, or None for other files."""
    suffix = path.suffix.lower()
    names = (name for name, language in find_languages().items() if suffix in language.suffixes)
    return "python" if suffix == NOTEBOOK else next(names, None)


def mark_damaged(reason: str, **place: Any) -> Found:
    """Return an item that cannot be used. `place` contains its path, the cause and, if known, the line."""
    return Found(place, {}, None, reason)


def list_sources(
    names: Iterable[str], excluded: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[SourceFile | Found], Counter[str]]:
    """List named files, files that match a pattern, and the source files and notebooks in named folders, each once.

    Files in a folder precede its subfolders. Both are sorted. Hidden entries, `__pycache__` and links are skipped. A
    folder without such files may be a dataset folder. The name of a file in a folder is its path in that folder. The
    name of a named file is the path as given, or its last part if the path is absolute or contains `..`.

    `excluded` maps patterns to reasons. A file in a folder is left out if a pattern matches its name or a part of it.
    Also returns the number of these files by reason.

    Raises:
        InputError: a path does not exist, or no file matches a pattern.
    """
    origins = Origins()
    sources = dict[Path, SourceFile | Found]()
    left_out = Counter[str]()
    for path in expand_patterns(names):
        with translate_os_errors(path):
            path.stat()
        real = path.resolve()
        listed = dict(_walk(real, origins)) if path.is_dir() else {}
        if not path.is_dir() or (not listed and is_dataset(path)):
            name = path.name if path.is_absolute() or ".." in path.parts else str(path)
            listed[real] = SourceFile(real, name, 0, origins.find(real))
        elif reasons := {file: _find_exclusion(file.relative_to(real), excluded) for file in listed}:
            left_out.update(reason for file, reason in reasons.items() if reason and file not in sources)
            listed = {file: source for file, source in listed.items() if not reasons[file]}
        sources |= {file: source for file, source in listed.items() if file not in sources}
    return list(sources.values()), left_out


def _find_exclusion(path: Path, excluded: Mapping[str, str]) -> str | None:
    texts = str(path), *path.parts
    return next((reason for pattern, reason in excluded.items() if filter_names(texts, pattern)), None)


def _walk(root: Path, origins: Origins) -> Iterator[tuple[Path, SourceFile | Found]]:
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            visible = [entry for entry in entries if not entry.name.startswith(".") and not entry.is_symlink()]
            files = {Path(entry.path): entry.stat().st_size for entry in visible if entry.is_file()}
        except OSError as error:
            name = str(folder.relative_to(root))
            yield folder, mark_damaged("folder cannot be read", path=name, cause=error.strerror)
            continue
        for path, size in files.items():
            if find_file_language(path):
                yield path, SourceFile(path, str(path.relative_to(root)), size, origins.find(path, root))
        folders = [entry.path for entry in visible if entry.is_dir() and entry.name != "__pycache__"]
        pending += map(Path, reversed(folders))


_CODE_URL = re.compile(  # of CodeSearchNet
    r"https://github\.com/(?P<repository>[^/]+/[^/]+)/blob/(?P<commit>[0-9a-f]{40})/(?P<path>[^?#]+)"
    r"(?:#L(?P<first>[0-9]{1,9})-L(?P<last>[0-9]{1,9}))?"
)


def iterate_rows(source: SourceFile, names: Names = CODES, language: str = "python") -> Iterator[Found]:
    """Iterate over the rows of a dataset. A row's code is unchanged, and its other fields are optional.

    `names` has the names of the fields. `language` is the language of rows that do not name one.

    Raises:
        ExtraMissing: the libraries for the file's format are not installed.
    """
    try:
        for record in read_records(source.path, regular=not source.path.is_dir()):
            place = {"path": source.name, "line": record.line}
            try:
                if isinstance(record, BadLine):
                    raise InputError(record.cause)
                code, fields = _read_row(BenchmarkRow(record.value, source.path, record.line), names, language)
            except InputError as error:
                yield mark_damaged("row is not valid", **place, cause=error.cause)
            else:
                yield Found(place, fields, code)
    except InputError as error:
        yield mark_damaged("file cannot be read", path=source.name, line=error.line, cause=error.cause)


def _read_row(row: BenchmarkRow, fields: Names, language: str) -> tuple[str, dict[str, Any]]:
    def get_text(*names: str) -> str | None:
        return next((value for name in names if isinstance(value := row.fields.get(name), str) and value.strip()), None)

    if not isinstance(row.fields, dict):
        raise row.build_error("expected an object with a 'code' field")
    code = row.get_text(*fields["code"])
    if len(code) > MAX_CODE_SIZE:
        raise row.build_error(f"the code has {len(code):,} characters; the limit is {MAX_CODE_SIZE:,}")
    url = _CODE_URL.fullmatch(get_text("func_code_url", "url") or "")
    place = url.groupdict() if url else {}
    lines = row.fields.get("lines") or [int(place[name]) for name in ("first", "last") if place.get(name)]
    class_name, _, name = (get_text("func_name", "name") or "").rpartition(".")
    return code, {
        "id": row.get_id(*fields["id"]) if find_field(row.fields, fields["id"]) else None,
        "language": normalise_language(get_text(*fields["language"]) or language),
        "name": name or None,
        "class": get_text("class") or class_name or None,
        "docstring": get_text("docstring"),
        "path": get_text("path", "func_path_in_repository") or (unquote(place["path"]) if place else None),
        "module": get_text("module"),
        "lines": lines if isinstance(lines, list) and list(map(type, lines)) == [int, int] else None,
        "repository": get_text("repository", "repo", "nwo", "repository_name") or place.get("repository"),
        "commit": get_text("commit", "sha") or place.get("commit"),
        "licence": get_text("licence", "license"),
    }


_OTHER_LANGUAGE = re.compile(r"\s*%%(?!(capture|prun|time|timeit)\b)")
# A magic or a shell command, which may continue on further lines, or a request for help, such as `x?` or `??x.y`.
_MAGIC = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?P<target>\w+[ \t]*=[ \t]*)?[%!](?:.*\\\n)*.*"
    r"|(?:\?{1,2}[ \t]*%{0,2}[\w.*]+|%{0,2}[\w.*\[\]]+\?{1,2})[ \t]*(?:\#.*)?$)",
    re.MULTILINE,
)


def read_cells(data: bytes) -> Sequence[tuple[int | None, str]]:
    """Return the numbers and sources of a notebook's code cells, except cells in other languages, such as `%%bash`.

    All cells count, from 1. A cell without a source is empty. If a cell is not valid Python, magics, shell commands and
    requests for help are removed.

    Raises:
        ValueError: the file is not a notebook, or its language is not Python.
    """
    try:
        # outputs may contain NaN and control characters
        notebook = json.loads(data.decode("utf-8-sig"), strict=False)
        metadata = notebook.get("metadata") or {}
        language = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language")
        # until version 3 of the format, cells are in worksheets
        cells = [cell for sheet in notebook.get("worksheets") or [notebook] for cell in sheet["cells"]]
        sources = [_read_source(cell) for cell in cells]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not a valid notebook ({str(error)[:100]})") from None
    except (LookupError, TypeError, AttributeError):
        raise ValueError("it is not a valid notebook (a part is missing or malformed)") from None
    if "python" not in str(language or "python").lower():
        raise ValueError(f"it is a notebook in the language {str(language)[:40]}")
    numbered = enumerate(sources, start=1)
    return [(number, _remove_magics(source)) for number, source in numbered if not _OTHER_LANGUAGE.match(source)]


def _read_source(cell: Mapping[str, Any]) -> str:
    """Return the source of a code cell (called `input` until version 3 of the format). Other cells are empty."""
    source = cell.get("source", cell.get("input")) if cell.get("cell_type") == "code" else None
    return normalise("".join(source or ""))  # a list of lines, or one text


def _remove_magics(source: str) -> str:
    def replace(match: re.Match[str]) -> str:
        text = f"{match['indent']}{match['target']}None" if match["target"] else f"{match['indent']}pass"
        return text + "\n" * match[0].count("\n")

    replaced = _MAGIC.sub(replace, source)
    # an indented magic may be the only line of its block, or have an indentation that Python does not allow
    for text in (source, replaced, _MAGIC.sub(lambda match: "\n" * match[0].count("\n"), source)):
        with suppress(Unparsable):  # valid cells may have such lines in strings
            parse(text, len(text))
            return text
    return replaced
