"""Describes a snippet's module to the model that writes a test: what can be imported, constructed and called.

An outline contains no bodies, docstrings or comments, because they may contain the search query.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent.languages.python.source import Definition, Function, normalise, parse, walk
from agent.text import make_printable
from agent.types import Origin

_MAX_STRING = 40
_MAX_VALUE = 60
_MAX_LINE = 400
_TWO_WORDS = re.compile(r"\w\s+\w")
_DUNDER = re.compile(r"__\w+__")
_CONSTRUCTORS = ("__init__", "__new__")


@dataclass(frozen=True)
class _Part:
    """Lines of an outline. If the outline is too long, parts with a higher `rank` are left out first."""

    rank: int
    lines: Sequence[str]


def build_outline(source: str, origin: Origin, max_lines: int) -> str:
    """Describe the module of a function in at most `max_lines` lines. The first line imports the function or its class.

    The most important lines come first: the class and how it is constructed, the module's imports, and what the
    function uses. The outline shows signatures, and names of constants. Hidden characters are escaped.

    Raises:
        Unparsable: this Python version cannot parse the source.
    """
    tree = parse(normalise(source), max(len(source), 1))
    parts = _choose_parts(list(_iterate_parts(tree, origin)), max_lines)
    text = "\n".join(line for part in parts for line in part.lines)
    return make_printable(text)


def _choose_parts(parts: list[_Part], max_lines: int) -> list[_Part]:
    """Return the parts that fit, in their order. A note says how many lines were left out."""
    total = sum(len(part.lines) for part in parts)
    if total <= max_lines:
        return parts
    room = max_lines - 1 if max_lines > 1 else 1
    chosen: dict[int, _Part] = {}
    for index in sorted(range(len(parts)), key=lambda index: parts[index].rank):
        chosen[index] = _Part(0, parts[index].lines[:room])
        room -= len(chosen[index].lines)
        if not room:
            break
    left_out = total - sum(len(part.lines) for part in chosen.values())
    note = [_Part(0, [f"... and {left_out} more lines"])] if max_lines > 1 else []
    return [*(chosen[index] for index in sorted(chosen)), *note]


def _iterate_parts(tree: ast.Module, origin: Origin) -> Iterator[_Part]:
    classes = origin.class_name.split(".") if origin.class_name else []
    yield _Part(0, [f"from {origin.module} import {classes[0] if classes else origin.name}"])
    statements = list(_iterate_statements(tree.body))
    owners = _find_owners(statements, classes)
    body = list(_iterate_statements(owners[-1].body)) if owners else statements
    targets = [node for node in body if isinstance(node, Function) and node.name == origin.name]
    used = set(_iterate_names([*targets, *(base for owner in owners for base in owner.bases)]))
    if owners:
        yield from _describe_owners(owners, origin.name)
    else:
        yield from (_Part(2, _describe_function(target)) for target in targets)
    others = [node for node in statements if node not in targets and node not in owners]
    for node in others:
        if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", None) != "__future__":
            yield _Part(3, [_unparse(node)])
    for node in others:
        names = set(_list_bound_names(node))
        is_used = bool(names & used)
        if isinstance(node, Function):
            yield _Part(4 if is_used else 6, _describe_function(node))
        elif isinstance(node, ast.ClassDef):
            yield _Part(4 if is_used else 6, _describe_class(node, methods=is_used))
        elif lines := _describe_constant(node):
            yield _Part(4 if is_used else 6, lines)


def _iterate_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Iterate over the statements of a module or class, including those within `if`, `try`, `with` and loops."""
    pending = list(body)[::-1]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, Definition):
            children = list(ast.iter_child_nodes(node))
            for child in children[::-1]:
                inner = child.body if isinstance(child, ast.ExceptHandler | ast.match_case) else [child]
                pending += [part for part in inner if isinstance(part, ast.stmt)][::-1]


