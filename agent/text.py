"""Formats text for people: plurals, escapes and validation errors, and tables for HTML, Markdown and the terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Any, TypedDict

from pydantic import ValidationError

_MAX_CELL_LENGTH = 2000
_MAX_MARKDOWN_CELL = 300
_UNESCAPED = frozenset("\n\t")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f"  # control characters; tab, newline and form feed belong to code
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # directions, joiners, separators
    "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f"  # fillers and variation selectors
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"  # tags, which encode invisible ASCII
)


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


def one_line(text: str, limit: int | None = 100) -> str:
    """Return the text on one line. Collapse white space, truncate to `limit` characters and escape the result."""
    return escape_hidden(" ".join(text.split()), limit=limit)


def replace_surrogates(text: str) -> str:
    """Make the text encodable as UTF-8: join surrogate pairs and replace lone surrogates with U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def truncate(text: str, limit: int) -> str:
    """If a text is longer than `limit`, replace its middle with a note."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    left_out = len(text) - limit
    return f"{text[:head]}\n[... {left_out:,} characters left out here ...]\n{text[len(text) - (limit - head) :]}"


def make_printable(text: str) -> str:
    """Normalise newlines to LF, replace lone surrogates with U+FFFD and escape invisible characters.

    Control characters become escapes such as `\\x1b`. Direction marks, zero-width characters and tags become escapes
    such as `\\u202e` or `\\U000e0041`. A reader (a model or a person) then sees all of the text, in the order in which
    an interpreter reads it. A leading byte-order mark is removed, because Python also ignores it.
    """
    text = replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


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


class Table(TypedDict):
    """A table of unescaped texts. `numeric` contains the indices of the right-aligned columns."""

    columns: list[str]
    numeric: list[int]
    rows: list[list[str]]


class Figure(TypedDict):
    """A title, a text, and values as tables and as a chart. Only the report draws charts (see `agent.views.charts`).

    All fields except `title` may be empty.
    """

    title: str
    text: str
    chart: Any
    tables: list[Table]


def build_table(columns: Sequence[str], rows: Iterable[Iterable[object]], left: Collection[str] = ()) -> Table:
    """Build a table. All columns except the first column and those in `left` are right-aligned."""
    return {
        "columns": list(columns),
        "numeric": [number for number, name in enumerate(columns) if number and name not in left],
        "rows": [[format_value(value) for value in row] for row in rows],
    }


def build_figure(title: str, text: str = "", chart: Any = None, tables: Iterable[Table] = ()) -> Figure:
    return {"title": title, "text": text, "chart": chart, "tables": list(tables)}


def format_value(value: object) -> str:
    """Format a value: integers with commas, floats with three decimal places, and None as a dash."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}" if isinstance(value, float) else str(value)


def escape_markdown(text: str, limit: int | None = None) -> str:
    """Return the text as one line of Markdown without markup, truncated to `limit` characters."""
    return _MARKUP.sub(r"\\\1", one_line(text, limit))


def render_markdown_table(table: Table) -> str:
    lines = (table["columns"], *table["rows"])
    heading, *rows = (f"| {' | '.join(escape_markdown(cell, _MAX_MARKDOWN_CELL) for cell in line)} |" for line in lines)
    return "\n".join([heading, f"|{'---|' * len(table['columns'])}", *rows])


def render_markdown(figures: Iterable[Figure]) -> str:
    """Render the titles, tables and texts of figures as sections."""
    parts = []
    for figure in figures:
        parts += [f"## {escape_markdown(figure['title'])}", *map(render_markdown_table, figure["tables"])]
        if figure["text"]:
            parts.append(escape_markdown(figure["text"]))
    return "\n\n".join(parts) + "\n"
