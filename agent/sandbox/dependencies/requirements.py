"""Requirements as they may be asked for: a distribution's name, extras and version specifiers; nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidName, canonicalize_name

from agent.sandbox.dependencies.imports import PYTHON2_MODULES, is_stdlib

_LONGEST = 200
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


def merged(requirements: Iterable[Requirement]) -> tuple[str, ...]:
    """Return one requirement for each distribution and marker, which asks for all that they ask for; sorted."""
    extras: dict[tuple[str, str], set[str]] = {}
    specifiers: dict[tuple[str, str], SpecifierSet] = {}
    for one in requirements:
        key = canonicalize_name(one.name), "" if one.marker is None else str(one.marker)
        extras.setdefault(key, set()).update(one.extras)
        specifiers[key] = specifiers.get(key, SpecifierSet()) & SpecifierSet(str(one.specifier))
    together = []
    for (name, marker), wanted in extras.items():
        whole = Requirement(name)
        whole.extras, whole.specifier = wanted, specifiers[name, marker]
        together.append(canonical(whole) + (f"; {marker}" if marker else ""))
    return tuple(sorted(together))


def _refuse_python_itself(name: str) -> None:
    # Distributions of these names are backports that break a newer Python, or squatters.
    module = name.replace("-", "_")
    if module in PYTHON2_MODULES:
        raise MalformedRequirement(
            f"{name!r} is a module of Python 2, now {PYTHON2_MODULES[module]}: nothing to install"
        )
    if is_stdlib(module) or is_stdlib(module.lower()):
        raise MalformedRequirement(f"{name!r} is part of Python: nothing to install")
