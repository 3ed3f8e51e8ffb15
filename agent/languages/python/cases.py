"""Analyse a program without running it: test cases, imports, stand-ins and functions of the snippet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from agent.languages.base import MalformedProgram, Program, check_cases
from agent.languages.python.insertion import MAX_PROGRAM, Placement
from agent.languages.python.source import (
    Definition,
    Function,
    find_bound_names,
    find_imported_names,
    find_imported_roots,
    find_used_names,
    get_last_name,
    is_generator,
    iterate_bindings,
    iterate_loaded,
    parse,
    walk,
    walk_scope,
)
from agent.sandbox.dependencies.imports import PYTHON2_MODULES, find_known_name, is_stdlib

_REACH_HARNESS = frozenset({
    "_current_exceptions", "_current_frames", "_getframe", "currentframe", "getinnerframes", "getouterframes",
    "get_stack", "walk_stack", "walk_tb", "f_back", "f_builtins", "f_globals", "f_locals", "ag_frame", "cr_frame",
    "gi_frame", "tb_frame", "getargvalues", "getasyncgenlocals", "getclosurevars", "getcoroutinelocals",
    "getgeneratorlocals", "__closure__", "__globals__", "__subclasses__", "cell_contents", "_ctypes", "bdb", "ctypes",
    "gc", "harness", "setprofile", "settrace", "call_tracing", "remote_exec", "/proc/self/mem", "/mem",
    "inner_test", "pluginmanager", "runtest", "pytest_pyfunc_call", "pytest_runtest_call", "pytest_runtest_makereport",
    "pytest_runtest_protocol", "addaudithook", "register_at_fork",
})  # fmt: skip
_REACH_FROM_MODULE = {"inspect": {"stack", "trace"}, "sys": {"monitoring"}}
"""Names that reach the harness, but only if the code also uses the module."""
_EXPECTING = re.compile("raises|warns|suppress|deprecated_call", re.IGNORECASE)
_NAMING = ast.Name | ast.Attribute | ast.alias | ast.ImportFrom | ast.Constant
_MAX_LINEAGE = 20
_MISSING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def build_program(
    template: str, placement: Placement, options: Mapping[str, str], stand_ins: tuple[str, ...] = ()
) -> Program:
    """Return the program with the snippet in its place. `options` are for the harness.

    Raises:
        MalformedProgram: see `find_cases`.
    """
    lines = range(placement.first_line, placement.last_line + 1)
    names, needs_pytest = find_cases(placement.tree, lines)
    package = options.get("module", "").partition(".")[0]
    imports = [name for name in find_third_party_modules(placement.tree) if name.partition(".")[0] != package]
    all_options = {"first_line": str(lines[0]), "last_line": str(lines[-1]), **options}
    if needs_pytest:
        imports.append("pytest")
        all_options["pytest"] = "1"
    return Program(
        template=template,
        source=placement.source,
        first_line=lines[0],
        last_line=lines[-1],
        cases=names,
        imports=tuple(dict.fromkeys(imports)),
        options=all_options,
        stand_ins=stand_ins,
    )


def find_cases(tree: ast.Module, snippet: range) -> tuple[tuple[str, ...], bool]:
    """Return the names of the test cases in order, and whether they need pytest.

    Cases are `test_*` functions and test methods of unittest classes. If the program needs pytest, test methods of
    `Test*` classes are cases, too. The snippet's own functions are not cases.

    Raises:
        MalformedProgram: there are no cases or too many, two cases have the same name, the body of a case never runs,
            or a check can never fail.
    """
    cases, needs_pytest = _search_cases(tree, snippet)
    names = [name for name, _ in cases]
    check_cases(
        names,
        "outside the candidate, write functions named `test_...` with asserts, or `test_...` methods in a class that "
        "derives from `unittest.TestCase`",
    )
    for name, node in cases:
        if is_generator(node):
            raise MalformedProgram(f"the test case `{name}` contains a `yield`, so its body would never run")
        _check_can_fail(name, node, snippet)
    asserts = (node for node in ast.walk(tree) if isinstance(node, ast.Assert) and node.lineno not in snippet)
    if any(isinstance(node.test, ast.Tuple) and node.test.elts for node in asserts):
        raise MalformedProgram("an `assert (condition, message)` always passes; remove the parentheses")
    return tuple(names), needs_pytest


def _check_can_fail(name: str, case: Function, snippet: range) -> None:
    """Raise `MalformedProgram` if a case returns a value or compares values without asserting the result."""
    nodes = list(walk_scope(case.body))
    if any(isinstance(node, ast.Return) and not _is_none(node.value) for node in nodes):
        raise MalformedProgram(f"the test case `{name}` returns a value, which is ignored; use `assert` instead")
    raising = {part for node in nodes if _expects_exception(node) for part in walk(getattr(node, "body", []))}
    for node in nodes:
        if isinstance(node, ast.Expr) and node not in raising and node.lineno not in snippet:
            value = node.value.operand if isinstance(node.value, ast.UnaryOp) else node.value
            if any(isinstance(part, ast.Compare) for part in (value, *getattr(value, "values", ()))):
                raise MalformedProgram(f"the test case `{name}` contains a comparison without an `assert`")


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _expects_exception(node: ast.AST) -> bool:
    """Return whether a statement's body may be there only to raise an exception."""
    contexts = [item.context_expr for item in node.items] if isinstance(node, ast.With | ast.AsyncWith) else []
    return isinstance(node, ast.Try | ast.TryStar) or any(
        _EXPECTING.search(get_last_name(context)) for context in contexts
    )


