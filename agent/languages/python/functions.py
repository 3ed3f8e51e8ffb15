"""Finds the functions and methods of Python source and extracts each as a program of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from agent.languages.base import FoundFunction
from agent.languages.python.source import Function, Unparsable, get_start_line, is_same_tree, normalise, parse

MAX_SOURCE = 1_000_000
"""Default maximum length of source to search, in characters."""

_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
# Strings and comments. Strings may span lines.
_QUOTED = "|".join(rf"{quote}(?:[^{quote[0]}\\]+|\\.|{quote[0]}(?!{quote[1:]}))*+{quote}" for quote in ('"""', "'''"))
_SKIPPED = rf"""{_QUOTED}|"(?:[^"\\\n]+|\\.)*+"|'(?:[^'\\\n]+|\\.)*+'|#[^\n]*"""


def find_functions(source: str, limit: int = MAX_SOURCE) -> list[FoundFunction]:
    """Find the functions and methods of modules and classes, in order, including those inside `if`, `try` and the like.

    Functions and classes inside functions belong to the code of the outer function. The code of a function has no block
    indentation, except in strings that span lines. Its syntax tree is verified to equal that of the function. `code` is
    only known to be None in unusual mixtures of tabs and spaces, in strings that span lines inside f-strings (Python
    3.12), and if the first decorator's `@` is on a line of its own.

    Raises:
        TooLarge: the source exceeds `limit` characters or is too deeply nested.
        Unparsable: the source is not valid Python.
    """
    text = normalise(source)
    lines = text.split("\n")
    return [_extract(node, class_name, lines) for node, class_name in iterate_functions(parse(text, limit))]


def describe_function(code: str) -> FoundFunction | None:
    """Return the function if code consists of exactly one function, without statements or comments before or after it.

    Returns None for other code and for code that does not parse.
    """
    text = normalise(code).strip()
    try:
        tree = parse(text, MAX_SOURCE)
    except Unparsable:
        return None
    lines = text.split("\n")
    match tree.body:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as node]:
            function = _extract(node, None, lines)
            return function if (function.start_line, function.end_line) == (1, len(lines)) else None
    return None


def iterate_functions(tree: ast.Module) -> Iterator[tuple[Function, str | None]]:
    """Iterate over the functions outside functions, each with the dotted name of its class."""
    pending: list[tuple[ast.AST, str | None]] = [(tree, None)]
    while pending:
        node, class_name = pending.pop()
        if isinstance(node, Function):
            yield node, class_name
            continue
        if isinstance(node, ast.ClassDef):
            class_name = f"{class_name}.{node.name}" if class_name else node.name
        children = [child for block in _BLOCKS for child in getattr(node, block, ())]
        pending.extend((child, class_name) for child in reversed(children))


def _extract(node: Function, class_name: str | None, lines: list[str]) -> FoundFunction:
    start, end = get_start_line(node), node.end_lineno or node.lineno
    text = "\n".join(lines[start - 1 : end]).rstrip(" \t\f\\")
    code = text.lstrip()
    indentation = text[: len(text) - len(code)].rpartition("\f")[2]  # A form feed resets the column to 0.
    if indentation:
        code = _compile_pattern(len(indentation)).sub(r"\1\2", code)
    same = code if _is_code_of(node, code) else None
    return FoundFunction(node.name, class_name, ast.get_docstring(node), same, start, end)


@lru_cache(maxsize=100)
def _compile_pattern(width: int) -> re.Pattern[str]:
    """Return a pattern that matches strings and comments (group 1), and indentation with its form feeds (group 2)."""
    return re.compile(rf"({_SKIPPED})|(?<=\n)((?:[ \t\f]*\f)?)[ \t]{{1,{width}}}", re.DOTALL)


def _is_code_of(node: Function, code: str) -> bool:
    try:
        return is_same_tree(parse(code, len(code)).body, [node])
    except Unparsable:
        return False
