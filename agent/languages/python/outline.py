"""Describes a snippet's module to the model that writes a test: what can be imported, constructed and called.

An outline contains no bodies, docstrings or comments, because they may contain the search query.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

from agent.languages.base import MAX_OUTLINE
from agent.languages.python.source import Definition, Function, find_used_names, iterate_bindings, walk_scope
from agent.text import make_printable
from agent.types import Origin

_MAX_STRING, _MAX_VALUE, _MAX_LINE = 40, 60, 400
_NOTE = "... and {} more lines"
_SENTENCE = re.compile(r"\S\s+\S|[^\x00-\x7f]")  # not every script separates words
_NOT_SHOWN = re.compile(r"[.[]|\b__")
_CONSTRUCTORS = ("__init__", "__new__")


def build_outline(tree: ast.Module, origin: Origin, max_lines: int) -> str:
    """Describe the module of a function in at most `max_lines` lines. The first line imports the function or its class.

    The outline shows signatures and the names of constants. If it is too long, it keeps the class and how it is
    constructed, then the module's imports, and then what the function uses. Hidden characters are escaped.
    """
    ranks, texts = zip(*((rank, make_printable(text)) for rank, text in _iterate_lines(tree, origin)), strict=True)
    by_rank = sorted(range(len(texts)), key=lambda index: ranks[index])
    sizes = accumulate((len(texts[index]) + 1 for index in by_rank), initial=2 * len(_NOTE))
    fitting = sum(size <= MAX_OUTLINE for size in sizes) - 1
    if len(texts) <= min(max_lines, fitting):
        return "\n".join(texts)
    kept = sorted(by_rank[: max(min(max_lines - 1, fitting), 1)])
    note = _NOTE.format(len(texts) - len(kept))
    return "\n".join([*(texts[index] for index in kept), note][:max_lines])


def _iterate_lines(tree: ast.Module, origin: Origin) -> Iterator[tuple[int, str]]:
    """Iterate over all lines and their ranks. Lines with the highest ranks are left out first."""
    classes = origin.class_name.split(".") if origin.class_name else []
    yield 0, f"from {origin.module} import {[*classes, origin.name][0]}"
    statements = scope = list(_iterate_statements(tree.body))
    owners: list[ast.ClassDef] = []
    for name in classes:
        owners += [node for node in scope if isinstance(node, ast.ClassDef) and node.name == name][-1:]
        scope = list(_iterate_statements(owners[-1].body)) if owners else []
    for depth, owner in enumerate(owners):
        yield from _rank(1, _describe_head(owner), depth)
    targets = [node for node in scope if isinstance(node, Function) and node.name == origin.name]
    for node in scope if owners else targets:
        is_needed = isinstance(node, ast.AnnAssign) or getattr(node, "name", "") in (*_CONSTRUCTORS, origin.name)
        yield from _rank(2 if is_needed else 5, _describe(node), len(owners))
    used = find_used_names([*targets, *(base for owner in owners for base in owner.bases)])
    for node in statements:
        if node not in targets and node not in owners:
            is_used = any(name in used for part in walk_scope([node]) for name in iterate_bindings(part))
            rank = 3 if isinstance(node, ast.Import | ast.ImportFrom) else 4 if is_used else 6
            yield from _rank(rank, _describe(node, methods=is_used), 0)


def _rank(rank: int, lines: Iterable[str], depth: int) -> Iterator[tuple[int, str]]:
    return ((rank, "    " * depth + line) for line in lines)


def _iterate_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Iterate over the statements of a module or class, including those within `if`, `try`, `with` and loops."""
    pending = list(body)[::-1]
    while pending:
        node = pending.pop()
        yield node
        for child in [] if isinstance(node, Definition) else list(ast.iter_child_nodes(node))[::-1]:
            inner = child.body if isinstance(child, ast.ExceptHandler | ast.match_case) else [child]
            pending += [part for part in inner if isinstance(part, ast.stmt)][::-1]


def _describe(node: ast.stmt, *, methods: bool = False) -> list[str]:
    """Describe a definition, an import or an assignment. Only constructors of classes are shown, unless `methods`."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return _describe_head(node, " ...")
        case ast.ClassDef():
            inner = _iterate_statements(node.body)
            shown = (part for part in inner if methods or getattr(part, "name", "__init__") in _CONSTRUCTORS)
            lines = [f"    {line}" for part in shown for line in _describe(part)]
            return [*_describe_head(node, "" if lines else " ..."), *lines]
        case ast.ImportFrom(module="__future__"):
            return []
        case ast.Import() | ast.ImportFrom():
            return [_unparse(node)]
        case ast.Assign(targets=targets, value=value):
            names = " = ".join(map(_unparse, targets))
            return [] if _NOT_SHOWN.search(names) else [f"{names} = {_describe_value(value)}"]
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
            return [f"{name}: {_unparse(annotation)}" + (f" = {_describe_value(value)}" if value is not None else "")]
    return []


def _describe_head(node: Definition, end: str = "") -> list[str]:
    """Return the decorators and the signature of a definition."""
    text = _unparse(type(node)(**{**vars(node), "body": [ast.Pass()]}))
    return (text.removesuffix("\n    pass") + end).split("\n")


def _describe_value(value: ast.expr) -> str:
    text = _unparse(value) if value.end_lineno == value.lineno else "..."
    return text if len(text) <= _MAX_VALUE else "..."


class _Shortener(ast.NodeTransformer):
    """Replaces strings that may be sentences or are long, concatenated strings and bodies of lambdas with `...`."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        is_text = isinstance(value, str) and (len(value) > _MAX_STRING or _SENTENCE.search(value))
        return ast.Constant(...) if is_text else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        is_text = any(isinstance(part, ast.Constant) and isinstance(part.value, str | bytes) for part in ast.walk(node))
        return ast.Constant(...) if is_text else self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.visit(node.args)
        return ast.Lambda(node.args, ast.Constant(...))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:  # noqa: ARG002
        return ast.Constant(...)


def _unparse(node: ast.AST) -> str:
    """Return the source of a node without sentences. Long lines are shortened."""
    try:
        text = ast.unparse(ast.fix_missing_locations(_Shortener().visit(copy.deepcopy(node))))
    except (RecursionError, ValueError):
        return "..."
    return "\n".join(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..." for line in text.split("\n"))
