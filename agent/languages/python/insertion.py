"""Replace the marker in a program with a snippet, and verify that the snippet is unchanged."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from agent.languages.base import MalformedProgram, find_marker
from agent.languages.python.source import (
    MAX_CHARACTERS,
    Unparsable,
    check_compiles,
    get_start_line,
    is_same_tree,
    is_text_constant,
    normalise,
    parse,
)

MARKER = "# <candidate>"
MAX_PROGRAM = 4 * MAX_CHARACTERS
"""Maximum length of a program in characters, including the indented snippet."""

_LEADING = re.compile(r"([ \t\f]*\f)?")
_MAX_QUOTED = 120
_MAX_INDENT = 60


@dataclass(frozen=True)
class Placement:
    """A program that contains the snippet in lines `first_line` to `last_line` (1-based, inclusive).

    `statements` are the statements of the snippet in the program's `tree`.
    """

    source: str
    first_line: int
    last_line: int
    tree: ast.Module
    statements: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class _Template:
    before: tuple[str, ...]
    prefix: str
    after: tuple[str, ...]


def place_snippet(template: str, code: str) -> Placement:
    """Insert `code` at the marker of `template`.

    If the marker is indented, each physical line of `code` gets the same indentation unless it begins inside a string.
    Leading `from __future__` imports in `code` move to line 1 of the program.

    Raises:
        MalformedProgram: the marker or the syntax is wrong, or the insertion would change the snippet.
    """
    template_parts = _split_template(normalise(template))
    code = normalise(code)
    try:
        tree = parse(code)
    except Unparsable as error:
        raise MalformedProgram(f"the candidate does not parse: {error}") from error
    futures = find_leading_futures(tree.body)
    expected = [node for node in tree.body if node not in futures]
    if not expected:
        raise MalformedProgram("the candidate contains no statement that can be tested")
    snippet = _indent_lines(_blank_out(code, futures).split("\n"), template_parts.prefix, tree)
    first, source = len(template_parts.before) + 1, "\n".join([*template_parts.before, *snippet, *template_parts.after])
    placement = _check_placement(source, first, len(snippet), 0, expected)
    if futures:
        futures_of_template = find_leading_futures(
            [node for node in placement.tree.body if node not in placement.statements]
        )
        features = dict.fromkeys(alias.name for node in (*futures_of_template, *futures) for alias in node.names)
        source = f"from __future__ import {', '.join(features)}\n{_blank_out(source, futures_of_template)}"
        placement = _check_placement(source, first, len(snippet), 1, expected)
    try:
        check_compiles(placement.tree)
    except Unparsable as error:
        raise MalformedProgram(_describe_error(error, source, first, len(snippet), int(bool(futures)))) from error
    return placement


def find_leading_futures(statements: list[ast.stmt]) -> list[ast.ImportFrom]:
    """Return the leading `from __future__` imports in order."""
    futures: list[ast.ImportFrom] = []
    for position, node in enumerate(statements):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level:
            futures.append(node)
        elif position or ast.get_docstring(ast.Module([node], [])) is None:
            break
    return futures


def _split_template(template: str) -> _Template:
    if len(template) > MAX_CHARACTERS:
        raise MalformedProgram(f"the program has {len(template):,} characters; the limit is {MAX_CHARACTERS:,}")
    lines = template.split("\n")
    row = find_marker(lines, MARKER)
    prefix = lines[row].partition(MARKER)[0]
    if len(prefix) > _MAX_INDENT:
        raise MalformedProgram(f"the marker is in column {len(prefix)}; indent it like the lines around it")
    return _Template(tuple(lines[:row]), prefix, tuple(lines[row + 1 :]))


def _indent_lines(lines: list[str], prefix: str, tree: ast.Module) -> list[str]:
    """Indent lines of code, except those that begin inside a string."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or is_text_constant(node):
            inside.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    # A form feed resets the column to 0, so only the indentation after it matters.
    new_lines = (_LEADING.sub(rf"\g<0>{prefix}", line, count=1) for line in lines)
    return [old if row in inside else new for row, (old, new) in enumerate(zip(lines, new_lines, strict=True), 1)]


def _blank_out(code: str, futures: list[ast.ImportFrom]) -> str:
    """Blank out imports, so that every other statement keeps its line number."""
    lines = [line.encode() for line in code.split("\n")]
    for node in reversed(futures):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head, rest = lines[first][: node.col_offset], lines[last][node.end_col_offset :].lstrip(b"; \t")
        lines[first : last + 1] = [b""] * (last + 1 - first)
        lines[first] = head
        lines[last] += rest
    return b"\n".join(lines).decode()


def _check_placement(source: str, first: int, length: int, shift: int, expected: list[ast.stmt]) -> Placement:
    """Check that `source` contains the snippet unchanged, and return the placement.

    `first` is the snippet's first line in the template. `shift` is the number of lines inserted above the snippet.
    """
    try:
        tree = parse(source, MAX_PROGRAM)
    except Unparsable as error:
        raise MalformedProgram(_describe_error(error, source, first, length, shift)) from error
    lines = range(first + shift, first + shift + length)
    statements = _find_outermost(tree, lines)
    if not is_same_tree(statements, expected):
        raise MalformedProgram(
            f"the candidate would be changed at `{MARKER}`: put the marker where a statement is allowed, indented like "
            "the lines around it. No decorator may precede it, and no statement may continue below it"
        )
    return Placement(source, lines[0], lines[-1], tree, tuple(statements))


def _find_outermost(tree: ast.Module, lines: range) -> list[ast.stmt]:
    """Find the first block with statements that start in the given lines, and return these statements."""
    for node in ast.walk(tree):
        for block in (value for _, value in ast.iter_fields(node) if isinstance(value, list)):
            inside = [item for item in block if isinstance(item, ast.stmt) and get_start_line(item) in lines]
            if inside:
                return inside
    return []


def _describe_error(error: Unparsable, source: str, first: int, length: int, shift: int) -> str:
    """Describe a syntax error to the author of the template, with line numbers in the template."""
    if error.line is None:
        return f"the program does not parse: {error.reason}"
    row = error.line - shift
    lines = source.split("\n")
    text = lines[error.line - 1].strip()[:_MAX_QUOTED] if error.line <= len(lines) else ""
    if first <= row < first + length:
        return f"the program does not parse with the candidate inserted: {error.reason}, at `{text}`"
    line = row if row < first else row - length + 1
    return f"the program does not parse: {error.reason}, in line {line}: `{text}`"
