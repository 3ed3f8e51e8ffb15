"""Programming languages that the pipeline supports, behind one interface."""

from __future__ import annotations

from agent.languages.base import Language, MalformedProgram, Mutation, Program, Snippet
from agent.languages.canonical import canonicalise
from agent.languages.python import PythonLanguage

__all__ = [
    "Language",
    "MalformedProgram",
    "Mutation",
    "Program",
    "PythonLanguage",
    "Snippet",
    "built_in_languages",
    "canonicalise",
]


def built_in_languages() -> dict[str, Language]:
    """Return a new dictionary of the built-in languages, keyed by name."""
    return {language.name: language for language in (PythonLanguage(),)}
