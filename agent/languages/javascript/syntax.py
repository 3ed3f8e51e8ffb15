"""Parse JavaScript and TypeScript with tree-sitter, compare and search syntax trees, and edit code.

Trees are walked without recursion, because hostile code can be nested as deeply as the parser allows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from agent.errors import needs_extra

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Node

Edit = tuple[int, int, str]
"""The first byte, the byte after the last one, and the replacement."""

JAVASCRIPT = "tree_sitter_javascript:language"
TYPESCRIPT = "tree_sitter_typescript:language_typescript"
TSX = "tree_sitter_typescript:language_tsx"

FUNCTIONS = frozenset({
    "function_declaration", "function_expression", "arrow_function", "method_definition", "generator_function",
    "generator_function_declaration",
})  # fmt: skip
CLASSES = frozenset({"class_declaration", "class", "abstract_class_declaration"})
SCOPES = FUNCTIONS | CLASSES
NAMES = frozenset({"identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"})
IGNORED = frozenset({"comment", "html_comment", ";", ","})
"""Comments and separators."""
BLOCK = "statement_block"

_BINDERS = {
    "variable_declarator": ("name",), "using_declaration": ("name",), "function_declaration": ("name",),
    "generator_function_declaration": ("name",), "class_declaration": ("name",),
    "abstract_class_declaration": ("name",), "import_specifier": ("alias", "name"), "namespace_import": ("",),
    "import_clause": ("",), "for_in_statement": ("left",), "catch_clause": ("parameter",),
}  # fmt: skip
"""Nodes that bind names, with the fields that may contain the names. An empty text is the whole node."""
_INNER_BINDERS = {
    "function_expression": ("name",), "class": ("name",), "arrow_function": ("parameter",), "formal_parameters": ("",),
}  # fmt: skip
"""Nodes that bind names only inside themselves."""


@cache
def _load_grammar(grammar: str) -> Grammar:
    module, _, name = grammar.partition(":")
    with needs_extra("languages"):
        from tree_sitter import Language

        return Language(getattr(importlib.import_module(module), name)())


def parse(text: str, grammar: str) -> Node:
    """Parse code. The tree contains error nodes if the code is malformed.

    Raises:
        ExtraMissing: the grammar is not installed.
    """
    language = _load_grammar(grammar)
    from tree_sitter import Parser

    return Parser(language).parse(encode(text)).root_node


def encode(text: str) -> bytes:
    """Encode text. Lone surrogates become bytes that no grammar accepts outside strings and comments."""
    return text.encode("utf-8", "surrogatepass")


def get_text(node: Node) -> str:
    """Return the source of a node."""
    return (node.text or b"").decode("utf-8", "replace")


def get_name(node: Node) -> str:
    """Return the text of a node without children, or an empty text."""
    return "" if node.child_count else get_text(node)


def walk(nodes: Iterable[Node], enters: Callable[[Node], bool] = lambda _: True) -> Iterator[Node]:
    """Iterate over nodes and their descendants in order, except the descendants of nodes that `enters` rejects."""
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        yield node
        if enters(node):
            pending.extend(reversed(node.children))


def walk_outside_functions(nodes: Iterable[Node]) -> Iterator[Node]:
    """Iterate over functions and all nodes outside functions."""
    return walk(nodes, lambda node: node.type not in FUNCTIONS)


def iterate_ancestors(node: Node) -> Iterator[Node]:
    """Iterate over the ancestors of a node, nearest first."""
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def find_error(root: Node) -> int | None:
    """Return the line of the first syntax error (1-based), or None."""
    if not root.has_error:
        return None
    errors = (node for node in walk([root], lambda node: node.has_error) if node.is_error or node.is_missing)
    return next(errors, root).start_point.row + 1


def describe_shape(nodes: Iterable[Node]) -> list[tuple[str, int | bytes]]:
    """Return trees in preorder, with the texts of tokens and the number of children of other nodes."""
    parts = walk(nodes, lambda node: node.type not in IGNORED)
    return [(part.type, part.child_count or part.text or b"") for part in parts if part.type not in IGNORED]


def apply_edits(text: str, edits: Iterable[Edit], shift: int = 0) -> str:
    """Apply edits, whose ranges do not overlap, to text that starts at byte `shift`."""
    data = encode(text)
    for start, end, new in sorted(edits, key=lambda edit: edit[0], reverse=True):
        data = data[: start - shift] + encode(new) + data[end - shift :]
    return data.decode("utf-8", "surrogatepass")


def find_bindings(nodes: Iterable[Node], *, nested: bool = False) -> dict[str, Node]:
    """Return the names that code binds in its own scope, in order, with the nodes that bind them last.

    With `nested`, includes the names that functions and classes in the code bind, and their parameters.
    """
    binders = _BINDERS | _INNER_BINDERS if nested else _BINDERS
    bindings: dict[str, Node] = {}
    for node in walk(nodes, lambda part: nested or part.type not in SCOPES):
        for field in binders.get(node.type, ()):
            target = node.child_by_field_name(field) if field else node
            if target is not None:
                names = iterate_names([target]) if target.child_count else [get_text(target)]
                bindings.update((name, node) for name in names)
                break
    return bindings


def iterate_names(nodes: Iterable[Node]) -> Iterator[str]:
    """Iterate over the names in code, without the names of attributes."""
    return (get_text(part) for part in walk(nodes) if part.type in NAMES)


def find_used_names(nodes: Iterable[Node]) -> list[str]:
    """Return the names that code uses but does not bind, in order of first use."""
    nodes = list(nodes)
    bound = find_bindings(nodes, nested=True)
    return [name for name in dict.fromkeys(iterate_names(nodes)) if name not in bound]


def iterate_functions(nodes: Iterable[Node], *, nested: bool = True) -> Iterator[tuple[Node, Node]]:
    """Iterate over functions that have a body, with their bodies. Skips inner functions unless `nested` is true."""
    for node in walk(nodes) if nested else walk_outside_functions(nodes):
        body = node.child_by_field_name("body") if node.type in FUNCTIONS else None
        if body is not None:
            yield node, body


def is_callback(function: Node) -> bool:
    """Return whether a function is an argument of a call, or is called where it is written."""
    node, parent = function, function.parent
    while parent is not None and parent.type == "parenthesized_expression":
        node, parent = parent, parent.parent
    return parent is not None and (parent.type == "arguments" or parent.child_by_field_name("function") == node)
