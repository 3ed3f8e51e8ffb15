"""Examples in docstrings (`>>> f(2)`), made into test cases."""

from __future__ import annotations

import ast
import doctest
import symtable
from collections.abc import Iterator
from dataclasses import dataclass

from agent.llm.heuristic.snippets import Function

MAX_EXAMPLES = 6

_TOO_MUCH = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@dataclass(frozen=True)
class Example:
    """One example: statements before it, its expression, and what it shows. All source is one line a statement."""

    setup: tuple[str, ...]
    expression: str
    want: str


def find_examples(function: Function, names: frozenset[str]) -> tuple[Example, ...]:
    """Return the examples of a function's docstring that need no names but these and their own."""
    if ">>>" not in function.doc:
        return ()
    try:
        parsed = doctest.DocTestParser().get_examples(function.doc)
    except ValueError:
        return ()
    return tuple(_read(parsed, function.name, names))[:MAX_EXAMPLES]


def _read(parsed: list[doctest.Example], function: str, names: frozenset[str]) -> Iterator[Example]:
    setup: list[str] = []
    known = set(names)
    for example in parsed:
        try:
            statement = _single(example.source)
            read, bound = _names(example.source)
        except _TOO_MUCH:
            return
        if statement is None or read - known:
            return
        source = ast.unparse(statement)
        if "\n" in source or "`" in source:
            return
        calls = any(isinstance(node, ast.Name) and node.id == function for node in ast.walk(statement))
        shows = bool(example.want.strip()) and example.exc_msg is None and "..." not in example.want
        if isinstance(statement, ast.Expr) and shows and (calls or setup):
            yield Example(tuple(setup), source, example.want)
        setup.append(source)
        known |= bound


def _single(source: str) -> ast.Expr | ast.Assign | ast.Import | ast.ImportFrom | None:
    body = ast.parse(source).body
    if len(body) == 1 and isinstance(body[0], ast.Expr | ast.Assign | ast.Import | ast.ImportFrom):
        return body[0]
    return None


def _names(source: str) -> tuple[set[str], set[str]]:
    """Return the names that an example reads from outside, and those that it binds."""
    module = symtable.symtable(source, "<example>", "exec")
    bound = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    read: set[str] = set()
    tables = [module]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        outer = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (table is module or s.is_global())}
        read |= outer
    return read - bound, bound
