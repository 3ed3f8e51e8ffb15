"""The languages that are built in."""

from __future__ import annotations

from agent.languages.base import Language
from agent.languages.python.language import PythonLanguage
from agent.languages.sql.language import SqlLanguage


def built_in_languages() -> dict[str, Language]:
    """Return a new dictionary of the built-in languages, keyed by name."""
    return {language.name: language for language in (PythonLanguage(), SqlLanguage())}
