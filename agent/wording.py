"""Text for people that every part needs: numbers, escapes, mistakes of a validation, cells of HTML."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from html import escape

from pydantic import ValidationError

_MAX_CELL_LENGTH = 2000
_UNESCAPED = frozenset("\n\t")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, as in `1 pair` and `2,000 pairs`; `many` where it takes more than an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def is_hidden(character: str) -> bool:
    """Say whether a character has no shape, or breaks or reorders what has one: control, format, surrogate and such."""
    return unicodedata.category(character) in _HIDDEN


def escape_hidden(text: str, *, limit: int | None = None) -> str:
    """Return text with control, format and surrogate characters as visible escapes, cut to `limit` characters."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(
        character
        if character in _UNESCAPED or not is_hidden(character)
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def describe_error(error: Exception) -> str:
    """Return an error's message; of a failed validation where its first mistake is, what it is, and how many more."""
    if not isinstance(error, ValidationError):
        return str(error)
    first, *rest = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {plural(len(rest), 'more mistake')})" if rest else ""
    return f"{place}{': ' if place else ''}{first['msg']}{more}"


def render_html_cell(value: object) -> str:
    """Return a value as HTML text: nothing in it is markup, and control characters show as escapes."""
    return "" if value is None else escape(escape_hidden(str(value), limit=_MAX_CELL_LENGTH))


def render_html_table(values: Iterable[tuple[str, object]]) -> str:
    """Return names and values as an HTML table of two columns. Empty values are left out."""
    filled = [(name, value) for name, value in values if value not in (None, "", ())]
    rows = "".join(
        f"<tr><th>{render_html_cell(name)}</th><td>{render_html_cell(value)}</td></tr>" for name, value in filled
    )
    return f"<table>{rows}</table>"
