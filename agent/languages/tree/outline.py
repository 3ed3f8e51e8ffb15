"""Find the functions of a source file, and write a snippet without the bodies of its functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.languages.base import FoundFunction
from agent.languages.tree.functions import is_callback, iterate_functions
from agent.languages.tree.insertion import iterate_fragments
from agent.languages.tree.syntax import (
    Edit,
    Syntax,
    apply_edits,
    describe_shape,
    find_error,
    get_text,
    iterate_ancestors,
    parse,
    walk,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_COMMENT_SIGNS = re.compile(r"^/\*\*+|\*+/$")
_LINE_SIGN = re.compile(r"(?m)^[ \t]*\*[ \t]?")
_PATH = re.compile(r"(?:(?P<owner>[\w$.]+?)\.)??(?:prototype\.)?(?P<name>#?[\w$]+)")
_MODULES = ("module", "exports", "module.exports", "window", "global", "globalThis")


def find_functions(source: str, limit: int, syntax: Syntax) -> Iterator[FoundFunction]:
    """Find the functions outside functions, with the documentation comments (`/** … */`) before them.

    Functions without a name, such as callbacks, are skipped.

    Raises:
        ValueError: the source exceeds `limit` characters or does not parse.
    """
    if len(source) > limit:
        raise ValueError(f"it has {len(source):,} characters; the limit is {limit:,}")
    root = parse(source, syntax.grammar)
    if (line := find_error(root)) is not None:
        raise ValueError(f"it does not parse, line {line}")
    for function, _ in iterate_functions([root], syntax, nested=False):
        found = None if is_callback(function, syntax) else _extract(function, source, syntax)
        if found is not None:
            yield found


def write_signature(code: str, syntax: Syntax) -> str | None:
    """Return normalised code without comments and the bodies of its functions, or None if it has no function."""
    fragment = next(iterate_fragments(code, syntax), None)
    functions = [] if fragment is None else list(iterate_functions(fragment.nodes, syntax, nested=False))
    if fragment is None or not functions:
        return None
    bodies = [body for _, body in functions]
    edits: list[Edit] = []
    for part in (part for node in fragment.nodes for part in walk(node, lambda part: part not in bodies)):
        if part in bodies or part.type == "comment":
            new = "" if part.type == "comment" else "{ ... }" if part.type in syntax.blocks else "..."
            edits.append((part.start_byte - fragment.shift, part.end_byte - fragment.shift, new))
    text = apply_edits(code, edits)
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def _extract(function: Node, source: str, syntax: Syntax) -> FoundFunction | None:
    statement = _find_statement(function)
    label = function.child_by_field_name("name") or _find_target(function)
    match = None if label is None else _PATH.fullmatch(get_text(label))
    if match is None:
        return None
    owner = match["owner"] if match["owner"] not in _MODULES else None
    names = [get_text(name) for part in iterate_ancestors(function) if part.type in syntax.classes
             and (name := part.child_by_field_name("name")) is not None]  # fmt: skip
    first, last = statement.start_point.row, statement.end_point.row
    return FoundFunction(
        name=match["name"],
        class_name=".".join(reversed(names)) or owner or None,
        docstring=_find_documentation(function, syntax),
        code=_dedent(statement, source, syntax),
        start_line=first + 1,
        end_line=last + 1,
    )


def _find_target(function: Node) -> Node | None:
    """Return the node that names a function expression: the name of a variable, an attribute or a member."""
    parent = function.parent
    if parent is None or function not in (parent.child_by_field_name("value"), parent.child_by_field_name("right")):
        return None
    return next(filter(None, map(parent.child_by_field_name, ("name", "left", "key", "property"))), None)


def _find_statement(function: Node) -> Node:
    """Return the statement or member that consists of a function."""
    node = function
    parent = node.parent
    while parent is not None and parent.type in _WRAPPERS and parent.named_child_count <= _WRAPPERS[parent.type]:
        node, parent = parent, parent.parent
    return function if node.type == "variable_declarator" else node  # one of several variables


_WRAPPERS = {
    "variable_declarator": 3,
    "lexical_declaration": 1,
    "variable_declaration": 1,
    "assignment_expression": 2,
    "expression_statement": 1,
    "pair": 2,
    "field_definition": 2,
    "public_field_definition": 4,
}
"""Nodes that contain a function, with their maximum number of children."""


def _find_documentation(node: Node, syntax: Syntax) -> str | None:
    """Return the text of the documentation comment directly before the outermost node that starts with `node`."""
    statement = _find_statement(node)
    parent = statement.parent
    while parent is not None and parent.type in ("export_statement", "decorated_definition"):
        statement, parent = parent, parent.parent
    comment = statement.prev_named_sibling
    while comment is not None and comment.type == "decorator":
        comment = comment.prev_named_sibling
    if comment is None or comment.type not in syntax.ignored or not get_text(comment).startswith("/**"):
        return None
    if statement.start_point.row - comment.end_point.row > 1:
        return None
    text = _LINE_SIGN.sub("", _COMMENT_SIGNS.sub("", get_text(comment)))
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def _dedent(statement: Node, source: str, syntax: Syntax) -> str | None:
    """Return the source of a statement at column 0, or None if this would change it."""
    first, *others = get_text(statement).split("\n")
    line = source.split("\n")[statement.start_point.row]
    indentation = line[: len(line) - len(line.lstrip())]
    code = "\n".join([first, *(part.removeprefix(indentation) for part in others)])
    shape = describe_shape([statement], syntax.ignored)
    shapes = (describe_shape(fragment.nodes, syntax.ignored) for fragment in iterate_fragments(code, syntax))
    return code if shape in shapes else None
