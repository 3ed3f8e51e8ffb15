"""Programming languages: what the pipeline knows of each, behind one protocol."""

from __future__ import annotations

from agent.languages.base import Language, MalformedProgram, Mutation, Program, Snippet
from agent.languages.canonical import canonical
from agent.languages.python import PythonLanguage

__all__ = [
    "Language",
    "MalformedProgram",
    "Mutation",
    "Program",
    "PythonLanguage",
    "Snippet",
    "built_in_languages",
    "canonical",
]


def built_in_languages() -> dict[str, Language]:
    """Return the languages that need no plug-in, by name; the dictionary is the caller's own."""
    return {language.name: language for language in (PythonLanguage(),)}
