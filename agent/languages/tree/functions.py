"""Find the functions of a syntax tree, and write versions of code with other bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from agent.languages.tree.syntax import Edit, Syntax, get_text, walk

if TYPE_CHECKING:
    from tree_sitter import Node


def iterate_functions(nodes: Iterable[Node], syntax: Syntax, *, nested: bool = True) -> Iterator[tuple[Node, Node]]:
    """Iterate over functions that have a body, with their bodies. Skips inner functions unless `nested` is true."""
    roots = (walk(root, lambda part: nested or part.type not in syntax.functions) for root in nodes)
    for node in chain.from_iterable(roots):
        body = node.child_by_field_name("body") if node.type in syntax.functions else None
        if body is not None:
            yield node, body


def is_callback(function: Node, syntax: Syntax) -> bool:
    """Return whether a function is an argument of a call, or is called where it is written."""
    node, parent = function, function.parent
    while parent is not None and parent.type == "parenthesized_expression":
        node, parent = parent, parent.parent
    if parent is None:
        return False
    return parent.type in syntax.arguments or parent.child_by_field_name("function") == node


def does_work(nodes: Iterable[Node], syntax: Syntax) -> bool:
    """Return whether loading code does more than define, import and assign."""
    parts = (part for node in nodes for part in walk(node, lambda part: part.type not in syntax.functions))
    return any(part.type in syntax.working for part in parts)


def add_entries(nodes: Iterable[Node], syntax: Syntax) -> list[Edit]:
    """Return edits that make each function record its entry first."""
    edits: list[Edit] = []
    for _, body in iterate_functions(nodes, syntax):
        if body.type in syntax.blocks:
            edits.append((body.start_byte + 1, body.start_byte + 1, f" {syntax.entry} "))
        else:
            before, after = syntax.entry_expression
            edits += [(body.start_byte, body.start_byte, before), (body.end_byte, body.end_byte, after)]
    return edits


def replace_body(body: Node, statement: str, syntax: Syntax) -> Edit:
    """Return the edit that replaces a body with one statement."""
    if body.type in syntax.blocks:
        return body.start_byte + 1, body.end_byte - 1, f" {statement} "
    return body.start_byte, body.end_byte, f"{{ {statement} }}"


def find_first_parameter(function: Node, syntax: Syntax) -> str | None:
    """Return the name of a function's first parameter, or None if it has no name."""
    single, several = (function.child_by_field_name(name) for name in ("parameter", "parameters"))
    nodes = [single] if single is not None else [] if several is None else several.named_children
    for node in nodes:
        if node.type in syntax.ignored:
            continue
        for field in ("pattern", "left"):  # a typed parameter, or one with a default value
            node = node.child_by_field_name(field) or node
        return get_text(node) if node.type in syntax.names else None
    return None
