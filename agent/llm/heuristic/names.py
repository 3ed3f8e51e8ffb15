"""Names that snippets use without bringing them, and where each comes from."""

from __future__ import annotations

from agent.llm.heuristic.tables import by_word, load

_TABLE = load("names")

MODULES: dict[str, str] = _TABLE["modules"]
"""Module that an alias means; used where attributes of the name are read."""

THIRD_PARTY = frozenset(_TABLE["third_party"].split())
"""Modules from outside the standard library that go by their own name."""

CLASS_ATTRIBUTES: dict[str, frozenset[str]] = {
    name: frozenset(attributes.split()) for name, attributes in _TABLE["class_attributes"].items()
}
"""Attributes that show a name to be the class of the module of the same name, rather than the module."""

MEMBERS = by_word(_TABLE["members"])
"""Module that a name is imported from; used where the name itself is called or read."""

OLD_NAMES: dict[str, str] = _TABLE["old_names"]
"""Line that provides a name of Python 2, of its bridges, or of a module's usual preamble."""

OLD_MODULES: dict[str, str] = _TABLE["old_modules"]
"""Module of Python 3 for a module of Python 2 that a snippet imports."""

MOVED: dict[str, dict[str, str]] = _TABLE["moved"]
"""Names that modules lost in newer versions, and source of what they were, by module."""

SUBMODULES: dict[str, frozenset[str]] = {
    module: frozenset(names.split()) for module, names in _TABLE["submodules"].items()
}
"""Submodules that must be imported for a module to have them."""

DISTRIBUTIONS: dict[str, str] = _TABLE["distributions"]
"""Distribution of an import name, for those that are beyond doubt."""
