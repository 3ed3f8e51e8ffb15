"""Create versions of a snippet: one that records entries, and mutants.

Mutants are replacements that cannot be right, and small changes that are probably wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from agent.languages.base import MutantKind, Mutation, Snippet
from agent.languages.javascript.insertion import Fragment, iterate_fragments
from agent.languages.javascript.syntax import (
    BLOCK,
    IGNORED,
    NAMES,
    Edit,
    apply_edits,
    describe_shape,
    find_bindings,
    get_text,
    is_callback,
    iterate_functions,
    walk,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_CHARACTERS = 20_000
"""Maximum length of a snippet to which small changes are made, in characters. Longer snippets are only replaced."""

Change = tuple[str, str, list[Edit]]
_REPLACEMENTS = {
    MutantKind.RETURNS_NOTHING: ("it returns nothing", "return;"),
    MutantKind.RETURNS_FIRST_ARGUMENT: ("it returns its first argument", "return {first};"),
    MutantKind.RAISES: ("it raises", "throw new Error('this stand-in always throws');"),
}
"""What each mutant does, and the body of its functions."""
_OPPOSITES = {
    "swapped_comparison": ("< >=", "> <=", "=== !==", "== !="),
    "swapped_arithmetic": ("+ -", "* /", "+= -=", "++ --"),
    "swapped_and_or": ("&& ||",),
    "swapped_truth": ("true false",),
}
_CHANGES = {
    old: (kind, new)
    for kind, pairs in _OPPOSITES.items()
    for pair in pairs
    for old, new in (pair.split(), pair.split()[::-1])
}
"""Operators and values, with the kind of a small change and the new text."""
_MAX_QUOTED = 80


def write_entries(nodes: Iterable[Node]) -> list[Edit]:
    """Return edits that make each function record its entry first."""
    edits: list[Edit] = []
    for _, body in iterate_functions(nodes):
        start, end = body.start_byte, body.end_byte
        if body.type == BLOCK:
            edits.append((start + 1, start + 1, " __enterSnippet(); "))
        else:
            edits += [(start, start, "(__enterSnippet(),"), (end, end, ")")]
    return edits


def create_mutants(code: str, grammar: str) -> Iterator[Mutation]:
    """Iterate over mutants of normalised code: replacements first, then small changes of alternating kinds.

    Each mutant parses in a place where the snippet may stand. All mutants differ from each other and from the snippet.
    """
    fragment = next(iterate_fragments(code, grammar), None)
    if fragment is None:
        return
    seen = [describe_shape(fragment.nodes)]
    small = _write_small_changes(fragment) if len(code) <= MAX_CHARACTERS else ()
    for kind, change, edits in chain(_write_replacements(fragment), small):
        text = fragment.edit(edits)
        mutant = next(iterate_fragments(text, grammar), None)
        if mutant is not None and (shape := describe_shape(mutant.nodes)) not in seen:
            seen.append(shape)
            yield Mutation(kind, change, Snippet(text))


def _write_replacements(fragment: Fragment) -> Iterator[Change]:
    functions = _find_replaceable(fragment)
    if not functions:
        names = ", ".join(find_bindings(fragment.nodes))
        whole = fragment.nodes[0].start_byte, fragment.nodes[-1].end_byte
        yield MutantKind.RETURNS_NOTHING, "it does nothing", [(*whole, f"var {names};" if names else ";")]
        change, statement = _REPLACEMENTS[MutantKind.RAISES]
        yield MutantKind.RAISES, change, [(*whole, statement)]
        return
    for kind, (change, statement) in _REPLACEMENTS.items():
        edits = []
        for node, body in functions:
            first = _find_first_parameter(node)
            if kind is not MutantKind.RETURNS_FIRST_ARGUMENT or first not in (None, get_text(body)):
                edits.append(_replace_body(body, statement.format(first=first)))
        if edits:
            yield kind, change, edits


def _find_replaceable(fragment: Fragment) -> list[tuple[Node, Node]]:
    """Return the outermost functions that are neither callbacks nor constructors, or all outermost functions.

    A wrapper that is called where it is written returns what its functions are.
    """
    functions: list[tuple[Node, Node]] = []
    for node, body in iterate_functions(fragment.nodes):
        name = node.child_by_field_name("name")
        is_constructor = name is not None and get_text(name) == "constructor"
        is_inner = functions and node.start_byte < functions[-1][0].end_byte
        if not (is_constructor or is_inner or is_callback(node)):
            functions.append((node, body))
    return functions or list(iterate_functions(fragment.nodes, nested=False))


def _write_small_changes(fragment: Fragment) -> Iterator[Change]:
    """Write small changes of alternating kinds, so that the first few are diverse."""
    by_kind: dict[str, list[Change]] = {}
    for node in walk(fragment.nodes):
        for kind, edit in _find_small_changes(node):
            line = node.start_point.row + 1 - fragment.before.count("\n")
            text = apply_edits(get_text(node), [edit], node.start_byte)
            change = f"line {line}: {_quote(get_text(node))} became {_quote(text)}"
            by_kind.setdefault(kind, []).append((kind, change, [edit]))
    for turn in zip_longest(*by_kind.values()):
        yield from (change for change in turn if change is not None)


def _quote(text: str) -> str:
    text = " ".join(text.split())
    return f"`{text}`" if len(text) <= _MAX_QUOTED else f"`{text[:_MAX_QUOTED]}…`"


def _find_small_changes(node: Node) -> Iterator[tuple[str, Edit]]:
    condition, operator = (node.child_by_field_name(name) for name in ("condition", "operator"))
    target = operator or node
    if target.type in _CHANGES and (operator is not None or node.is_named):
        kind, new = _CHANGES[target.type]
        yield kind, (target.start_byte, target.end_byte, new)
    if node.type == "number" and get_text(node).isascii() and get_text(node).isdigit():
        yield "off_by_one", (node.start_byte, node.end_byte, str(int(get_text(node)) + 1))
    if condition is not None and node.type in ("if_statement", "ternary_expression"):
        yield "negated_condition", (condition.start_byte, condition.end_byte, f"(!{get_text(condition)})")


def _replace_body(body: Node, statement: str) -> Edit:
    """Return the edit that replaces a body with one statement."""
    if body.type == BLOCK:
        return body.start_byte + 1, body.end_byte - 1, f" {statement} "
    return body.start_byte, body.end_byte, f"{{ {statement} }}"


def _find_first_parameter(function: Node) -> str | None:
    """Return the name of a function's first parameter, or None if it has no name."""
    single, several = (function.child_by_field_name(name) for name in ("parameter", "parameters"))
    nodes = [single] if single is not None else [] if several is None else several.named_children
    for node in nodes:
        if node.type in IGNORED:
            continue
        for field in ("pattern", "left"):  # a typed parameter, or one with a default value
            node = node.child_by_field_name(field) or node
        return get_text(node) if node.type in NAMES else None
    return None
