"""Puts a snippet verbatim in place of a program's marker, and proves that it stands there unchanged."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import deque
from dataclasses import dataclass

from agent.languages.base import MalformedProgram
from agent.languages.python.source import (
    MAX_CHARACTERS,
    Unparsable,
    check_compiles,
    normalise,
    parse,
    same_tree,
    start_line,
)

MARKER = "# <candidate>"
MAX_PROGRAM = 4 * MAX_CHARACTERS
"""Characters of a program: the snippet, indented, and what is around it."""


_MARKER_LINE = re.compile(r"([ \t]*)# <candidate>[ \t]*")
_LEADING = re.compile(r"[ \t\f]*\f")
_SHOWN = 120
_DEEPEST = 60


@dataclass(frozen=True)
class Placement:
    """A program with its snippet in place, in lines `first_line` to `last_line` (1-based, inclusive).

    `statements` are the snippet's, in the program's `tree`; `owner` is the module, class or function they stand in.
    `shift` counts the lines that were put before the template's first.
    """

    source: str
    first_line: int
    last_line: int
    tree: ast.Module
    owner: ast.AST
    statements: tuple[ast.stmt, ...]
    shift: int = 0


@dataclass(frozen=True)
class _Template:
    before: tuple[str, ...]
    prefix: str
    after: tuple[str, ...]


def place(template: str, code: str) -> Placement:
    """Insert `code` at the marker of `template`.

    At column 0 it goes in as it is. At an indented marker each physical line gets the marker's indentation, unless it
    begins inside a string. Its leading `from __future__` imports move to line 1 of the program.

    Raises:
        MalformedProgram: marker or syntax are wrong, or the snippet would not be what it was.
    """
    split = _split(normalise(template))
    code = normalise(code)
    try:
        statements = parse(code).body
    except Unparsable as error:
        raise MalformedProgram(f"the candidate does not parse: {error}") from error
    futures = leading_futures(statements)
    expected = [node for node in statements if node not in futures]
    if not expected:
        raise MalformedProgram("the candidate holds no statement that could be tested")
    snippet = _indented(_without(code, statements, futures), split.prefix).split("\n")
    first = len(split.before) + 1
    placement = _checked("\n".join([*split.before, *snippet, *split.after]), first, len(snippet), 0, expected)
    if futures:
        own = leading_futures([node for node in placement.tree.body if node not in placement.statements])
        source = _without(placement.source, placement.tree.body, own)
        features = dict.fromkeys(alias.name for node in (*own, *futures) for alias in node.names)
        line = f"from __future__ import {', '.join(features)}"
        placement = _checked(f"{line}\n{source}", first + 1, len(snippet), 1, expected)
    try:
        check_compiles(placement.tree)
    except Unparsable as error:
        raise MalformedProgram(_complaint(error, placement.source, first, len(snippet), int(bool(futures)))) from error
    return placement


def mark(template: str, name: str) -> str:
    """Return a template, which `place` has accepted, with a name in place of its marker."""
    split = _split(normalise(template))
    return "\n".join([*split.before, split.prefix + name, *split.after])


def leading_futures(statements: list[ast.stmt]) -> list[ast.ImportFrom]:
    """Return the `from __future__` imports that stand where the language lets them, in order."""
    found: list[ast.ImportFrom] = []
    for position, node in enumerate(statements):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level:
            found.append(node)
        elif position or not _is_string(node):
            break
    return found


def _is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _split(template: str) -> _Template:
    if len(template) > MAX_CHARACTERS:
        raise MalformedProgram(f"the program has {len(template):,} characters; {MAX_CHARACTERS:,} are the limit")
    lines = template.split("\n")
    found = [(row, match[1]) for row, line in enumerate(lines) if (match := _MARKER_LINE.fullmatch(line))]
    if len(found) != 1:
        times = f"{len(found)} times" if found else "nowhere"
        raise MalformedProgram(
            f"the line `{MARKER}` stands {times}; it must stand once, alone on its line, where the candidate goes"
        )
    row, prefix = found[0]
    if len(prefix) > _DEEPEST:
        raise MalformedProgram(f"the marker stands in column {len(prefix)}; indent it like its neighbours")
    return _Template(tuple(lines[:row]), prefix, tuple(lines[row + 1 :]))


def _indented(code: str, prefix: str) -> str:
    if not prefix:
        return code
    inside = _rows_inside_strings(code)
    lines = enumerate(code.split("\n"), 1)
    return "\n".join(line if row in inside else _prefixed(line, prefix) for row, line in lines)


def _prefixed(line: str, prefix: str) -> str:
    # A form feed sets the column back to 0, so that indentation counts only behind it.
    match = _LEADING.match(line)
    behind = match.end() if match else 0
    return line[:behind] + prefix + line[behind:]


def _rows_inside_strings(code: str) -> frozenset[int]:
    """Return the 1-based rows that begin inside a string token."""
    inside: set[int] = set()
    opened: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code, newline="\n").readline):
            kind = tokenize.tok_name[token.type]
            if kind == "STRING":
                inside.update(range(token.start[0] + 1, token.end[0] + 1))
            elif kind.endswith("STRING_START"):
                opened.append(token.start[0])
            elif kind.endswith("STRING_END"):
                inside.update(range(opened.pop() + 1, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError) as error:
        raise MalformedProgram(
            f"the candidate cannot be indented ({error}); put the marker at the start of a line, outside of any class"
        ) from error
    return frozenset(inside)


def _without(code: str, statements: list[ast.stmt], removed: list[ast.ImportFrom]) -> str:
    """Blank statements out; every other one keeps its line."""
    lines = [line.encode() for line in code.split("\n")]
    for node in reversed(removed):
        following = statements[statements.index(node) + 1 :][:1]
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        shares_line = bool(following) and following[0].lineno - 1 == last
        rest = lines[last][following[0].col_offset :] if shares_line else b""
        head = lines[first][: node.col_offset]
        lines[first : last + 1] = [b""] * (last + 1 - first)
        lines[first] = head
        lines[last] += rest
    return b"\n".join(lines).decode()


def _checked(source: str, first: int, length: int, shift: int, expected: list[ast.stmt]) -> Placement:
    last = first + length - 1
    try:
        tree = parse(source, MAX_PROGRAM)
    except Unparsable as error:
        raise MalformedProgram(_complaint(error, source, first - shift, length, shift)) from error
    owner, statements = statements_between(tree, first, last)
    if not same_tree(statements, expected):
        raise MalformedProgram(
            f"at the place of `{MARKER}` the candidate would be changed: put the marker where a statement may stand, "
            "with the indentation of its neighbours, without a decorator above it and nothing below that continues it"
        )
    return Placement(source, first, last, tree, owner, tuple(statements), shift)


def statements_between(tree: ast.Module, first: int, last: int) -> tuple[ast.AST, list[ast.stmt]]:
    """Return the outermost statements that start in these lines, and the scope they stand in."""
    pending: deque[tuple[ast.AST, ast.AST]] = deque([(tree, tree)])
    while pending:
        node, owner = pending.popleft()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            owner = node
        for _, value in ast.iter_fields(node):
            if not isinstance(value, list):
                continue
            inside = [item for item in value if isinstance(item, ast.stmt) and first <= start_line(item) <= last]
            if inside:
                return owner, inside
        pending.extend((child, owner) for child in ast.iter_child_nodes(node))
    return tree, []


def _complaint(error: Unparsable, source: str, first: int, length: int, shift: int) -> str:
    """Word a syntax error for whoever wrote the template, in the template's own line numbers."""
    if error.line is None:
        return f"the program does not parse: {error.reason}"
    row = error.line - shift
    lines = source.split("\n")
    text = lines[error.line - 1].strip()[:_SHOWN] if error.line <= len(lines) else ""
    if first <= row < first + length:
        return f"with the candidate in place the program does not parse: {error.reason}, at `{text}`"
    line = row if row < first else row - length + 1
    return f"the program does not parse: {error.reason}, line {line}: `{text}`"
