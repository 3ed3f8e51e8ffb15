"""Kinds of arguments: what values a test gives for each, and by which names and annotations they are known."""

from __future__ import annotations

from agent.llm.heuristic.tables import by_word, load

_TABLE = load("kinds")

VALUES: dict[str, tuple[str, ...]] = {kind: tuple(values) for kind, values in _TABLE["values"].items()}
"""Source of the values to try for each kind, the best guess first."""

BY_ANNOTATION = by_word(_TABLE["annotations"])
"""Kinds by the last part of a type's name, in lower case; for annotations and types named in docstrings."""

BY_NAME = by_word(_TABLE["names"])
"""Kinds by the whole name of a parameter."""

BY_WORD = by_word(_TABLE["last_words"])
"""Kinds by the last telling word of a parameter's name."""

BY_ATTRIBUTE = by_word(_TABLE["attributes"])
"""Kinds by an attribute that the code takes of a parameter."""

BY_CALL = by_word(_TABLE["calls"])
"""Kinds by a call to which the code gives a parameter as the first argument."""

IN_QUERY = by_word(_TABLE["query"])
"""Kinds that a query's terms suggest for parameters about which nothing else is known."""
