"""Test programs that run with the snippet in its own module.

The program imports the snippet from its module. The snippet's text is also at the top of the program, from where the
sandbox's harness moves it into the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from agent.languages.base import MalformedProgram, Module, ModuleUnusable, Program, Snippet
from agent.languages.python import cases
from agent.languages.python.functions import MAX_SOURCE, iterate_functions
from agent.languages.python.insertion import (
    MARKER,
    MAX_PROGRAM,
    Placement,
    find_leading_futures,
    place_snippet,
)
from agent.languages.python.outline import build_outline
from agent.languages.python.reporting import PythonBlame
from agent.languages.python.source import (
    Function,
    Unparsable,
    check_compiles,
    find_bound_names,
    get_last_name,
    is_same_tree,
    normalise,
    parse,
    walk,
)
from agent.languages.reporting import build_report
from agent.sandbox.base import RunResult
from agent.types import Origin, Status

_PROBE = "def test_probe():\n    pass\n"
_SETTING = frozenset({"setattr", "delattr", "setitem", "delitem"})
"""Functions that patch an attribute or item. They are built-in, or methods of pytest's `monkeypatch`."""
_PYTEST_PARTS = frozenset({"_pytest", "anyio", "iniconfig", "packaging", "pluggy", "pygments", "pytest"})
"""Packages of which pytest or its plugins may import modules before the snippet's module is imported."""
_PATCHING = frozenset({"mock", "mocker", "monkeypatch", "patch"})
_IMPORTING = frozenset({"__import__", "import_module", "reload"})


def build_probe(snippet: Snippet, origin: Origin) -> Program:
    """Return the program that imports the snippet's module and reports its source. See `Language.build_probe`."""
    if not origin.module or not all(part.isidentifier() for part in origin.module.split(".")):
        raise ModuleUnusable("its origin names no module")
    if snippet.problem is not None:
        raise ModuleUnusable(snippet.problem)
    statements = parse(snippet.code).body
    if len(statements) != 1 or not isinstance(statements[0], Function) or statements[0].name != origin.name:
        raise ModuleUnusable("the snippet is not the function that its origin names")
    options = {**_build_options(origin), "probe": "1"}
    return cases.build_program(_PROBE, _place(_PROBE, snippet), options)


def read_module(probe: Program, result: RunResult, origin: Origin, max_lines: int) -> Module:
    """Return the module that a probe found. See `Language.read_module`."""
    report = build_report(probe, result, PythonBlame(probe))
    if report.status is not Status.PASSED:
        raise ModuleUnusable(report.message)
    # the module could have forged source records after these
    records = takewhile(lambda record: record.kind == "source", result.records)
    source = normalise("".join(record.message for record in records))
    try:
        tree = parse(source, MAX_SOURCE)
    except Unparsable as error:
        raise ModuleUnusable(f"its module does not parse: {error}") from error
    lines = range(probe.first_line, probe.last_line + 1)
    snippet = [node for node in parse(probe.source, MAX_PROGRAM).body if node.lineno in lines]
    place = (origin.class_name or None, origin.name)
    definitions = (node for node, class_name in iterate_functions(tree) if (class_name, node.name) == place)
    if not any(is_same_tree([node], snippet) for node in definitions):
        raise ModuleUnusable("the reported source of its module does not contain the snippet")
    return Module(origin, build_outline(tree, origin, max_lines), cases.find_introspection(tree))


def insert_in_module(template: str, snippet: Snippet, module: Module) -> Program:
    """Return a program that runs with the snippet in its module. Ignores markers. See `Language.insert_in_module`."""
    if snippet.problem is not None:
        raise MalformedProgram(f"the candidate cannot be tested: {snippet.problem}")
    lines = normalise(template).split("\n")
    placement = _place("\n".join("" if line.strip() == MARKER else line for line in lines), snippet)
    stand_ins = tuple(dict.fromkeys(_iterate_patches(placement)))
    program = cases.build_program(template, placement, _build_options(module.origin), stand_ins)
    if "pytest" in program.options and (module.origin.module or "").partition(".")[0] in _PYTEST_PARTS:
        raise MalformedProgram("pytest uses the candidate's own package; write the program without pytest")
    return program.model_copy(update={"introspection": module.introspection})


def _place(template: str, snippet: Snippet) -> Placement:
    """Insert the snippet below the docstring and the imports from `__future__`."""
    try:
        tree = parse(template)
        check_compiles(tree)
    except Unparsable as error:
        raise MalformedProgram(f"the program does not parse: {error}") from error
    head: list[ast.stmt] = [*find_leading_futures(tree.body)]
    if not head and ast.get_docstring(tree) is not None:
        head = tree.body[:1]
    row = head[-1].end_lineno or 0 if head else 0
    lines = template.split("\n")
    return place_snippet("\n".join([*lines[:row], MARKER, *lines[row:]]), snippet.code)


def _build_options(origin: Origin) -> dict[str, str]:
    return {
        "module": origin.module or "",
        "class": origin.class_name or "",
        "name": origin.name,
        "line": str(origin.lines[0] if origin.lines else 0),
    }


def _iterate_patches(placement: Placement) -> Iterator[str]:
    """Iterate over what a program replaces or deletes in modules and classes that it imports, in order."""
    around = [node for node in placement.tree.body if node not in placement.statements]
    nodes = list(walk(around))
    imported = find_bound_names(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    for node in nodes:
        if isinstance(node, ast.Assign | ast.NamedExpr) and _is_imported(node.value, imported):
            imported |= find_bound_names([node])
    yield from sorted(cases.find_provided_modules(ast.Module(around, [])))
    placed = [node for node in nodes if isinstance(node, ast.Attribute | ast.Call)]
    for node in sorted(placed, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Call):
            yield from _find_patch(node, imported)
        elif not isinstance(node.ctx, ast.Load) and _is_imported(node, imported):
            yield _unparse(node)


def _find_patch(call: ast.Call, imported: frozenset[str]) -> Iterator[str]:
    """Iterate over the target of a call of `setattr`, of `patch`, or of a method of `patch` or `monkeypatch`."""
    name, target = get_last_name(call), next(iter(call.args), None)
    owner = get_last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if target is None or not (name in _SETTING or "patch" in (name, owner)):
        return
    texts = [part.value for part in call.args[:2] if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if isinstance(target, ast.Constant):
        yield from (text for text in texts[:1] if "." in text and text.replace(".", "").isidentifier())
    elif owner in _PATCHING or not (owner or name in _SETTING) or _is_imported(target, imported):
        yield ".".join([_unparse(target), *(texts if name != "patch" else [])])


def _is_imported(node: ast.expr, imported: frozenset[str]) -> bool:
    """Return whether an expression such as `a.b[0].c` begins with an imported name or a call that imports a module."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return get_last_name(node) in _IMPORTING if isinstance(node, ast.Call) else getattr(node, "id", "") in imported


def _unparse(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        return "..."
