"""Find the functions of a source file or a snippet, and write parts of a snippet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.languages.base import CodeView, FoundFunction
from agent.languages.tree.insertion import MAX_CHARACTERS, Fragment, iterate_fragments
from agent.languages.tree.syntax import (
    Edit,
    Syntax,
    apply_edits,
    describe_shape,
    find_error,
    get_text,
    is_callback,
    iterate_ancestors,
    iterate_functions,
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

    Functions without a name, such as callbacks, are skipped, unless a function is the whole source. A short source may
    also be a member of a class or an object, or an expression.

    Raises:
        ValueError: the source exceeds `limit` characters or does not parse.
    """
    if len(source) > limit:
        raise ValueError(f"it has {len(source):,} characters; the limit is {limit:,}")
    fragments = iterate_fragments(source, syntax) if len(source) <= MAX_CHARACTERS else iter(())
    fragment = next(fragments, None)
    if fragment is None:
        root = parse(source, syntax.grammar)
        if (line := find_error(root)) is not None:
            raise ValueError(f"it does not parse, line {line}")
        fragment = Fragment(syntax.contexts[0], root, (root,))
    lines = f"{fragment.context.before}{source}".split("\n")
    for function, _ in iterate_functions(fragment.nodes, syntax, nested=False):
        found = None if is_callback(function, syntax) else _extract(function, fragment, lines, syntax)
        if found is not None:
            yield found


def extract_view(code: str, name: CodeView, syntax: Syntax) -> str | None:
    """Return a part of normalised code, or None if it does not parse. Documentation is `/** … */` comments."""
    if name == "signature":
        return write_signature(code, syntax)
    fragment = next(iterate_fragments(code, syntax), None)
    if fragment is None:
        return None
    parts = (part for node in fragment.nodes for part in walk(node))
    spans = [(part.start_byte, part.end_byte) for part in parts if _is_documentation(part, syntax)]
    if name == "body":
        pairs = iterate_functions(fragment.nodes, syntax, nested=False)
        heads = [(_find_statement(function).start_byte, body.start_byte) for function, body in pairs]
        spans = [*heads, *(span for span in spans if not any(start <= span[0] < end for start, end in heads))]
    text = apply_edits(code, [(start - fragment.shift, end - fragment.shift, "") for start, end in spans])
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def _is_documentation(node: Node, syntax: Syntax) -> bool:
    return node.type in syntax.ignored and get_text(node).startswith("/**")


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


def _extract(function: Node, fragment: Fragment, lines: list[str], syntax: Syntax) -> FoundFunction | None:
    statement = _find_statement(function)
    label = function.child_by_field_name("name") or _find_target(function)
    match = None if label is None else _PATH.fullmatch(get_text(label))
    if match is None and [statement] != [node for node in fragment.nodes if node.type not in syntax.ignored]:
        return None
    owner, name = (match["owner"], match["name"]) if match else (None, "")
    classes = (part for part in iterate_ancestors(function) if part.type in syntax.classes)
    labels = [part.child_by_field_name("name") for part in classes if part.start_byte >= fragment.shift]
    names = [get_text(label) for label in labels if label is not None]
    shift = fragment.context.before.count("\n")
    return FoundFunction(
        name=name,
        class_name=".".join(reversed(names)) or (None if owner in _MODULES else owner),
        docstring=_find_documentation(function, syntax),
        code=_dedent(statement, lines[statement.start_point.row], syntax),
        start_line=statement.start_point.row - shift + 1,
        end_line=statement.end_point.row - shift + 1,
        has_input=_has_input(function, syntax),
        returns_value=_returns_value(function, syntax),
    )


def _has_input(function: Node, syntax: Syntax) -> bool:
    several = function.child_by_field_name("parameters")
    nodes = [] if several is None else [node for node in several.named_children if node.type not in syntax.ignored]
    is_this = bool(nodes) and get_text(nodes[0]).split(":")[0].strip() == "this"  # declares the type of `this`
    return function.child_by_field_name("parameter") is not None or len(nodes) > is_this


def _returns_value(function: Node, syntax: Syntax) -> bool:
    body = function.child_by_field_name("body")
    if body is None or body.type not in syntax.blocks:
        return body is not None
    parts = walk(body, lambda part: part.type not in syntax.functions)
    returns = (part for part in parts if part.type in syntax.returns)
    return any(child.type not in syntax.ignored for part in returns for child in part.named_children)


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
    if comment is None or not _is_documentation(comment, syntax):
        return None
    if statement.start_point.row - comment.end_point.row > 1:
        return None
    text = _LINE_SIGN.sub("", _COMMENT_SIGNS.sub("", get_text(comment)))
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def _dedent(statement: Node, line: str, syntax: Syntax) -> str | None:
    """Return the source of a statement at column 0, or None if this would change it. `line` is its first line."""
    first, *others = get_text(statement).split("\n")
    indentation = line[: len(line) - len(line.lstrip())]
    code = "\n".join([first, *(part.removeprefix(indentation) for part in others)])
    shape = describe_shape([statement], syntax.ignored)
    shapes = (describe_shape(fragment.nodes, syntax.ignored) for fragment in iterate_fragments(code, syntax))
    return code if shape in shapes else None
