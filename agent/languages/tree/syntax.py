"""Parse code with a tree-sitter grammar, compare and search syntax trees, and edit code.

Trees are walked without recursion, because hostile code can be nested as deeply as the parser allows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from agent.errors import needs_extra
from agent.languages.base import MutantKind

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Node

Shape = list[tuple[str, int | bytes]]
Edit = tuple[int, int, str]
"""The first byte, the byte after the last one, and the replacement."""


@dataclass(frozen=True)
class Context:
    """A place where a snippet may stand: the text around it that makes up a program, and the types of its parent."""

    before: str
    after: str
    parents: frozenset[str]


@dataclass(frozen=True)
class Syntax:
    """The tables that describe a grammar.

    `grammar` is `module:function` of the grammar's wheel. `contexts` lists the places where a snippet may stand. All
    other sets contain types of nodes. `returns` are `return` statements. `misread` contains the types of a node and its
    child which show that code is no statement. `unfinished` may continue on the next line in ways that the grammar
    ignores. `functions` may have a `body`, `blocks` are bodies in braces, and `arguments` may contain a callback.
    `ignored` are comments and separators. `binders` maps nodes that bind names to the fields that may contain these
    names, or to an empty text for the whole node. `inner_binders` bind names only inside themselves.

    `changes` maps an operator or the type of a token to the kind of a small change and the new text. `negation` negates
    a condition (`%s`). `replacements` are bodies of mutants, where `{first}` is the first parameter. `empty` replaces
    statements that bind `{names}`. `entry` is the statement that records an entry into the snippet. `entry_expression`
    does so for a body without braces.
    """

    grammar: str
    contexts: tuple[Context, ...]
    functions: frozenset[str]
    blocks: frozenset[str]
    arguments: frozenset[str]
    classes: frozenset[str]
    misread: frozenset[tuple[str, str]]
    unfinished: frozenset[str]
    names: frozenset[str]
    binders: Mapping[str, tuple[str, ...]]
    inner_binders: Mapping[str, tuple[str, ...]]
    ignored: frozenset[str]
    numbers: frozenset[str]
    constructors: frozenset[str]
    changes: Mapping[str, tuple[str, str]]
    entry: str
    entry_expression: tuple[str, str]
    replacements: Mapping[MutantKind, str]
    empty: str
    negation: str
    returns: frozenset[str] = frozenset({"return_statement"})


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


def walk(node: Node, enters: Callable[[Node], bool] = lambda _: True) -> Iterator[Node]:
    """Iterate over a node and its descendants in order, except the descendants of nodes that `enters` rejects."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        if enters(node):
            pending.extend(reversed(node.children))


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
    errors = (node for node in walk(root, lambda node: node.has_error) if node.is_error or node.is_missing)
    return next(errors, root).start_point.row + 1


def find_outermost(root: Node, rows: range) -> tuple[Node, ...]:
    """Return the outermost nodes within a range of rows (0-based), or an empty tuple if a token crosses its border."""
    start, end = (rows.start, 0), (rows.stop, 0)
    outermost, pending = [], [root]
    while pending:
        node = pending.pop()
        if node is not root and start <= node.start_point < node.end_point <= end:
            outermost.append(node)
        elif node.start_point < end and node.end_point > start:
            if not node.children:
                return ()
            pending.extend(reversed(node.children))
    return tuple(outermost)


def describe_shape(nodes: Iterable[Node], ignored: frozenset[str] = frozenset()) -> Shape:
    """Return trees in preorder, with the texts of tokens and the number of children of other nodes."""
    return [
        (part.type, part.child_count or part.text or b"")
        for node in nodes
        for part in walk(node, lambda node: node.type not in ignored)
        if part.type not in ignored
    ]


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits, whose ranges do not overlap, to text."""
    data = encode(text)
    for start, end, new in sorted(edits, key=lambda edit: edit[0], reverse=True):
        data = data[:start] + encode(new) + data[end:]
    return data.decode("utf-8", "surrogatepass")


def find_bindings(nodes: Iterable[Node], syntax: Syntax, *, nested: bool = False) -> dict[str, Node]:
    """Return the names that code binds in its own scope, in order, with the nodes that bind them last.

    With `nested`, includes the names that functions and classes in the code bind, and their parameters.
    """
    inner = syntax.functions | syntax.classes
    binders = {**syntax.binders, **syntax.inner_binders} if nested else syntax.binders
    bindings: dict[str, Node] = {}
    for node in (part for root in nodes for part in walk(root, lambda part: nested or part.type not in inner)):
        for field in binders.get(node.type, ()):
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
