"""Find the functions of a source file or a snippet, and write parts of a snippet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agent.languages.base import CodeView, FoundFunction
from agent.languages.javascript.insertion import Fragment, iterate_fragments
from agent.languages.javascript.syntax import (
    BLOCK,
    CLASSES,
    IGNORED,
    Edit,
    describe_shape,
    find_error,
    get_text,
    is_callback,
    iterate_ancestors,
    iterate_functions,
    parse,
    walk,
    walk_outside_functions,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_COMMENT_SIGNS = re.compile(r"^/\*\*+|\*+/$")
_LINE_SIGN = re.compile(r"(?m)^[ \t]*\*[ \t]?")
_PATH = re.compile(r"(?:(?P<owner>[\w$.]+?)\.)??(?:prototype\.)?(?P<name>#?[\w$]+)")
_MODULES = ("module", "exports", "module.exports", "window", "global", "globalThis")
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


def find_functions(source: str, limit: int, grammars: Sequence[str]) -> Iterator[FoundFunction]:
    """Find the functions outside functions, with the documentation comments (`/** … */`) before them.

    The first grammar that parses the source is used. Functions without a name, such as callbacks, are skipped, unless
    a function is the whole source. The source may also be a member of a class or an object, or an expression.

    Raises:
        ValueError: the source exceeds `limit` characters or does not parse.
    """
    if len(source) > limit:
        raise ValueError(f"it has {len(source):,} characters; the limit is {limit:,}")
    for grammar in grammars:
        fragment = next(iterate_fragments(source, grammar), None)
        if fragment is not None:
            yield from _find_functions(fragment, grammar)
            return
    if (line := find_error(parse(source, grammars[0]))) is not None:
        raise ValueError(f"it does not parse, line {line}")


def _find_functions(fragment: Fragment, grammar: str) -> Iterator[FoundFunction]:
    lines = f"{fragment.before}{fragment.code}".split("\n")
    statements = [node for node in fragment.nodes if node.type not in IGNORED]
    for function, _ in iterate_functions(fragment.nodes, nested=False):
        statement = _find_statement(function)
        label = function.child_by_field_name("name") or _find_target(function)
        match = None if label is None else _PATH.fullmatch(get_text(label))
        if is_callback(function) or (match is None and statements != [statement]):
            continue
        owner, name = (match["owner"], match["name"]) if match else (None, "")
        shift = fragment.before.count("\n")
        yield FoundFunction(
            name=name,
            class_name=_find_class(function, shift) or (None if owner in _MODULES else owner),
            docstring=_find_documentation(statement),
            code=_dedent(statement, lines[statement.start_point.row], grammar),
            start_line=statement.start_point.row - shift + 1,
            end_line=statement.end_point.row - shift + 1,
            has_input=_has_input(function),
            returns_value=_returns_value(function),
        )


def extract_view(code: str, name: CodeView, grammar: str) -> str | None:
    """Return a part of normalised code, or None if it does not parse or a signature contains no function.

    Documentation is `/** … */` comments. A signature contains no comments at all.
    """
    fragment = next(iterate_fragments(code, grammar), None)
    functions = [] if fragment is None else list(iterate_functions(fragment.nodes, nested=False))
    if fragment is None or (name == "signature" and not functions):
        return None
    edits: list[Edit] = []
    for function, body in functions:
        if name == "signature":
            edits.append((body.start_byte, body.end_byte, "{ ... }" if body.type == BLOCK else "..."))
        elif name == "body":
            edits.append((_find_statement(function).start_byte, body.start_byte, ""))
    for node in walk(fragment.nodes):
        if _is_documentation(node) or (name == "signature" and node.type == "comment"):
            edits.append((node.start_byte, node.end_byte, ""))
    text = fragment.edit(_remove_inner(edits))
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def _remove_inner(edits: list[Edit]) -> Iterator[Edit]:
    """Iterate over edits, without those inside another one."""
    last = 0
    for edit in sorted(edits):
        if edit[0] >= last:
            yield edit
            last = edit[1]


def _find_class(function: Node, shift: int) -> str:
    """Return the dotted name of the classes around a function. `shift` is the first row of the source."""
    classes = (node for node in iterate_ancestors(function) if node.type in CLASSES and node.start_point.row >= shift)
    labels = (node.child_by_field_name("name") for node in classes)
    return ".".join(reversed([get_text(label) for label in labels if label is not None]))


def _has_input(function: Node) -> bool:
    several = function.child_by_field_name("parameters")
    nodes = [] if several is None else [node for node in several.named_children if node.type not in IGNORED]
    is_this = bool(nodes) and get_text(nodes[0]).split(":")[0].strip() == "this"  # declares the type of `this`
    return function.child_by_field_name("parameter") is not None or len(nodes) > is_this


def _returns_value(function: Node) -> bool:
    body = function.child_by_field_name("body")
    if body is None or body.type != BLOCK:
        return body is not None
    returns = (node for node in walk_outside_functions([body]) if node.type == "return_statement")
    return any(child.type not in IGNORED for node in returns for child in node.named_children)


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


def _is_documentation(node: Node) -> bool:
    return node.type in IGNORED and get_text(node).startswith("/**")


def _find_documentation(statement: Node) -> str | None:
    """Return the text of the documentation comment directly before a statement, its `export` or its decorators."""
    if statement.parent is not None and statement.parent.type == "export_statement":
        statement = statement.parent
    comment = statement.prev_named_sibling
    while comment is not None and comment.type == "decorator":
        comment = comment.prev_named_sibling
    if comment is None or not _is_documentation(comment):
        return None
    if statement.start_point.row - comment.end_point.row > 1:
        return None
    text = _LINE_SIGN.sub("", _COMMENT_SIGNS.sub("", get_text(comment)))
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def _dedent(statement: Node, line: str, grammar: str) -> str | None:
    """Return the source of a statement at column 0, or None if this would change it. `line` is its first line."""
    first, *others = get_text(statement).split("\n")
    indentation = line[: len(line) - len(line.lstrip())]
    code = "\n".join([first, *(part.removeprefix(indentation) for part in others)])
    shape = describe_shape([statement])
    return code if any(shape == describe_shape(part.nodes) for part in iterate_fragments(code, grammar)) else None
