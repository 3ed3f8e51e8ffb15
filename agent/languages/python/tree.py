"""Walks syntax trees without recursion: hostile code is nested as deep as the parser lets it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def start_line(node: ast.stmt) -> int:
    """Return the first line of a statement, decorators included."""
    decorators = node.decorator_list if isinstance(node, Definition) else []
    return min(node.lineno, *(decorator.lineno for decorator in decorators), node.lineno)


def is_within(node: ast.AST, first_line: int, last_line: int) -> bool:
    """Say whether a node starts in these lines (inclusive)."""
    return first_line <= getattr(node, "lineno", 0) <= last_line


def same_tree(left: object, right: object) -> bool:
    """Compare syntax trees as `ast.dump` would, at any depth."""
    pending = [(left, right)]
    while pending:
        one, other = pending.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending.extend(zip(one, other, strict=True))
        elif isinstance(one, ast.AST):
            pending.extend((getattr(one, name, None), getattr(other, name, None)) for name in one._fields)
        elif one != other:
            return False
    return True


def walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes and all below them."""
    return chain.from_iterable(ast.walk(node) for node in nodes)


def walk_scope(nodes: Iterable[ast.AST], *, classes: bool = False) -> Iterator[ast.AST]:
    """Yield nodes of one scope, in order: functions (and classes, unless asked for) are yielded but not entered."""
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(_of_this_scope(node, classes)))


def _of_this_scope(node: ast.AST, classes: bool) -> list[ast.AST]:
    if isinstance(node, Function):
        return [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    if isinstance(node, ast.ClassDef) and not classes:
        return [*node.decorator_list, *node.bases, *node.keywords]
    if isinstance(node, ast.Lambda):
        return []
    return list(ast.iter_child_nodes(node))


def loaded(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what runs when these statements are loaded, compound ones taken apart; never what a main guard keeps."""
    pending = list(statements)[::-1]
    while pending:
        node = pending.pop()
        inner: list[ast.stmt] = []
        if isinstance(node, ast.If):
            inner = node.orelse if _is_main_guard(node.test) else [*node.body, *node.orelse]
        elif isinstance(node, ast.Try | ast.TryStar):
            handlers = [part for handler in node.handlers for part in handler.body]
            inner = [*node.body, *handlers, *node.orelse, *node.finalbody]
        elif isinstance(node, ast.With):
            inner = node.body
        else:
            yield node
        pending.extend(reversed(inner))


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def bindings(node: ast.AST) -> Iterator[str]:
    """Yield the names that a single node binds."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):
        yield str(vars(node)["name"])


def names_bound(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return every name that is bound anywhere in the nodes, in whatever scope."""
    return frozenset(name for node in walk(nodes) for name in bindings(node))


def names_used(nodes: Iterable[ast.AST]) -> Mapping[str, None]:
    """Return the names that are read anywhere in the nodes, in order of first use, as keys."""
    read = [node for node in walk(nodes) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return {node.id: None for node in sorted(read, key=lambda node: (node.lineno, node.col_offset))}


def roots_imported(node: ast.AST) -> tuple[str, ...]:
    """Return the top-level modules that an import statement names; none for relative imports and other nodes."""
    if isinstance(node, ast.Import):
        return tuple(alias.name.partition(".")[0] for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return (node.module.partition(".")[0],)
    return ()


def last_name(node: ast.expr) -> str:
    """Return the last name of what is called or read: `c` of `a.b.c(d)`; empty where there is none."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
