"""Reads `import_map.toml`: what real code-search data imports, and who provides it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
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
