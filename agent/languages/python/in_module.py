"""Test programs that run with the snippet in its own module.

The program imports the snippet from its module. The snippet's text is also at the top of the program, from where the
sandbox's harness moves it into the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent.languages.base import MalformedProgram, Module, ModuleUnusable, Program, Snippet
from agent.languages.canonical import canonicalise
from agent.languages.python import cases
from agent.languages.python.functions import MAX_SOURCE, iterate_functions
from agent.languages.python.insertion import MARKER, Placement, find_leading_futures, is_marker, place_snippet
from agent.languages.python.outline import build_outline
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
from agent.sandbox.base import ReportLine, RunResult
from agent.types import Origin

PROBE = "def test_probe():\n    pass\n"
_MAX_REASON = 400
_SETTING = frozenset({"setattr", "delattr", "setitem", "delitem"})
"""Functions that patch an attribute or item. They are built-in, or methods of pytest's `monkeypatch`."""


def build_probe(snippet: Snippet, origin: Origin) -> Program:
    """Return the program that imports the snippet's module and reports its source. See `Language.build_probe`."""
    if not origin.module or not all(part.isidentifier() for part in origin.module.split(".")):
        raise ModuleUnusable("its origin names no module")
    if snippet.problem is not None:
        raise ModuleUnusable(snippet.problem)
    statements = parse(snippet.code).body
    if len(statements) != 1 or not isinstance(statements[0], Function) or statements[0].name != origin.name:
        raise ModuleUnusable("the snippet is not the function that its origin names")
    placement = _place(PROBE, snippet)
    options = {**_build_options(placement, origin), "probe": "1"}
    first, last = placement.first_line, placement.last_line
    return Program(
        template=PROBE,
        source=placement.source,
        first_line=first,
        last_line=last,
        cases=("test_probe",),
        options=options,
    )


def read_module(probe: Program, result: RunResult, origin: Origin, max_lines: int) -> Module:
    """Return the module that a probe found. See `Language.read_module`."""
    if (reason := _find_reason(result)) is not None:
        raise ModuleUnusable(canonicalise(reason, _MAX_REASON))
    source = normalise("".join(record.message for record in _iterate_source(result)))
    try:
        tree = parse(source, MAX_SOURCE)
    except Unparsable as error:
        raise ModuleUnusable(f"its module does not parse: {error}") from error
    snippet = _get_snippet(probe)
    definitions = (node for node, name in iterate_functions(tree) if (name, node.name) == _get_place(origin))
    if not any(is_same_tree(node, snippet) for node in definitions):
        raise ModuleUnusable("the reported source of its module does not contain the snippet")
    return Module(origin, build_outline(source, origin, max_lines), cases.find_introspection(tree))


def insert_in_module(template: str, snippet: Snippet, module: Module) -> Program:
    """Return a program that runs with the snippet in its module. Ignores markers. See `Language.insert_in_module`."""
    if snippet.problem is not None:
        raise MalformedProgram(f"the candidate cannot be tested: {snippet.problem}")
    lines = normalise(template).split("\n")
    placement = _place("\n".join("" if is_marker(line) else line for line in lines), snippet)
    names, needs_pytest = cases.find_cases(placement.tree, range(placement.first_line, placement.last_line + 1))
    options = _build_options(placement, module.origin)
    package = options["module"].partition(".")[0]
    imports = [name for name in cases.find_third_party_modules(placement.tree) if name.partition(".")[0] != package]
    if needs_pytest:
        options["pytest"] = "1"
        imports.append("pytest")
    return Program(
        template=template,
        source=placement.source,
        first_line=placement.first_line,
        last_line=placement.last_line,
        cases=names,
        imports=tuple(dict.fromkeys(imports)),
        options=options,
        stand_ins=tuple(dict.fromkeys(_iterate_patches(placement))),
        introspection=module.introspection,
    )


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


def _build_options(placement: Placement, origin: Origin) -> dict[str, str]:
    return {
        "first_line": str(placement.first_line),
        "last_line": str(placement.last_line),
        "module": origin.module or "",
        "class": origin.class_name or "",
        "name": origin.name,
        "line": str(origin.lines[0] if origin.lines else 0),
    }


def _get_place(origin: Origin) -> tuple[str | None, str]:
    return origin.class_name or None, origin.name


def _get_snippet(program: Program) -> ast.stmt:
    statements = parse(program.source).body
    return next(node for node in statements if program.first_line <= node.lineno <= program.last_line)


def _find_reason(result: RunResult) -> str | None:
    """Return why a probe shows that its module cannot be used, or None."""
    for record in result.records:
        if record.kind == "load" and record.error_type == "ContextError":
            return record.message
        if record.kind == "load":
            return f"its module cannot be imported: {record.error_type}: {record.message}"
    if result.timed_out:
        return "its module cannot be imported within the time limit"
    if not result.clean or all(record.kind != "context" for record in result.records):
        ending = f"the {result.limit} limit was reached" if result.limit else "the process ended"
        return f"its module cannot be imported: {ending}"
    return None


def _iterate_source(result: RunResult) -> Iterator[ReportLine]:
    """Iterate over the records of the source. The module could have forged records after these."""
    for record in result.records:
        if record.kind != "source":
            return
        yield record


def _iterate_patches(placement: Placement) -> Iterator[str]:
    """Iterate over what a program replaces or deletes in modules and classes that it imports, in order."""
    around = [node for node in placement.tree.body if node not in placement.statements]
    nodes = list(walk(around))
    imported = find_bound_names(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    yield from sorted(cases.find_provided_modules(ast.Module(around, [])))
    placed = [node for node in nodes if isinstance(node, ast.Attribute | ast.Call)]
    for node in sorted(placed, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Call):
            yield from _find_patch(node, imported)
        elif not isinstance(node.ctx, ast.Load) and _find_root(node) in imported:
            yield ast.unparse(node)


def _find_patch(call: ast.Call, imported: frozenset[str]) -> Iterator[str]:
    """Iterate over the target of a call of `setattr`, of `patch`, or of a method of `patch` or `monkeypatch`."""
    name, target = get_last_name(call), next(iter(call.args), None)
    owner = get_last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if target is None or not (name in _SETTING or "patch" in (name, owner)):
        return
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        yield target.value
    elif _find_root(target) in imported:
        keys = [part.value for part in call.args[1:2] if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        yield ".".join([ast.unparse(target), *keys])


def _find_root(node: ast.expr) -> str:
    """Return the name at the start of an expression such as `a.b[0].c()`, or an empty string."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
