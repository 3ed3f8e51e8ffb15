"""Finds languages by name: the user's, the built-in ones and those of installed packages.

A package provides languages with entry points of the group `agent.languages`. An entry point maps a language's name to
a `Language` class, or to a function that returns a `Language` object. Modules are imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from agent.errors import ConfigError, ExtraMissing, UnsupportedLanguage
from agent.languages.base import Language
from agent.types import normalise_language

GROUP = "agent.languages"

_BUILT_IN = {
    "python": "agent.languages.python.language:PythonLanguage",
    "javascript": "agent.languages.javascript.language:JavaScriptLanguage",
    "typescript": "agent.languages.javascript.language:TypeScriptLanguage",
    "sql": "agent.languages.sql.language:SqlLanguage",
}
"""The class of each built-in language, as `module:Class`."""


class Languages(Mapping[str, Language]):
    """The known languages, keyed by name. `own` are the user's objects, which replace languages with the same names.

    Iteration and membership tests import nothing. A lookup raises `ConfigError` if several packages provide the name,
    or if the package's entry point does not load a language.
    """

    def __init__(self, own: Mapping[str, Language] | None = None) -> None:
        self._loaded = dict(own or {})
        self._entries = {name: [EntryPoint(name, path, GROUP)] for name, path in _BUILT_IN.items()}
        for entry in entry_points(group=GROUP):
            self._entries.setdefault(normalise_language(entry.name), []).append(entry)
        self._entries |= {name: [] for name in self._loaded}

    def __getitem__(self, name: str) -> Language:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._entries[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def describe_package(self, name: str) -> str:
        """Return the name and version of the package that provides a language, or "" if no other package does."""
        return next((_describe_package(entry) for entry in self._entries.get(name, ()) if entry.dist is not None), "")

    def explain_untestable(self, name: str) -> str | None:
        """Return why snippets in a language cannot be tested on this machine, or None if they can."""
        if name not in self:
            return f"is not supported (supported: {', '.join(sorted(self))})"
        try:
            self[name].check_support()
        except (UnsupportedLanguage, ExtraMissing) as error:
            return f"cannot be tested on this machine: {error}"
        return None

    def require(self, name: str) -> Language:
        """Return a language whose snippets can be tested on this machine.

        Raises:
            ConfigError: the language is unknown or not usable. The message explains the remedy.
        """
        if (reason := self.explain_untestable(name)) is not None:
            raise ConfigError(f"language {name!r} {reason}")
        return self[name]


def _load(name: str, entries: list[EntryPoint]) -> Language:
    entry, *others = entries
    if others:
        packages = " and ".join(map(_describe_package, entries))
        raise ConfigError(f"{packages} provide the language {name!r}. Uninstall all but one of these packages.")
    try:
        language = entry.load()()
    except Exception as error:
        if entry.dist is None:
            raise
        raise ConfigError(
            f"{_describe_package(entry)}: the language {name!r} does not load: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(language, Language) or normalise_language(language.name) != name:
        raise ConfigError(f"{_describe_package(entry)}: {entry.value} is not a Language with the name {name!r}")
    return language


def _describe_package(entry: EntryPoint) -> str:
    return "test-driven-annotator" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
