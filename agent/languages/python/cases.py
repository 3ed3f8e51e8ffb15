"""Reads a program without running it: its test cases, what it imports, whether its snippet can be entered."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from agent.languages.base import MalformedProgram, Program
from agent.languages.python.insertion import MAX_PROGRAM, Placement
from agent.languages.python.source import (
    Definition,
    Function,
    bindings,
    last_name,
    list_names,
    loaded,
    names_bound,
    names_used,
    parse,
    roots_imported,
    same_tree,
    walk,
    walk_scope,
    yields,
)
from agent.sandbox.dependencies.imports import PYTHON2_MODULES, is_stdlib

MAX_CASES = 50
"""More cases than a reader follows or a time limit serves."""

_REACH_HARNESS = frozenset({
    "_current_frames", "_getframe", "currentframe", "f_back", "f_builtins", "f_globals", "f_locals", "tb_frame",
    "__closure__", "__globals__", "_ctypes", "ctypes", "gc", "harness", "setprofile", "settrace",
})  # fmt: skip
_NAMING = ast.Name | ast.Attribute | ast.alias | ast.ImportFrom | ast.Constant
_MAX_LINEAGE = 20
_MISSING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def find_cases(tree: ast.Module, snippet: range) -> tuple[tuple[str, ...], bool]:
    """Find `test_*` functions and the test methods of unittest classes; with pytest those of `Test*` classes too.

    Return their names in order, and whether they need pytest. What stands in the snippet's lines never is a case.

    Raises:
        MalformedProgram: no case, too many, two of one name, or one whose body would never run.
    """
    cases, needs_pytest = _search(tree, snippet)
    names = [name for name, _ in cases]
    if not names:
        raise MalformedProgram(
            "the program has no test case: write functions named `test_...` with asserts, or methods `test_...` of a "
            "class that derives from `unittest.TestCase`, outside of the candidate"
        )
    if len(names) > MAX_CASES:
        raise MalformedProgram(f"the program has {len(names)} test cases; keep the {MAX_CASES} that prove the most")
    for name, node in cases:
        if names.count(name) > 1:
            raise MalformedProgram(f"two test cases are named `{name}`; only one of them would run")
        if yields(node):
            raise MalformedProgram(f"the test case `{name}` holds a `yield`: its body would never run")
    return tuple(names), needs_pytest


def check_correction(program: Program, corrected: Program) -> None:
    """Raise `MalformedProgram` for a corrected program that changes anything inside a test function."""
    before, after = (
        dict(_search(parse(each.source, MAX_PROGRAM), range(each.first_line, each.last_line + 1))[0])
        for each in (program, corrected)
    )
    if gone := [name for name in before if name not in after]:
        raise MalformedProgram(f"every test case stays, under its name; put these back: {list_names(gone)}")
    if changed := [name for name, node in before.items() if not same_tree(node, after[name])]:
        raise MalformedProgram(
            "test cases stay word for word, with their decorators and parameters; "
            f"{list_names(changed)} changed. Repair what is around them"
        )


def can_be_entered(program: Program) -> bool:
    """Say whether the snippet defines a function: only then can a sentinel run show that a case never ran it."""
    return any(
        isinstance(node, Function | ast.Lambda) and program.first_line <= node.lineno <= program.last_line
        for node in ast.walk(parse(program.source, MAX_PROGRAM))
    )


def find_introspection(tree: ast.Module) -> tuple[str, ...]:
    """Return the names in a program by which code can reach the harness that runs it, in alphabetical order.

    Looks at names that the program does not bind itself, attributes, imports, and texts such as `getattr` is given.
    Incomplete: a text built at run time, and a library that walks frames, are not seen.
    """
    bound = names_bound([tree])
    nodes = [node for node in ast.walk(tree) if isinstance(node, _NAMING) and getattr(node, "id", "") not in bound]
    fields = [field for node in nodes for field in ast.iter_fields(node)]
    texts = [value for name, value in fields if name != "asname" and isinstance(value, str)]
    return tuple(sorted(_REACH_HARNESS.intersection(part for text in texts for part in text.split("."))))


def _search(tree: ast.Module, snippet: range) -> tuple[list[tuple[str, Function]], bool]:
    definitions = [node for node in loaded(tree.body) if isinstance(node, Definition)]
    classes = {node.name: node for node in definitions if isinstance(node, ast.ClassDef)}
    functions = [
        node
        for node in definitions
        if isinstance(node, Function) and node.lineno not in snippet and _is_test_function(node)
    ]
    needs_pytest = "pytest" in {root for node in walk([tree]) for root in roots_imported(node)}
    needs_pytest = needs_pytest or any(map(_has_required_parameters, functions))
    cases: list[tuple[str, Function]] = [(node.name, node) for node in functions]
    for node in classes.values():
        lineage = _lineage(node, classes)
        is_test_case = any(last_name(base).endswith("TestCase") for each in lineage for base in each.bases)
        if is_test_case or (needs_pytest and node.name.startswith("Test")):
            parts = [part for each in reversed(lineage) for part in each.body if isinstance(part, Function)]
            methods = {part.name: part for part in parts if part.name.startswith("test")}
            cases.extend((f"{node.name}.{name}", method) for name, method in methods.items())
    return [(name, node) for name, node in cases if node.lineno not in snippet], needs_pytest


def _is_test_function(node: Function) -> bool:
    return node.name.startswith("test_") and not any(last_name(part) == "fixture" for part in node.decorator_list)


def _has_required_parameters(node: Function) -> bool:
    if any(isinstance(part, ast.expr) and last_name(part) == "patch" for part in walk(node.decorator_list)):
        return False  # `mock.patch` gives its own arguments
    positional = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    return positional > 0 or None in node.args.kw_defaults


def _lineage(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """Return a class and those of its bases that the program defines, nearest first."""
    lineage: dict[str, ast.ClassDef] = {}
    pending = [node]
    while pending and len(lineage) < _MAX_LINEAGE:
        each = pending.pop()
        if each.name not in lineage:
            lineage[each.name] = each
            pending.extend(classes[name] for base in reversed(each.bases) if (name := last_name(base)) in classes)
    return list(lineage.values())


def stand_ins(placement: Placement) -> tuple[str, ...]:
    """Return the names that the program defines around the snippet and the snippet reads, in order of first use."""
    around = [
        node
        for node in loaded(placement.tree.body)
        if not isinstance(node, ast.Import | ast.ImportFrom) and node not in placement.statements
    ]
    names = {name for node in walk_scope(around) for name in bindings(node)}
    return tuple(name for name in names_used(placement.statements) if name in names)


def third_party(tree: ast.Module) -> tuple[str, ...]:
    """Return the top-level modules to install, in order of appearance.

    Left out are those whose absence the code handles itself, and those it puts into `sys.modules`.
    """
    tolerant = [
        node for node in ast.walk(tree) if isinstance(node, ast.Try) and any(map(_catches_missing, node.handlers))
    ]
    guarded = set(walk(part for node in tolerant for part in (*node.body, *node.handlers)))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and node not in guarded]
    imports.sort(key=lambda node: (node.lineno, node.col_offset))
    provided = modules_provided(tree)
    roots = dict.fromkeys(root for node in imports for root in roots_imported(node))
    return tuple(root for root in roots if is_third_party(root) and root not in provided)


def is_third_party(name: str) -> bool:
    """Say whether the top-level module of a name belongs neither to the standard library nor to Python 2's."""
    root = name.partition(".")[0]
    return not is_stdlib(root) and root not in PYTHON2_MODULES


def modules_provided(tree: ast.Module) -> frozenset[str]:
    """Return the top-level modules for which the program puts stand-ins into `sys.modules`."""
    return frozenset(name.partition(".")[0] for node in ast.walk(tree) for name in _entries(node))


def _entries(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_sys_modules(node.value):
        keys: list[ast.expr | None] = [node.slice]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_sys_modules(node.func.value):
        mappings = [part for part in node.args if isinstance(part, ast.Dict)]
        keys = [*node.args[:1], *(key for mapping in mappings for key in mapping.keys)]
    else:
        keys = []
    return (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def _is_sys_modules(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "modules"


def _catches_missing(handler: ast.ExceptHandler) -> bool:
    names = (part.id for part in ast.walk(handler.type or handler) if isinstance(part, ast.Name))
    return handler.type is None or not _MISSING.isdisjoint(names)
