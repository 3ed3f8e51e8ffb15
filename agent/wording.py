"""Formats text for people: plurals, escapes, validation errors and HTML tables."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from html import escape

from pydantic import ValidationError

_MAX_CELL_LENGTH = 2000
_UNESCAPED = frozenset("\n\t")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def plural(number: int, noun: str, irregular: str | None = None) -> str:
    """Return a number with its noun, such as `1 pair` or `2,000 pairs`.

    `irregular` is the plural of a noun that does not form its plural with -s.
    """
    return f"{number:,} {noun if number == 1 else irregular or f'{noun}s'}"


def is_hidden(character: str) -> bool:
    """Return whether a character is invisible or affects other characters.

    Such characters are control, format, surrogate, private use and separator characters.
    """
    return unicodedata.category(character) in _HIDDEN


def escape_hidden(text: str, *, limit: int | None = None) -> str:
    """Truncate a text to `limit` characters and replace hidden characters with visible escapes."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(
        character
        if character in _UNESCAPED or not is_hidden(character)
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def describe_error(error: Exception) -> str:
    """Return an error's message.

    For a validation error, return the first problem, its location and the number of other problems.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    first, *rest = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {plural(len(rest), 'more error')})" if rest else ""
    return f"{place}{': ' if place else ''}{first['msg']}{more}"


def render_html_cell(value: object) -> str:
    """Escape a value for HTML, and replace its hidden characters with visible escapes."""
    return "" if value is None else escape(escape_hidden(str(value), limit=_MAX_CELL_LENGTH))


def render_html_table(values: Iterable[tuple[str, object]]) -> str:
    """Render names and values as an HTML table with two columns. Empty values are skipped."""
    filled = [(name, value) for name, value in values if value not in (None, "", ())]
    rows = "".join(
        f"<tr><th>{render_html_cell(name)}</th><td>{render_html_cell(value)}</td></tr>" for name, value in filled
    )
    return f"<table>{rows}</table>"
