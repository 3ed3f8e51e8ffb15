"""Finds languages by name: the user's, the built-in ones and those of installed packages.

A package provides languages with entry points of the group `agent.languages`. An entry point maps a language's name to
a `Language` class, or to a function that returns a `Language` object. Modules are imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from agent.errors import ConfigError, ExtraMissing, UnsupportedLanguage
from agent.languages.base import Language
from agent.languages.javascript.language import JavaScriptLanguage, TypeScriptLanguage
from agent.languages.python.language import PythonLanguage
from agent.languages.sql.language import SqlLanguage


def built_in_languages() -> dict[str, Language]:
    """Return a new dictionary of the built-in languages, keyed by name."""
    languages = PythonLanguage(), JavaScriptLanguage(), TypeScriptLanguage(), SqlLanguage()
    return {language.name: language for language in languages}
