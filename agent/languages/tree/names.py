"""Find the names that code binds and uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agent.languages.tree.syntax import Syntax, get_text, walk

if TYPE_CHECKING:
    from tree_sitter import Node


def find_bindings(nodes: Iterable[Node], syntax: Syntax, *, nested: bool = False) -> dict[str, Node]:
    """Return the names that code binds in its own scope, in order, with the nodes that bind them last.

    With `nested`, includes the names that functions and classes in the code bind, and their parameters.
    """
    inner = syntax.functions | syntax.classes
    bindings: dict[str, Node] = {}
    for node in (part for root in nodes for part in walk(root, lambda part: nested or part.type not in inner)):
        for field in syntax.binders.get(node.type, ()):
            target = node.child_by_field_name(field) if field else node
            if target is not None:
                names = iterate_names(target, syntax) if target.child_count else [get_text(target)]
                bindings.update((name, node) for name in names)
                break
    return bindings


def iterate_names(node: Node, syntax: Syntax) -> Iterator[str]:
    """Iterate over the names in a node, without the names of attributes."""
    return (get_text(part) for part in walk(node) if part.type in syntax.names)


def find_used_names(nodes: Iterable[Node], syntax: Syntax) -> list[str]:
    """Return the names that code uses but does not bind, in order of first use."""
    nodes = list(nodes)
    bound = find_bindings(nodes, syntax, nested=True)
    names = dict.fromkeys(name for node in nodes for name in iterate_names(node, syntax))
    return [name for name in names if name not in bound]
