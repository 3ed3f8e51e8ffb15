"""Parser for requirements. Only a name, extras, version specifiers and a marker are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidName, canonicalize_name

from agent.errors import InputError
from agent.sandbox.dependencies.imports import PYTHON2_MODULES, is_stdlib

_MAX_LENGTH = 200
_COMMENT = re.compile(r"(^|\s+)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=|(?<=-r))(\S.*)")
_FILE_ENDINGS = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".egg", ".txt", ".toml", ".cfg", ".ini", ".lock")


class MalformedRequirement(ValueError):
    """The text is not an installable requirement. The message says why."""


def parse_requirement(text: str) -> Requirement:
    """Parse a PEP 508 requirement that names a distribution on an index.

    Raises:
        MalformedRequirement: the text is not a valid requirement, is a URL, path or file name, or names a module of
            Python itself.
    """
    text = text.strip()
    shown = repr(text[:80])
    malformed = MalformedRequirement(
        f"{shown} is not a requirement: expected a name, such as 'six' or 'six>=1.16', not an option, URL, path or file"
    )
    if len(text) > _MAX_LENGTH or not (text.isascii() and text.isprintable()):
        raise malformed
    try:
        requirement = Requirement(text)
        # the parser accepts names that end in "_", which are invalid
        for name in (requirement.name, *requirement.extras):
            canonicalize_name(name, validate=True)
    except (InvalidRequirement, InvalidName):
        raise malformed from None
    if requirement.url is not None or requirement.name.lower().endswith(_FILE_ENDINGS):
        raise malformed
    if any(specifier.operator == "===" for specifier in requirement.specifier):
        raise MalformedRequirement(f"{shown} uses '===': use '==' instead")
    _refuse_python_itself(requirement.name)
    return requirement


def normalise_requirement(requirement: Requirement) -> str:
    """Return the normalised form of a requirement without its marker, such as `name[extra]<2,>=1`."""
    extras = ",".join(sorted({canonicalize_name(extra) for extra in requirement.extras}))
    return f"{canonicalize_name(requirement.name)}{f'[{extras}]' if extras else ''}{requirement.specifier}"


def _refuse_python_itself(name: str) -> None:
    # on an index, these names belong to squatters, or to backports that break newer versions of Python
    module = name.replace("-", "_")
    if module in PYTHON2_MODULES:
        raise MalformedRequirement(
            f"{name!r} is a Python 2 module that Python 3 replaced with {PYTHON2_MODULES[module]}: there is nothing to "
            "install"
        )
    if is_stdlib(module) or is_stdlib(module.lower()):
        raise MalformedRequirement(f"{name!r} is part of Python's standard library: there is nothing to install")


def read_requirements(path: Path) -> tuple[str, ...]:
    """Read a requirements file and the files that it includes with `-r`. Return the requirements, sorted.

    Raises:
        InputError: a file cannot be read, or a line is not a requirement. The message names the file and the line.
    """
    return tuple(sorted(set(_iterate_requirements(path, set()))))


def _iterate_requirements(path: Path, visited: set[Path]) -> Iterator[str]:
    if path.resolve() in visited:
        return
    visited.add(path.resolve())
    for number, line in _iterate_lines(path):
        if include := _INCLUDE.fullmatch(line):
            name = include[1].strip()
            if not (path.parent / name).is_file():
                raise InputError(f"{name!r} is not a file", path=path, line=number)
            yield from _iterate_requirements(path.parent / name, visited)
            continue
        try:
            requirement = parse_requirement(line)
        except MalformedRequirement as error:
            raise InputError(str(error), path=path, line=number) from None
        yield normalise_requirement(requirement) + (f"; {requirement.marker}" if requirement.marker else "")


def _iterate_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield `(number, line)` for each logical line, without comments. `number` is where the logical line starts."""
    first, logical_line = 1, ""
    for number, line in enumerate([*read_text(path).splitlines(), ""], 1):
        logical_line += _COMMENT.sub("", line)
        if logical_line.endswith("\\"):
            logical_line = logical_line[:-1]
            continue
        if logical_line.strip():
            yield first, logical_line.strip()
        first, logical_line = number + 1, ""


def read_text(path: Path) -> str:
    """Read a UTF-8 text file.

    Raises:
        InputError: the file cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 (byte {error.start})", path=path) from error
