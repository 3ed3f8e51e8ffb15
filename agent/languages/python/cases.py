"""Finds the test cases of a program without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.languages.base import MalformedProgram
from agent.languages.python.insertion import Placement
from agent.languages.python.tree import (
    Definition,
    Function,
    is_within,
    last_name,
    loaded,
    roots_imported,
    walk,
    walk_scope,
)

MAX_CASES = 50
"""More cases than a reader follows or a time limit serves."""

_MAX_LINEAGE = 20


@dataclass(frozen=True)
class Found:
    """The cases of a program, in order, and whether they need pytest to run."""

    names: tuple[str, ...]
    needs_pytest: bool


def find_cases(placement: Placement) -> Found:
    """Find `test_*` functions and the test methods of unittest classes; with pytest those of `Test*` classes too.

    What stands in the snippet's lines never is a case.

    Raises:
        MalformedProgram: no case, too many, two of one name, or one whose body would never run.
    """
    cases, needs_pytest = _found(placement)
    _check(cases)
    return Found(tuple(name for name, _ in cases), needs_pytest)


def case_nodes(placement: Placement) -> dict[str, ast.AST]:
    """Return the definitions of a program's cases by name, in order."""
    return dict(_found(placement)[0])


def _found(placement: Placement) -> tuple[list[tuple[str, ast.AST]], bool]:
    definitions = [node for node in loaded(placement.tree.body) if isinstance(node, Definition)]
    classes = {node.name: node for node in definitions if isinstance(node, ast.ClassDef)}
    functions = [node for node in definitions if isinstance(node, Function) and _is_test_function(node)]
    functions = [node for node in functions if not _is_snippets(node, placement)]
    needs_pytest = "pytest" in {root for node in walk([placement.tree]) for root in roots_imported(node)}
    needs_pytest = needs_pytest or any(map(_has_required_parameters, functions))
    cases: list[tuple[str, ast.AST]] = [(node.name, node) for node in functions]
    for node in classes.values():
        lineage = _lineage(node, classes)
        if _is_test_case(lineage) or (needs_pytest and node.name.startswith("Test")):
            methods = _methods(lineage).items()
            cases.extend((f"{node.name}.{name}", method) for name, method in methods if name.startswith("test"))
    return [(name, node) for name, node in cases if not _is_snippets(node, placement)], needs_pytest


def _check(cases: list[tuple[str, ast.AST]]) -> None:
    names = [name for name, _ in cases]
    if not names:
        raise MalformedProgram(
            "the program has no test case: write functions named `test_...` with asserts, or methods `test_...` of a "
            "class that derives from `unittest.TestCase`, outside of the candidate"
        )
    if len(names) > MAX_CASES:
        raise MalformedProgram(f"the program has {len(names)} test cases; keep the {MAX_CASES} that tell the most")
    for name, node in cases:
        if names.count(name) > 1:
            raise MalformedProgram(f"two test cases are named `{name}`; only one of them would run")
        body = getattr(node, "body", [])
        if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in walk_scope(body, classes=True)):
            raise MalformedProgram(f"the test case `{name}` holds a `yield`: its body would never run")


def _is_test_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return node.name.startswith("test_") and not any(last_name(part) == "fixture" for part in node.decorator_list)


def _has_required_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if any(last_name(part) == "patch" for decorator in node.decorator_list for part in _expressions(decorator)):
        return False  # `mock.patch` gives its own arguments
    positional = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    return positional > 0 or None in node.args.kw_defaults


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    return (part for part in ast.walk(node) if isinstance(part, ast.expr))


def _is_snippets(node: ast.AST, placement: Placement) -> bool:
    return is_within(node, placement.first_line, placement.last_line)


def _is_test_case(lineage: Iterable[ast.ClassDef]) -> bool:
    return any(last_name(base).endswith("TestCase") for node in lineage for base in node.bases)


def _lineage(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """Return a class and those of its bases that the program defines, nearest first."""
    found: dict[str, ast.ClassDef] = {}
    pending = [node]
    while pending and len(found) < _MAX_LINEAGE:
        each = pending.pop()
        if each.name not in found:
            found[each.name] = each
            pending.extend(classes[name] for base in reversed(each.bases) if (name := last_name(base)) in classes)
    return list(found.values())


def _methods(lineage: list[ast.ClassDef]) -> dict[str, ast.stmt]:
    bodies = (part for node in reversed(lineage) for part in node.body)
    return {part.name: part for part in bodies if isinstance(part, Function)}
