"""The map of import names to distributions, read from `import_map.toml`."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from importlib.resources import files

_TABLES = tomllib.loads(files("agent.sandbox.dependencies").joinpath("import_map.toml").read_text(encoding="utf-8"))

DISTRIBUTIONS: Mapping[str, str] = _TABLES["distributions"]
"""Maps import names to requirements."""

WHEEL_SUBSTITUTES: Mapping[str, str] = _TABLES["wheel_substitutes"]
"""Maps distributions to substitutes that contain the same modules, have wheels, and need no display."""

PYTHON2_MODULES: Mapping[str, str] = _TABLES["python2_modules"]
"""Maps Python 2 modules to Python 3 modules with the same contents."""

REMOVED_FROM_STDLIB: frozenset[str] = frozenset(_TABLES["removed_from_stdlib"])
"""Modules that were part of the standard library in earlier versions of Python 3."""


def is_stdlib(name: str) -> bool:
    """Return whether a dotted name belongs to the standard library of any supported Python version."""
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top in REMOVED_FROM_STDLIB


def find_requirement(import_name: str) -> str | None:
    """Return the requirement that provides an import name, or None if the map does not contain the name.

    The name may be dotted. Names outside the map are not guessed, because a distribution with the same name may contain
    anything.
    """
    if is_stdlib(import_name) or import_name.partition(".")[0] in PYTHON2_MODULES:
        return None
    return DISTRIBUTIONS.get(find_known_name(import_name))


def find_known_name(import_name: str) -> str:
    """Return the longest prefix of a dotted name that the map contains, or the top-level name if there is none."""
    name = import_name
    while "." in name and name not in DISTRIBUTIONS:
        name = name.rpartition(".")[0]
    return name


def find_distribution(name: str) -> str:
    """Correct a distribution name that was passed to an installer.

    Some install commands use the import name (`pip install cv2`). On an index, this name may not exist, or may belong
    to a placeholder or an unrelated package. Other commands name a distribution that has no wheels (`psycopg2`). All
    other names are returned unchanged.
    """
    normalised = name.lower().replace("_", "-").replace(".", "-")
    return WHEEL_SUBSTITUTES.get(normalised) or _INSTALLER_NAMES.get(normalised) or name


# Requirements with an upper version limit apply only to imports. An install command may request a newer version.
_INSTALLER_NAMES = {
    name.lower().replace("_", "-"): distribution
    for name, distribution in DISTRIBUTIONS.items()
    if "." not in name and "<" not in distribution
}
