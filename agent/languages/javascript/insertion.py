"""Replace the marker in a program with a snippet, and verify that the snippet is unchanged.

The snippet is unchanged if its outermost syntax trees in the program equal those of the snippet alone in one of the
places where a snippet may stand. Equal tokens are not sufficient, because two statements can join across lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.languages.base import MalformedProgram, find_marker
from agent.languages.javascript.syntax import (
    IGNORED,
    Edit,
    apply_edits,
    describe_shape,
    encode,
    find_bindings,
    find_error,
    parse,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_CHARACTERS = 50_000
"""Maximum length of a snippet and of a program without the snippet, in characters."""

_CONTEXTS = {
    ("", ""): {"program", "statement_block", "class_static_block", "switch_case"},
    ("(\n", ")"): {"parenthesized_expression", "arguments", "variable_declarator"},
    ("class C {\n", "}"): {"class_body"},
    ("({\n", "})"): {"object"},
}
"""The places where a snippet may stand: text around it that makes up a program, and the types of its parent."""
_MISREAD = {
    ("expression_statement", "function_expression"), ("expression_statement", "generator_function"),
    ("expression_statement", "class"), ("labeled_statement", "expression_statement"),
    ("labeled_statement", "function_declaration"),
}  # fmt: skip
"""A node and its child which show that code is no statement."""
_UNFINISHED = {"field_definition", "public_field_definition"}
"""Nodes that may continue on the next line in ways that the grammar ignores."""


@dataclass(frozen=True)
class Fragment:
    """A snippet that is parsed in a place where it may stand. `before` is the text before the snippet in the tree.

    `nodes` are the snippet's outermost trees, and `parents` the types that their parent may have.
    """

    code: str
    before: str
    parents: set[str]
    nodes: tuple[Node, ...]

    def edit(self, edits: Iterable[Edit]) -> str:
        """Return the snippet with these edits, whose positions are those of the tree."""
        return apply_edits(self.code, edits, len(encode(self.before)))


@dataclass(frozen=True)
class Placement:
    """A program that contains the snippet in `lines` (1-based). `nodes` are the snippet's outermost trees."""

    source: str
    lines: range
    root: Node
    nodes: tuple[Node, ...]

    @property
    def around(self) -> list[Node]:
        """The program's statements apart from those of the snippet. One of them may contain the snippet."""
        return [node for node in self.root.named_children if not self.is_of_snippet(node)]

    @property
    def is_at_top(self) -> bool:
        """Whether the snippet stands outside all other statements."""
        return all(node.parent == self.root for node in self.nodes)

    def is_of_snippet(self, node: Node) -> bool:
        """Return whether a node starts in the snippet."""
        return node.start_point.row + 1 in self.lines

    def find_surrounding_names(self) -> dict[str, Node]:
        """Return the names that the program binds outside the snippet, with the nodes that bind them."""
        bindings = find_bindings(self.around)
        return {name: node for name, node in bindings.items() if not self.is_of_snippet(node)}


def normalise(text: str) -> str:
    """Remove a byte order mark and convert newlines to `\\n`. Idempotent."""
    return text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")


def iterate_fragments(code: str, grammar: str) -> Iterator[Fragment]:
    """Parse normalised code in each place where it may stand. Skips places where it does not parse."""
    for (before, after), parents in _CONTEXTS.items():
        root = parse(f"{before}{code}\n{after}", grammar)
        first = before.count("\n")
        nodes = () if root.has_error else _find_outermost(root, range(first, first + code.count("\n") + 1))
        if any((node.type, child.type) in _MISREAD for node in nodes for child in node.children):
            continue
        if _find_parent(nodes) in parents and any(node.type not in IGNORED for node in nodes):
            yield Fragment(code, before, parents, nodes)


def locate_snippet(source: str, lines: range, grammar: str) -> Placement:
    """Parse a program that contains a snippet in these lines (1-based)."""
    root = parse(source, grammar)
    return Placement(source, lines, root, _find_outermost(root, range(lines.start - 1, lines.stop - 1)))


def place_snippet(template: str, code: str, grammar: str, marker: str) -> Placement:
    """Insert normalised code at the marker of a template.

    Raises:
        MalformedProgram: the marker or the syntax is wrong, or the insertion would change the snippet.
    """
    template = normalise(template)
    if len(template) > MAX_CHARACTERS:
        raise MalformedProgram(f"the program has {len(template):,} characters; the limit is {MAX_CHARACTERS:,}")
    lines = template.split("\n")
    row = find_marker(lines, marker)
    span = range(row + 1, row + 2 + code.count("\n"))
    placement = locate_snippet("\n".join([*lines[:row], code, *lines[row + 1 :]]), span, grammar)
    if (line := find_error(placement.root)) is not None:
        raise MalformedProgram(_describe_error(line, span, placement.source))
    nodes = placement.nodes
    shape, parent = describe_shape(nodes), _find_parent(nodes)
    fragments = (fragment for fragment in iterate_fragments(code, grammar) if parent in fragment.parents)
    if _joins(nodes) or all(shape != describe_shape(fragment.nodes) for fragment in fragments):
        raise MalformedProgram(
            f"the candidate would be changed at `{marker}`: end the statement before the marker with a semicolon, and "
            "put the marker where the candidate is allowed"
        )
    return placement


def _find_outermost(root: Node, rows: range) -> tuple[Node, ...]:
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


def _find_parent(nodes: Sequence[Node]) -> str | None:
    """Return the type of the parent that nodes share, or None if they have several parents."""
    parents = {node.parent for node in nodes}
    return next(iter(parents)).type if len(parents) == 1 and None not in parents else None  # type: ignore[union-attr]


def _joins(nodes: Sequence[Node]) -> bool:
    """Return whether a node before the snippet, or its last one, may continue on the next line."""
    before, after = (nodes[0].prev_sibling, nodes[-1].next_sibling) if nodes else (None, None)
    is_followed = after is not None and after.is_named and nodes[-1].type in _UNFINISHED
    return is_followed or (before is not None and before.type in _UNFINISHED)


def _describe_error(line: int, span: range, source: str) -> str:
    """Describe a syntax error to the author of the template, with its line in the template."""
    text = source.split("\n")[line - 1].strip()[:120]
    if line in span:
        return f"the program does not parse with the candidate inserted, at `{text}`"
    return f"the program does not parse, in line {line if line < span.start else line - len(span) + 1}: `{text}`"