def _find_owners(statements: list[ast.stmt], classes: list[str]) -> list[ast.ClassDef]:
    """Return the class of the function, after the classes that contain it. Return nothing if it does not exist."""
    owners: list[ast.ClassDef] = []
    for name in classes:
        found = [node for node in statements if isinstance(node, ast.ClassDef) and node.name == name]
        if not found:
            return []
        owners.append(found[-1])
        statements = list(_iterate_statements(found[-1].body))
    return owners


def _describe_owners(owners: list[ast.ClassDef], name: str) -> Iterator[_Part]:
    """Describe the function's class, whose constructor and signature come before its attributes and methods."""
    for depth, owner in enumerate(owners):
        yield _Part(1, _indent(_describe_header(owner), depth))
    depth = len(owners)
    for node in _iterate_statements(owners[-1].body):
        if isinstance(node, Function):
            rank = 2 if node.name in (*_CONSTRUCTORS, name) else 5
            yield _Part(rank, _indent(_describe_function(node), depth))
        elif isinstance(node, ast.ClassDef):
            yield _Part(5, _indent(_describe_class(node, methods=False), depth))
        elif lines := _describe_constant(node):
            yield _Part(2 if isinstance(node, ast.AnnAssign) else 5, _indent(lines, depth))


def _describe_class(node: ast.ClassDef, *, methods: bool) -> list[str]:
    lines = []
    for inner in _iterate_statements(node.body):
        if isinstance(inner, Function):
            lines += _describe_function(inner) if methods or inner.name in _CONSTRUCTORS else []
        else:
            lines += _describe_constant(inner)
    header = _describe_header(node)
    return [*header, *_indent(lines, 1)] if lines else [*header[:-1], f"{header[-1]} ..."]


def _describe_header(node: ast.ClassDef) -> list[str]:
    empty = ast.ClassDef(**{**vars(node), "body": [ast.Pass()]})
    return _unparse(empty).removesuffix("\n    pass").split("\n")


def _describe_function(node: Function) -> list[str]:
    empty = type(node)(**{**vars(node), "body": [ast.Pass()]})
    return (_unparse(empty).removesuffix("\n    pass") + " ...").split("\n")


def _describe_constant(node: ast.stmt) -> list[str]:
    """Describe the names that an assignment binds, with a short value. Return nothing for other statements."""
    names = [name for name in _list_bound_names(node) if not _DUNDER.fullmatch(name)]
    if isinstance(node, Definition | ast.Import | ast.ImportFrom) or not names:
        return []
    value = getattr(node, "value", None)
    text = "..."
    if isinstance(value, ast.expr) and value.end_lineno == value.lineno and len(names) == 1:
        text = _unparse(value)
    if len(text) > _MAX_VALUE:
        text = "..."
    annotation = f": {_unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
    if annotation and value is None:
        return [f"{names[0]}{annotation}"]
    return [f"{name}{annotation} = {text}" for name in names]


def _list_bound_names(node: ast.stmt) -> list[str]:
    """Return the names that a definition or an assignment binds."""
    if isinstance(node, Definition):
        return [node.name]
    targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [part.id for part in walk(targets) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]


def _iterate_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    return (part.id for part in walk(nodes) if isinstance(part, ast.Name))


def _indent(lines: Iterable[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]


class _Shortener(ast.NodeTransformer):
    """Replaces strings that may be sentences, or are long, with `...`."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, bytes):
            return ast.Constant(...) if len(node.value) > _MAX_STRING else node
        is_text = isinstance(node.value, str) and (len(node.value) > _MAX_STRING or _TWO_WORDS.search(node.value))
        return ast.Constant(...) if is_text else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:  # noqa: ARG002
        return ast.Constant(...)


def _unparse(node: ast.AST) -> str:
    """Return the source of a node without long strings. Each line is shortened."""
    try:
        text = ast.unparse(ast.fix_missing_locations(_Shortener().visit(copy.deepcopy(node))))
    except (RecursionError, ValueError):
        return "..."
    return "\n".join(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..." for line in text.split("\n"))
