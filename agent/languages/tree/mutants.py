"""Create mutants of a snippet: replacements that cannot be right, and small changes that are probably wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING

from agent.languages.base import MutantKind, Mutation, Snippet
from agent.languages.tree.functions import (
    find_first_parameter,
    is_callback,
    iterate_functions,
    replace_body,
)
from agent.languages.tree.insertion import Fragment, iterate_fragments
from agent.languages.tree.names import find_bindings
from agent.languages.tree.syntax import Edit, Syntax, apply_edits, describe_shape, encode, get_text, walk

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_CHARACTERS = 20_000
"""Maximum length of a snippet to which small changes are made, in characters. Longer snippets are only replaced."""

Change = tuple[str, str, list[Edit]]
_CHANGES = {
    MutantKind.RETURNS_NOTHING: "it returns nothing",
    MutantKind.RETURNS_FIRST_ARGUMENT: "it returns its first argument",
    MutantKind.RAISES: "it raises",
}
_MAX_QUOTED = 80


def create_mutants(code: str, limit: int, syntax: Syntax) -> tuple[Mutation, ...]:
    """Create at most `limit` mutants of normalised code: replacements first, then small changes of alternating kinds.

    Each mutant parses in a place where the snippet may stand. All mutants differ from each other and from the snippet.
    """
    fragment = next(iterate_fragments(code, syntax), None)
    return () if fragment is None else tuple(islice(_iterate_distinct(code, fragment, syntax), limit))


def _iterate_distinct(code: str, fragment: Fragment, syntax: Syntax) -> Iterator[Mutation]:
    seen = [describe_shape(fragment.nodes, syntax.ignored)]
    small = _write_small_changes(fragment, syntax) if len(code) <= MAX_CHARACTERS else ()
    for kind, change, edits in chain(_write_replacements(code, fragment, syntax), small):
        text = apply_edits(code, [(start - fragment.shift, end - fragment.shift, new) for start, end, new in edits])
        mutant = next(iterate_fragments(text, syntax), None)
        if mutant is not None and (shape := describe_shape(mutant.nodes, syntax.ignored)) not in seen:
            seen.append(shape)
            yield Mutation(kind, change, Snippet(text))


def _write_replacements(code: str, fragment: Fragment, syntax: Syntax) -> Iterator[Change]:
    outer = list(iterate_functions(fragment.nodes, syntax, nested=False))
    if all(is_callback(node, syntax) for node, _ in outer):
        # a wrapper that is called where it is written returns what its functions are
        inner = iterate_functions(fragment.nodes, syntax)
        outer = _remove_nested([(node, body) for node, body in inner if not is_callback(node, syntax)])
    functions = [(node, body) for node, body in outer if not _is_constructor(node, syntax)] or outer
    if not functions:
        names = ", ".join(find_bindings(fragment.nodes, syntax))
        whole = fragment.shift, fragment.shift + len(encode(code))
        yield (
            MutantKind.RETURNS_NOTHING,
            "it does nothing",
            [(*whole, syntax.empty.format(names=names) if names else ";")],
        )
        yield MutantKind.RAISES, _CHANGES[MutantKind.RAISES], [(*whole, syntax.replacements[MutantKind.RAISES])]
        return
    for kind, change in _CHANGES.items():
        edits = []
        for node, body in functions:
            first = find_first_parameter(node, syntax)
            if kind is not MutantKind.RETURNS_FIRST_ARGUMENT:
                edits.append(replace_body(body, syntax.replacements[kind], syntax))
            elif first is not None and get_text(body) != first:
                edits.append(replace_body(body, syntax.replacements[kind].format(first=first), syntax))
        if edits:
            yield kind, change, edits


def _remove_nested(functions: list[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
    """Remove the functions inside other functions of an ordered list."""
    outer: list[tuple[Node, Node]] = []
    for node, body in functions:
        if not outer or node.start_byte >= outer[-1][0].end_byte:
            outer.append((node, body))
    return outer


def _is_constructor(function: Node, syntax: Syntax) -> bool:
    name = function.child_by_field_name("name")
    return name is not None and get_text(name) in syntax.constructors


def _write_small_changes(fragment: Fragment, syntax: Syntax) -> Iterator[Change]:
    """Write small changes of alternating kinds, so that the first few are diverse."""
    by_kind: dict[str, list[Change]] = {}
    for node in (part for root in fragment.nodes for part in walk(root)):
        for kind, edit in _find_small_changes(node, syntax):
            line, (start, end, new) = node.start_point.row + 1 - fragment.context.before.count("\n"), edit
            text = apply_edits(get_text(node), [(start - node.start_byte, end - node.start_byte, new)])
            change = f"line {line}: {_quote(get_text(node))} became {_quote(text)}"
            by_kind.setdefault(kind, []).append((kind, change, [edit]))
    for turn in zip_longest(*by_kind.values()):
        yield from (change for change in turn if change is not None)


def _quote(text: str) -> str:
    text = " ".join(text.split())
    return f"`{text}`" if len(text) <= _MAX_QUOTED else f"`{text[:_MAX_QUOTED]}…`"


def _find_small_changes(node: Node, syntax: Syntax) -> Iterator[tuple[str, Edit]]:
    operator, text = node.child_by_field_name("operator"), get_text(node) if node.child_count == 0 else ""
    condition = node.child_by_field_name("condition")
    if operator is not None and operator.type in syntax.changes:
        kind, new = syntax.changes[operator.type]
        yield kind, (operator.start_byte, operator.end_byte, new)
    if node.type in syntax.constants:
        kind, new = syntax.constants[node.type]
        yield kind, (node.start_byte, node.end_byte, new)
    if node.type in syntax.numbers and text.isascii() and text.isdigit():
        yield "off_by_one", (node.start_byte, node.end_byte, str(int(text) + 1))
    if condition is not None and node.type in ("if_statement", "ternary_expression"):
        yield "negated_condition", (condition.start_byte, condition.end_byte, syntax.negation % get_text(condition))
