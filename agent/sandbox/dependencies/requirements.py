"""Requirements as they may be asked for: a distribution's name, extras, version specifiers and marker; nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidName, canonicalize_name

from agent.errors import InputError
from agent.sandbox.dependencies.imports import PYTHON2_MODULES, is_stdlib

_LONGEST = 200
_COMMENT = re.compile(r"(^|\s+)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=|(?<=-r))(\S.*)")
_FILE_ENDINGS = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".egg", ".txt", ".toml", ".cfg", ".ini", ".lock")


class MalformedRequirement(ValueError):
    """A text is no requirement that may be installed; the message says why."""


def parse_requirement(text: str) -> Requirement:
    """Read a PEP 508 requirement that names a distribution of an index.

    Raises:
        MalformedRequirement: it is an option, URL, path or file name, does not parse, or is part of Python itself.
    """
    text = text.strip()
    shown = repr(text[:80])
    if not text or len(text) > _LONGEST or not (text.isascii() and text.isprintable()):
        raise MalformedRequirement(f"{shown} is no requirement: expected a name, such as 'six' or 'six>=1.16'")
    if text.startswith("-"):
        raise MalformedRequirement(f"{shown} is an option, not a requirement")
    if "://" in text or "@" in text or text[0] in "./~" or "/" in text or "\\" in text:
        raise MalformedRequirement(f"{shown} is a URL or a path: only distributions of the package index are installed")
    try:
        requirement = Requirement(text)
        # names may end in "_" for the parser, and then have no canonical spelling that it reads
        for name in (requirement.name, *requirement.extras):
            canonicalize_name(name, validate=True)
    except (InvalidRequirement, InvalidName):
        raise MalformedRequirement(
            f"{shown} is no requirement: expected a name, such as 'six' or 'six>=1.16'"
        ) from None
    if requirement.name.lower().endswith(_FILE_ENDINGS):
        raise MalformedRequirement(f"{shown} names a file: only distributions of the package index are installed")
    if any(specifier.operator == "===" for specifier in requirement.specifier):
        raise MalformedRequirement(f"{shown} uses '===': write '=='")
    _refuse_python_itself(requirement.name)
    return requirement


def canonical(requirement: Requirement) -> str:
    """Return one spelling for all equal requirements, without the marker: `name[extra]<2,>=1`."""
    extras = ",".join(sorted({canonicalize_name(extra) for extra in requirement.extras}))
    return f"{canonicalize_name(requirement.name)}{f'[{extras}]' if extras else ''}{requirement.specifier}"


def _refuse_python_itself(name: str) -> None:
    # Distributions of these names are backports that break a newer Python, or squatters.
    module = name.replace("-", "_")
    if module in PYTHON2_MODULES:
        raise MalformedRequirement(
            f"{name!r} is a module of Python 2, now {PYTHON2_MODULES[module]}: nothing to install"
        )
    if is_stdlib(module) or is_stdlib(module.lower()):
        raise MalformedRequirement(f"{name!r} is part of Python: nothing to install")


def read_requirements(path: Path) -> tuple[str, ...]:
    """Return the requirements of a file and of those it includes by `-r`, sorted; of pip's format nothing else is read.

    Raises:
        InputError: a file cannot be read, or a line is something else; names file and line.
    """
    return tuple(sorted(set(_read(path, {}))))


def _read(path: Path, seen: dict[Path, None]) -> Iterator[str]:
    if path.resolve() in seen:
        return
    seen[path.resolve()] = None
    for number, line in _lines(path):
        include = _INCLUDE.fullmatch(line)
        if include is not None:
            name = include[1].strip()
            if not (path.parent / name).is_file():
                raise InputError(f"{name!r} is no file", path=path, line=number)
            yield from _read(path.parent / name, seen)
            continue
        try:
            requirement = parse_requirement(line)
        except MalformedRequirement as error:
            raise InputError(str(error), path=path, line=number) from None
        yield canonical(requirement) + (f"; {requirement.marker}" if requirement.marker else "")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each logical line without its comment, and the number of its first line in the file."""
    first, held = 0, ""
    for number, line in enumerate([*_text(path).splitlines(), ""], 1):
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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 (byte {error.start})", path=path) from error