def has_functions(program: Program) -> bool:
    """Return whether the snippet defines a function. Only such a snippet can be checked by a sentinel run."""
    return any(
        isinstance(node, Function | ast.Lambda) and program.first_line <= node.lineno <= program.last_line
        for node in ast.walk(parse(program.source, MAX_PROGRAM))
    )


def find_introspection(tree: ast.Module) -> tuple[str, ...]:
    """Return the sorted names in a program through which code can reach the harness.

    Checks unbound names, attributes, imports and string constants (for `getattr`). The result is incomplete: it misses
    strings built at run time and libraries that walk frames.
    """
    bound = find_bound_names([tree])
    nodes = [node for node in ast.walk(tree) if isinstance(node, _NAMING) and getattr(node, "id", "") not in bound]
    fields = [field for node in nodes for field in ast.iter_fields(node)]
    texts = [value for name, value in fields if name != "asname" and isinstance(value, str)]
    parts = {part for text in texts for part in text.split(".")}
    reaching = _REACH_HARNESS.union(*(names for module, names in _REACH_FROM_MODULE.items() if module in parts))
    return tuple(sorted(reaching & parts))


def _search_cases(tree: ast.Module, snippet: range) -> tuple[list[tuple[str, Function]], bool]:
    definitions = [node for node in iterate_loaded(tree.body) if isinstance(node, Definition)]
    classes = {node.name: node for node in definitions if isinstance(node, ast.ClassDef)}
    functions = [
        node
        for node in definitions
        if isinstance(node, Function) and node.lineno not in snippet and _is_test_function(node)
    ]
    needs_pytest = "pytest" in {root for node in walk([tree]) for root in find_imported_roots(node)}
    needs_pytest = needs_pytest or any(map(_has_required_parameters, functions))
    cases: list[tuple[str, Function]] = [(node.name, node) for node in functions]
    for node in classes.values():
        lineage = _collect_lineage(node, classes)
        is_test_case = any(get_last_name(base).endswith("TestCase") for ancestor in lineage for base in ancestor.bases)
        if is_test_case or (needs_pytest and node.name.startswith("Test")):
            parts = [part for ancestor in reversed(lineage) for part in ancestor.body if isinstance(part, Function)]
            methods = {part.name: part for part in parts if part.name.startswith("test")}
            cases.extend((f"{node.name}.{name}", method) for name, method in methods.items())
    return [(name, node) for name, node in cases if node.lineno not in snippet], needs_pytest


def _is_test_function(node: Function) -> bool:
    return node.name.startswith("test_") and not any(get_last_name(part) == "fixture" for part in node.decorator_list)


def _has_required_parameters(node: Function) -> bool:
    if any(isinstance(part, ast.expr) and get_last_name(part) == "patch" for part in walk(node.decorator_list)):
        return False  # `mock.patch` passes its own arguments
    positional = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    return positional > 0 or None in node.args.kw_defaults


def _collect_lineage(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """Return a class, followed by those of its base classes that the program defines, nearest first."""
    lineage: dict[str, ast.ClassDef] = {}
    pending = [node]
    while pending and len(lineage) < _MAX_LINEAGE:
        ancestor = pending.pop()
        if ancestor.name not in lineage:
            lineage[ancestor.name] = ancestor
            pending.extend(
                classes[name] for base in reversed(ancestor.bases) if (name := get_last_name(base)) in classes
            )
    return list(lineage.values())


def find_stand_ins(placement: Placement) -> tuple[str, ...]:
    """Return the names that the program defines and the snippet reads, in order of first use."""
    around = [
        node
        for node in iterate_loaded(placement.tree.body)
        if not isinstance(node, ast.Import | ast.ImportFrom) and node not in placement.statements
    ]
    names = {name for node in walk_scope(around) for name in iterate_bindings(node)}
    return tuple(name for name in find_used_names(placement.statements) if name in names)


def find_third_party_modules(tree: ast.Module, *, optional: bool = False) -> tuple[str, ...]:
    """Return the modules to install, in order of appearance: dotted names in the import map, or top-level modules.

    Excludes modules that the code adds to `sys.modules` and, unless `optional` is true, modules whose absence the code
    handles.
    """
    tolerant = [
        node for node in ast.walk(tree) if isinstance(node, ast.Try) and any(map(_catches_missing, node.handlers))
    ]
    tolerated = set(walk(part for node in tolerant for part in (*node.body, *node.handlers)))
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call) and (optional or node not in tolerated)
    ]
    imports.sort(key=lambda node: (node.lineno, node.col_offset))
    stand_ins = find_provided_modules(tree)
    names = dict.fromkeys(find_known_name(name) for node in imports for name in find_imported_names(node))
    return tuple(name for name in names if is_third_party(name) and name.partition(".")[0] not in stand_ins)


def is_third_party(name: str) -> bool:
    """Return whether a name's top-level module is in neither Python 3's nor Python 2's standard library."""
    root = name.partition(".")[0]
    return not is_stdlib(root) and root not in PYTHON2_MODULES


def find_provided_modules(tree: ast.Module) -> frozenset[str]:
    """Return the top-level modules that the program adds to `sys.modules`."""
    return frozenset(name.partition(".")[0] for node in ast.walk(tree) for name in _iterate_sys_modules_keys(node))


def _iterate_sys_modules_keys(node: ast.AST) -> Iterator[str]:
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
