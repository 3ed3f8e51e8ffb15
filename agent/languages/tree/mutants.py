"""Create mutants of a snippet: replacements that cannot be right, and small changes that are probably wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from agent.languages.base import MutantKind, Mutation, Snippet
from agent.languages.tree.insertion import Fragment, iterate_fragments
from agent.languages.tree.syntax import (
    Edit,
    Syntax,
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
_CHANGES = {
    MutantKind.RETURNS_NOTHING: "it returns nothing",
    MutantKind.RETURNS_FIRST_ARGUMENT: "it returns its first argument",
    MutantKind.RAISES: "it raises",
}
_MAX_QUOTED = 80


def create_mutants(code: str, syntax: Syntax) -> Iterator[Mutation]:
    """Iterate over mutants of normalised code: replacements first, then small changes of alternating kinds.

    Each mutant parses in a place where the snippet may stand. All mutants differ from each other and from the snippet.
    """
    fragment = next(iterate_fragments(code, syntax), None)
    if fragment is None:
        return
    seen = [describe_shape(fragment.nodes, syntax.ignored)]
    small = _write_small_changes(fragment, syntax) if len(code) <= MAX_CHARACTERS else ()
    for kind, change, edits in chain(_write_replacements(fragment, syntax), small):
        text = apply_edits(code, [(start - fragment.shift, end - fragment.shift, new) for start, end, new in edits])
        mutant = next(iterate_fragments(text, syntax), None)
        if mutant is not None and (shape := describe_shape(mutant.nodes, syntax.ignored)) not in seen:
            seen.append(shape)
            yield Mutation(kind, change, Snippet(text))


def _write_replacements(fragment: Fragment, syntax: Syntax) -> Iterator[Change]:
    functions = _find_replaceable(fragment, syntax)
    if not functions:
        names = ", ".join(find_bindings(fragment.nodes, syntax))
        whole = fragment.nodes[0].start_byte, fragment.nodes[-1].end_byte
        empty = syntax.empty.format(names=names) if names else ";"
        yield MutantKind.RETURNS_NOTHING, "it does nothing", [(*whole, empty)]
        yield MutantKind.RAISES, _CHANGES[MutantKind.RAISES], [(*whole, syntax.replacements[MutantKind.RAISES])]
        return
    for kind, change in _CHANGES.items():
        edits = []
        for node, body in functions:
            first = _find_first_parameter(node, syntax)
            if kind is not MutantKind.RETURNS_FIRST_ARGUMENT or first not in (None, get_text(body)):
                edits.append(_replace_body(body, syntax.replacements[kind].format(first=first), syntax))
        if edits:
            yield kind, change, edits


def _find_replaceable(fragment: Fragment, syntax: Syntax) -> list[tuple[Node, Node]]:
    """Return the outermost functions that are neither callbacks nor constructors, or all outermost functions.

    A wrapper that is called where it is written returns what its functions are.
    """
    functions: list[tuple[Node, Node]] = []
    for node, body in iterate_functions(fragment.nodes, syntax):
        name = node.child_by_field_name("name")
        is_constructor = name is not None and get_text(name) in syntax.constructors
        is_inner = functions and node.start_byte < functions[-1][0].end_byte
        if not (is_constructor or is_inner or is_callback(node, syntax)):
            functions.append((node, body))
    return functions or list(iterate_functions(fragment.nodes, syntax, nested=False))


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
    condition, operator = (node.child_by_field_name(name) for name in ("condition", "operator"))
    target = operator or node
    if target.type in syntax.changes and (operator is not None or node.is_named):
        kind, new = syntax.changes[target.type]
        yield kind, (target.start_byte, target.end_byte, new)
    if node.type in syntax.numbers and get_text(node).isascii() and get_text(node).isdigit():
        yield "off_by_one", (node.start_byte, node.end_byte, str(int(get_text(node)) + 1))
    if condition is not None and node.type in ("if_statement", "ternary_expression"):
        yield "negated_condition", (condition.start_byte, condition.end_byte, syntax.negation % get_text(condition))


def _replace_body(body: Node, statement: str, syntax: Syntax) -> Edit:
    """Return the edit that replaces a body with one statement."""
    if body.type in syntax.blocks:
        return body.start_byte + 1, body.end_byte - 1, f" {statement} "
    return body.start_byte, body.end_byte, f"{{ {statement} }}"


def _find_first_parameter(function: Node, syntax: Syntax) -> str | None:
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
