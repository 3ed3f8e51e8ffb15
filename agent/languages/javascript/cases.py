"""Find the test cases of a program, and refuse programs that cannot run or whose cases cannot fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.languages.base import MalformedProgram
from agent.languages.javascript.insertion import Placement
from agent.languages.javascript.inspection import find_stray_returns, find_unsupported, iterate_imports
from agent.languages.javascript.syntax import (
    FUNCTIONS,
    find_bindings,
    get_name,
    get_text,
    iterate_ancestors,
    iterate_names,
    walk,
)
from agent.languages.javascript.tables import FRAMEWORKS

if TYPE_CHECKING:
    from tree_sitter import Node

_REGISTRARS = ("test", "it")
_COMPARISONS = {"<", "<=", ">", ">=", "==", "!=", "===", "!=="}
_AROUND_CASES = {
    "program", "expression_statement", "arguments", "arrow_function", "function_expression", "statement_block"
}  # fmt: skip
"""Nodes that may contain a `test` call, besides calls of `describe`."""


def check_program(placement: Placement) -> None:
    """Refuse a program that Node cannot run, or whose test cases cannot fail.

    Raises:
        MalformedProgram: the program is refused.
    """
    around = placement.around
    if (unsupported := find_unsupported(around)) is not None:
        raise MalformedProgram(f"the program contains {unsupported}, which Node cannot run")
    if frameworks := FRAMEWORKS.intersection(iterate_imports(around)):
        raise MalformedProgram(f"do not import {min(frameworks)}: `test`, `it` and `describe` are built in")
    if find_stray_returns([placement.root]):
        raise MalformedProgram("a `return` at the top level ends the program: put the marker inside a function")
    for node in walk(around):
        if placement.is_of_snippet(node):
            continue
        if node.type == "expression_statement" and _is_comparison(node.named_children[0]):
            raise MalformedProgram(f"`{get_text(node)[:80]}` compares values without an assert")
        name = node.child_by_field_name("name") if node.type.startswith("generator_function") else None
        if name is not None and get_text(name).startswith("test_"):
            raise MalformedProgram(f"the test case `{get_text(name)}` is a generator, so its body would never run")


def iterate_cases(placement: Placement) -> Iterator[str]:
    """Iterate over the names and titles of the test cases outside the snippet.

    Raises:
        MalformedProgram: a case cannot be registered, or the snippet contains its name.
    """
    used = set(iterate_names(placement.nodes))
    for node in placement.around:
        for name, binding in find_bindings([node]).items():
            function = binding.child_by_field_name("value") or binding
            if not name.startswith("test_") or function.type not in FUNCTIONS or placement.is_of_snippet(binding):
                continue
            if name in used:
                raise MalformedProgram(f"the candidate contains the name `{name}`: rename the test case")
            yield name
    own = placement.find_surrounding_names().keys() | find_bindings(placement.nodes).keys()
    names = [name for name in _REGISTRARS if name not in own]
    for call in walk([placement.root]):
        is_registration = call.type == "call_expression" and get_name(call.children[0]) in names
        if is_registration and not placement.is_of_snippet(call):
            yield _get_title(call)


def _is_comparison(node: Node) -> bool:
    operator = node.child_by_field_name("operator")
    return node.type == "binary_expression" and operator is not None and operator.type in _COMPARISONS


def _get_title(call: Node) -> str:
    arguments, text = call.child_by_field_name("arguments"), get_text(call)[:80]
    title, function, *_ = [*(arguments.named_children if arguments is not None else []), call, call]
    is_changing = any(part.type in ("template_substitution", "escape_sequence") for part in title.children)
    if is_changing or title.type not in ("string", "template_string"):
        raise MalformedProgram(f"`{text}`: the title of a test case must be a plain string")
    if function.type not in FUNCTIONS | {"identifier"} or function.type == "generator_function":
        raise MalformedProgram(f"`{text}`: a test case needs a function, or the name of one")
    if not all(_may_contain_case(node) for node in iterate_ancestors(call)):
        raise MalformedProgram(f"`{text}`: call it at the top level or directly in `describe`")
    return get_text(title)[1:-1]


def _may_contain_case(node: Node) -> bool:
    is_describe = node.type == "call_expression" and get_name(node.children[0]) == "describe"
    return is_describe or node.type in _AROUND_CASES
