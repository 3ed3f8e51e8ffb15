"""Which distribution provides an import name, and which names no distribution provides, by `import_map.toml`."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files

_TABLES = tomllib.loads(files("agent.sandbox.dependencies").joinpath("import_map.toml").read_text(encoding="utf-8"))

DISTRIBUTIONS: Mapping[str, str] = _TABLES["distributions"]
"""Import name -> requirement."""

WHEEL_SUBSTITUTES: Mapping[str, str] = _TABLES["wheel_substitutes"]
"""Distribution -> the one that gives the same modules and has wheels that work without a display."""

PYTHON2_MODULES: Mapping[str, str] = _TABLES["python2_modules"]
"""Modules that only Python 2 had -> where what they held is now."""

REMOVED_FROM_STDLIB: frozenset[str] = frozenset(_TABLES["removed_from_stdlib"])
"""Modules that an earlier Python 3 has in its standard library and a later one has not."""

Resolver = Callable[[str], str | None]
"""Returns the requirement that provides an import name, or None when it knows none; `find_requirement` is one."""


def is_stdlib(name: str) -> bool:
    """Say whether the top-level module of a dotted name belongs to the standard library of a supported Python."""
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top in REMOVED_FROM_STDLIB


def find_requirement(import_name: str) -> str | None:
    """Return the requirement that provides an import name (dotted or not), or None when it is not in the map.

    A name outside the map is unknown rather than guessed: a distribution of the same name may be anything.
    """
    if is_stdlib(import_name) or import_name.partition(".")[0] in PYTHON2_MODULES:
        return None
    name = import_name
    while name:
        if name in DISTRIBUTIONS:
            return DISTRIBUTIONS[name]
        name = name.rpartition(".")[0]
    return None


def find_distribution(name: str) -> str:
    """Return the distribution that is meant by a name given to an installer.

    People write the import name (`pip install cv2`), under which an index holds nothing, a dummy or a stranger's
    package; others name the variant that has no wheels (`psycopg2`). Any other name is returned as it is.
    """
    normalised = name.lower().replace("_", "-").replace(".", "-")
    return WHEEL_SUBSTITUTES.get(normalised) or _INSTALLER_NAMES.get(normalised) or name


# A value with a version is what an import needs; a person who names a distribution may want another version of it.
_INSTALLER_NAMES = {
    name.lower().replace("_", "-"): distribution
    for name, distribution in DISTRIBUTIONS.items()
    if "." not in name and "<" not in distribution
}
