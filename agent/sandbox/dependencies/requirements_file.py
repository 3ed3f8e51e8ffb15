"""Reads a requirements file: the part of pip's format that names distributions of an index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from agent.errors import InputError, UsageError
from agent.sandbox.dependencies.contradictions import contradiction
from agent.sandbox.dependencies.requirements import MalformedRequirement, merged, parse_requirement

_COMMENT = re.compile(r"(^|\s+)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=|(?<=-r))(\S.*)")
_LONGEST = 1 << 20
_MOST_FILES = 100


def read_requirements(path: Path) -> tuple[str, ...]:
    """Return the requirements of a file and of those it includes, one for each distribution and marker, sorted.

    Raises:
        InputError: a file cannot be read, or a line is something else; names file and line.
        UsageError: two requirements contradict each other.
    """
    root = path.resolve().parent
    seen: dict[Path, None] = {}
    requirements = list(_read(path, root, seen))
    found = contradiction(requirements)
    if found is not None:
        raise UsageError(f"{path}: {found}")
    return merged(requirements)


def _read(path: Path, root: Path, seen: dict[Path, None]) -> Iterator[Requirement]:
    if path.resolve() in seen:
        return
    seen[path.resolve()] = None
    for number, line in _lines(path):
        include = _INCLUDE.fullmatch(line)
        if include is not None:
            yield from _read(_included(include[1].strip(), path, number, root, seen), root, seen)
            continue
        try:
            yield parse_requirement(line)
        except MalformedRequirement as error:
            raise InputError(str(error), path=path, line=number) from None


def _included(name: str, path: Path, number: int, root: Path, seen: dict[Path, None]) -> Path:
    other = path.parent / name
    if "://" in name or not other.resolve().is_relative_to(root):
        raise InputError(f"{name!r} lies outside the folder of the first file: it is not read", path=path, line=number)
    if not other.is_file():
        raise InputError(f"{name!r} is no file", path=path, line=number)
    if len(seen) >= _MOST_FILES:
        raise InputError(f"more than {_MOST_FILES} files are included", path=path, line=number)
    return other


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each logical line without its comment, and the number of its first line in the file."""
    first, held = 0, ""
    for number, line in enumerate(_text(path).splitlines(), 1):
        first = first or number
        comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not comment:
            held += line[:-1]
            continue
        # a comment line within a continued one ends it, as for pip
        whole = _COMMENT.sub("", held if comment else held + line).strip()
        if whole:
            yield first, whole
        first, held = 0, ""
    if held.strip():
        yield first, _COMMENT.sub("", held).strip()


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    if len(content) > _LONGEST:
        raise InputError(f"is larger than {_LONGEST >> 20} MB", path=path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 (byte {error.start})", path=path) from error
