"""Split SQL into tokens, and use them to find differences between dialects and to write mutants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from agent.languages.base import MutantKind, Mutation, Snippet

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z)) | \s+
    | (?P<quoted>'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\])
    | (?P<number>\d+(?![\w.])) | (?P<word>[\w.@$:?]+) | (?P<operator><=>|->>?|[<>=!]=|<>|\|\||.)""",
    re.DOTALL | re.VERBOSE,
)
_DIFFERENCES = (
    (re.compile(r"'\s*\+|\+\s*'"), "`+` does not concatenate strings"),
    (re.compile(r"\bAS\s+(DATE|TIME)\w*\s*\)"), "`CAST` does not convert to dates and times"),
    (
        re.compile(r"\w\s+((BIG|SMALL)?SERIAL|AUTO_INCREMENT)\b|\bIDENTITY\s*\("),
        "only `INTEGER PRIMARY KEY` columns have automatic values",
    ),
)
"""Syntax that SQLite accepts, but with another meaning than other databases. Strings and comments are empty."""

_SWAPS = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "<>", "<>": "=", "!=": "=", "AND": "OR", "OR": "AND"}
_SWAPS |= {"ASC": "DESC", "DESC": "ASC", "MIN": "MAX", "MAX": "MIN", "COUNT": "SUM", "SUM": "COUNT"}
_SWAPS |= {"INNER": "LEFT", "LEFT": "INNER", "UNION": "UNION ALL", "UNION ALL": "UNION", "DISTINCT": ""}
_CLAUSES = {"SET", "WHERE", "ON", "HAVING", "WHEN", "SELECT"}


def find_tokens(code: str) -> list[re.Match[str]]:
    """Return the tokens of SQL, without white space and comments."""
    return [match for match in _TOKEN.finditer(code) if match.lastgroup not in (None, "comment")]


def split_comment(statement: str) -> tuple[str | None, str]:
    """Split a statement into the text of the comments before it, or None, and the statement."""
    start = next((token.start() for token in find_tokens(statement)), len(statement))
    text = re.sub(r"^\s*(--+|/?\*+/?)[ \t]?|\*/\s*$", "", statement[:start], flags=re.MULTILINE).strip()
    return text or None, statement[start:]


def find_difference(code: str) -> str | None:
    """Return why SQLite gives another meaning to SQL of another database, or None."""
    text = _TOKEN.sub(lambda match: {"comment": " ", "quoted": "''"}.get(match.lastgroup or "", match[0].upper()), code)
    return next((reason for pattern, reason in _DIFFERENCES if pattern.search(text)), None)


def create_mutants(code: str, limit: int) -> tuple[Mutation, ...]:
    """Return an empty statement, and copies of the code with one changed token."""
    mutants = [Mutation(MutantKind.RETURNS_NOTHING, "does nothing", Snippet(";"))]
    for start, end, new in _iterate_edits(code):
        change = f"`{new}` in place of `{code[start:end]}`"
        mutants.append(Mutation("changed_token", change, Snippet(code[:start] + new + code[end:])))
    return tuple(mutants[: max(limit, 0)])


def _iterate_edits(code: str) -> Iterator[tuple[int, int, str]]:
    tokens = find_tokens(code)
    clause = ""
    for token, following in zip_longest(tokens, tokens[1:]):
        text, end = token[0].upper(), token.end()
        next_text = "" if following is None else following[0].upper()
        clause = text if text in _CLAUSES else clause
        if following is not None and (text, next_text) == ("UNION", "ALL"):
            text, end = "UNION ALL", following.end()
        if token.lastgroup == "number":
            yield token.start(), end, str(int(text) + 1)
        elif token.lastgroup == "quoted" or (text == "=" and clause == "SET") or (text == "LEFT" and next_text == "("):
            continue
        elif text in _SWAPS:
            yield token.start(), end, _SWAPS[text]
