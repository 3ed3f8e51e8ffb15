"""Replace the marker in a program with a snippet, and verify that the snippet is unchanged.

The snippet is unchanged if its outermost syntax trees in the program equal those of the snippet alone in one of the
places where a snippet may stand. Equal tokens are not sufficient, because two statements can join across lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.languages.base import MalformedProgram, find_marker
from agent.languages.tree.syntax import (
    Context,
    Syntax,
    describe_shape,
    encode,
    find_bindings,
    find_error,
    find_outermost,
    parse,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_CHARACTERS = 50_000
"""Maximum length of a snippet and of a program without the snippet, in characters."""


@dataclass(frozen=True)
class Fragment:
    """A snippet that is parsed in a place where it may stand. `nodes` are its outermost trees."""

    context: Context
    root: Node
    nodes: tuple[Node, ...]

    @property
    def shift(self) -> int:
        """The number of bytes before the snippet."""
        return len(encode(self.context.before))


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
        return [node for node in self.root.named_children if node not in self.nodes]

    @property
    def is_at_top(self) -> bool:
        """Whether the snippet stands outside all other statements."""
        return all(node.parent == self.root for node in self.nodes)

    def is_of_snippet(self, node: Node) -> bool:
        """Return whether a node starts in the snippet."""
        return node.start_point.row + 1 in self.lines


def normalise(text: str) -> str:
    """Remove a byte order mark and convert newlines to `\\n`. Idempotent."""
    return text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")


def iterate_fragments(code: str, syntax: Syntax) -> Iterator[Fragment]:
    """Parse normalised code in each place where it may stand. Skips places where it does not parse."""
    for context in syntax.contexts:
        root = parse(f"{context.before}{code}\n{context.after}", syntax.grammar)
        first = context.before.count("\n")
        nodes = () if root.has_error else find_outermost(root, range(first, first + code.count("\n") + 1))
        if any((node.type, child.type) in syntax.misread for node in nodes for child in node.children):
            continue
        if find_parent(nodes) in context.parents and any(node.type not in syntax.ignored for node in nodes):
            yield Fragment(context, root, nodes)


def find_parent(nodes: Sequence[Node]) -> str | None:
    """Return the type of the parent that nodes share, or None if they have several parents."""
    parents = {node.parent for node in nodes}
    return next(iter(parents)).type if len(parents) == 1 and None not in parents else None  # type: ignore[union-attr]


def locate_snippet(source: str, lines: range, syntax: Syntax) -> Placement:
    """Parse a program that contains a snippet in these lines (1-based)."""
    root = parse(source, syntax.grammar)
    return Placement(source, lines, root, find_outermost(root, range(lines.start - 1, lines.stop - 1)))


def find_surrounding_names(placement: Placement, syntax: Syntax) -> dict[str, Node]:
    """Return the names that the program binds outside the snippet, with the nodes that bind them."""
    bindings = find_bindings(placement.around, syntax)
    return {name: node for name, node in bindings.items() if not placement.is_of_snippet(node)}


def place_snippet(template: str, code: str, syntax: Syntax, marker: str) -> Placement:
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
    placement = locate_snippet("\n".join([*lines[:row], code, *lines[row + 1 :]]), span, syntax)
    if (line := find_error(placement.root)) is not None:
        raise MalformedProgram(_describe_error(line, span, placement.source))
    nodes = placement.nodes
    shape, parent = describe_shape(nodes), find_parent(nodes)
    fragments = (part for part in iterate_fragments(code, syntax) if parent in part.context.parents)
    if _joins(nodes, syntax) or all(shape != describe_shape(fragment.nodes) for fragment in fragments):
        raise MalformedProgram(
            f"the candidate would be changed at `{marker}`: end the statement before the marker with a semicolon, and "
            "put the marker where the candidate is allowed"
        )
    return placement


def _joins(nodes: Sequence[Node], syntax: Syntax) -> bool:
    """Return whether a node before the snippet, or its last one, may continue on the next line."""
    before, after = (nodes[0].prev_sibling, nodes[-1].next_sibling) if nodes else (None, None)
    is_followed = after is not None and after.is_named and nodes[-1].type in syntax.unfinished
    return is_followed or (before is not None and before.type in syntax.unfinished)


def _describe_error(line: int, span: range, source: str) -> str:
    """Describe a syntax error to the author of the template, with its line in the template."""
    text = source.split("\n")[line - 1].strip()[:120]
    if line in span:
        return f"the program does not parse with the candidate inserted, at `{text}`"
    return f"the program does not parse, in line {line if line < span.start else line - len(span) + 1}: `{text}`"
