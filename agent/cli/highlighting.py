"""Colours for text of models and datasets, on a terminal; what could steer it is escaped before."""

from __future__ import annotations

from collections.abc import Iterable

from rich.syntax import Syntax
from rich.text import Text

from agent.cli.console import Console
from agent.cli.text import plain

# an hour of colouring is of no use to anybody: hostile text is made to take its time
_LONGEST = 50_000
_LONGEST_LINE = 5_000
_THEME = "ansi_dark"
_OUTCOMES = {
    "passed": "green",
    "noticed": "green",
    "failed": "red",
    "missed": "red",
    "error": "yellow",
    "timeout": "yellow",
    "not_run": "dim",
}


class Page:
    """Writes titles, text and code; with colours where `console` is a terminal that is to have them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours = console.is_terminal and not console.no_color

    def _print(self, text: str | Text, style: str | None = None, end: str = "\n") -> None:
        styled = self._console.is_terminal and style is not None and len(text) <= _LONGEST
        if isinstance(text, str) and not styled:
            # rich takes ten seconds for a megabyte of short lines
            self._console.file.write(text + end)
        else:
            self._console.print(text, style=style, end=end, soft_wrap=True)

    def title(self, text: str) -> None:
        """Begin a section."""
        self._print(f"── {plain(text)}", style="bold")

    def text(self, text: str, style: str | None = None) -> None:
        """End a section with text as it is."""
        self._print(plain(text.rstrip("\n")) + "\n", style=style)

    def code(self, text: str, language: str) -> None:
        """End a section with text in a language by its name; one that is not known goes without colours."""
        text = plain(text.rstrip("\n"))
        self._print(_coloured(text, language) if self._colours and _short(text) else text, end="\n\n")

    def outcomes(self, lines: Iterable[tuple[str, str]]) -> None:
        """End a section with lines, each after the word for the outcome that it tells of (empty: none)."""
        for outcome, line in lines:
            self._print(plain(line), style=_OUTCOMES.get(outcome))
        self._print("")


def _short(text: str) -> bool:
    return len(text) <= _LONGEST and all(len(line) <= _LONGEST_LINE for line in text.split("\n"))


def _coloured(text: str, language: str) -> Text:
    found = Syntax("", language, theme=_THEME, background_color="default").highlight(text)
    # some lexers add or take away blank lines: what is shown is the text, if need be without colours
    found.rstrip()
    return found if found.plain == text.rstrip() else Text(text)
