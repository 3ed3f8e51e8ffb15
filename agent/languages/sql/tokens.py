"""Split SQL into tokens, and use them to find comments and differences between dialects."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<blank>\s+ | --[^\n]* | /\*.*?(?:\*/|\Z))
    | (?P<quoted>'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\])
    | [\w.@$:?]+ | .""",
    re.DOTALL | re.VERBOSE,
)
_DIFFERENCES = (
    (re.compile(r"'\s*\+|\+\s*'"), "`+` does not concatenate strings"),
    (re.compile(r"\bAS\s+(DATE|TIME)\w*\s*\)"), "`CAST` does not convert to dates and times"),
    (re.compile(r"\bAS\s+(DEC|DECIMAL|NUMERIC|MONEY)\s*[()]"), "`CAST` does not convert to decimal numbers"),
    (
        re.compile(r"\bUPDATE\s+([\w.]+)\s+SET\s[^;()]{,500}\sFROM\s[^;()]{,500}\b\1\b(?!\s*\.)"),
        "`FROM` cannot name the table that `UPDATE` changes",
    ),
    (
        re.compile(r"\w\s+((BIG|SMALL)?SERIAL|AUTO_INCREMENT)\b|\bIDENTITY\s*\("),
        "only `INTEGER PRIMARY KEY` columns have automatic values",
    ),
)
"""Syntax that SQLite accepts, but with another meaning than other databases. Strings and comments are empty."""


def iterate_tokens(code: str) -> Iterator[re.Match[str]]:
    """Iterate over the tokens of SQL, without white space and comments."""
    return (match for match in _TOKEN.finditer(code) if match.lastgroup != "blank")


def split_comment(statement: str) -> tuple[str | None, str]:
    """Split a statement into the text of the comments before it, or None, and the statement."""
    start = next((token.start() for token in iterate_tokens(statement)), len(statement))
    text = re.sub(r"^[ \t]*(--+|/?\*+/?)[ \t]?|\*/[ \t]*$", "", statement[:start], flags=re.MULTILINE).strip()
    return text or None, statement[start:]


def find_difference(code: str) -> str | None:
    """Return why SQLite gives another meaning to SQL of another database, or None."""
    text = _TOKEN.sub(lambda match: {"blank": " ", "quoted": "''"}.get(match.lastgroup or "", match[0].upper()), code)
    return next((reason for pattern, reason in _DIFFERENCES if pattern.search(text)), None)
