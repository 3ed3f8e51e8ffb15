"""Programming languages: what the pipeline knows of each, behind one protocol."""

from __future__ import annotations

from agent.errors import UnsupportedLanguage
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
    "get",
]


def built_in_languages() -> dict[str, Language]:
    """Return the languages that need no plug-in, by name; the dictionary is the caller's own."""
    return {language.name: language for language in (PythonLanguage(),)}


def get(name: str) -> Language:
    """Return the built-in language of this name.

    Raises:
        UnsupportedLanguage: there is none.
    """
    languages = built_in_languages()
    if name not in languages:
        raise UnsupportedLanguage(f"no support for language {name!r} (there is: {', '.join(sorted(languages))})")
    return languages[name]
