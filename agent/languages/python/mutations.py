"""Finds what can be changed in a snippet so that it is probably wrong: one small edit of its syntax tree at a time.

The operators are those of mutation testing (DeMillo, Lipton and Sayward, "Hints on Test Data Selection", 1978), chosen
for the mistakes that code which almost answers a query makes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.languages.python.tree import Definition

_OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_NEIGHBOUR: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
_EMPTY = {"list": "[]", "sorted": "[]", "dict": "{}", "set": "set()", "tuple": "()", "str": "''", "join": "''"}
_SEQUENCES = _EMPTY.keys() | {
    "repr",
    "format",
    "strip",
    "lower",
    "upper",
    "replace",
    "encode",
    "decode",
    "split",
    "bytes",
}
_EMPTY_OF: Mapping[type[ast.expr], str] = {
    ast.List: "[]",
    ast.ListComp: "[]",
    ast.Dict: "{}",
    ast.DictComp: "{}",
    ast.Set: "set()",
    ast.SetComp: "set()",
    ast.Tuple: "()",
    ast.JoinedStr: "''",
}


@dataclass(frozen=True)
class Edit:
    """One field of one node, and the value that would be wrong there. `round` 1 is for when all of round 0 is used."""

    kind: str
    node: ast.AST
    field: str
    value: Any
    line: int
    round: int = 0


def edits(tree: ast.Module) -> list[Edit]:
    """Return every edit of what the code does, in the order of its lines; the tree is left as it is."""
    steps = {id(node) for node in _steps(tree)}
    found: list[Edit] = []
    for node in _doing(tree):
        for operator in _OPERATORS:
            found += [edit for edit in operator(node) if id(edit.node) not in steps and id(_dropped(edit)) not in steps]
    return sorted(found, key=lambda edit: (edit.round, edit.line))


def _steps(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what makes `while` loops come to their end: changed, most of them would go on until the time limit."""
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.While):
            continue
        if isinstance(loop.test, ast.Constant):
            yield loop.test
        names = {part.id for part in ast.walk(loop.test) if isinstance(part, ast.Name)}
        for part in ast.walk(loop):
            targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]
            if isinstance(part, ast.Assign | ast.AugAssign) and any(
                getattr(each, "id", "") in names for each in targets
            ):
                yield from ast.walk(part)


def _doing(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that run: no signatures, decorators and annotations, and nothing under `if __name__`."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and _is_main_guard(node):
            pending.extend(node.orelse)
            continue
        yield node
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, Definition):
            children = node.body
        elif isinstance(node, ast.AnnAssign):
            children = [] if node.value is None else [node.value]
        pending.extend(children)


def _is_main_guard(node: ast.If) -> bool:
    names = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
    return bool(names & {"__name__", "TYPE_CHECKING"})


def _comparisons(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Compare):
        return
    for at, operator in enumerate(node.ops):
        others = [("swapped_comparison", _OPPOSITE, 0), ("off_by_one", _NEIGHBOUR, 1)]
        for kind, table, round_ in others:
            if type(operator) in table:
                changed: list[ast.cmpop] = [*node.ops]
                changed[at] = table[type(operator)]()
                yield Edit(kind, node, "ops", changed, node.lineno, round_)


def _numbers(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield Edit("off_by_one", node, "value", node.value + 1, node.lineno)
        yield Edit("off_by_one", node, "value", node.value - 1, node.lineno, 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and node.args:
        at = 0 if len(node.args) == 1 else 1
        if not isinstance(node.args[at], ast.Constant | ast.Starred):
            end = ast.BinOp(node.args[at], ast.Sub(), ast.Constant(1))
            yield Edit("off_by_one", node, "args", [*node.args[:at], end, *node.args[at + 1 :]], node.lineno)


def _branches(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.If | ast.IfExp):
        yield Edit("dropped_branch", node, "test", ast.Constant(False), node.lineno)
        if not isinstance(node.test, ast.Compare):
            yield Edit("negated_condition", node, "test", ast.UnaryOp(ast.Not(), node.test), node.lineno)
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield Edit("dropped_branch", node, "ifs", [], node.ifs[0].lineno)


def _operators(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield Edit("swapped_and_or", node, "op", other, node.lineno)
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        # joining or repeating texts and lists: another operator is no slip, it is a TypeError on any input
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
        if not any(map(_is_sequence, operands)):
            yield Edit("swapped_arithmetic", node, "op", _ARITHMETIC[type(node.op)](), node.lineno)


def _is_sequence(node: ast.expr) -> bool:
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.BinOp):
            pending += [part.left, part.right]
        elif type(part) in _EMPTY_OF or _is_text(part) or (isinstance(part, ast.Call) and _called(part) in _SEQUENCES):
            return True
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


def _truth(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield Edit("swapped_truth", node, "value", not node.value, node.lineno)


def _statements(node: ast.AST) -> Iterator[Edit]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if not isinstance(block, list):
            continue
        for at, statement in enumerate(block):
            if _acts(statement):
                changed = [*block[:at], ast.Pass(), *block[at + 1 :]]
                yield Edit("dropped_statement", node, field, changed, statement.lineno)


def _acts(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    return isinstance(statement, ast.AugAssign)


def _dropped(edit: Edit) -> ast.stmt | None:
    """Return the statement that an edit drops, if it does."""
    if edit.kind != "dropped_statement":
        return None
    pairs = zip(getattr(edit.node, edit.field), edit.value, strict=True)
    return next((old for old, new in pairs if old is not new), None)


def _results(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Return) or node.value is None:
        return
    value, empty = node.value, _EMPTY_OF.get(type(node.value))
    if isinstance(value, ast.Call):
        empty = _EMPTY.get(_called(value))
    elif _is_text(value) and isinstance(value, ast.Constant) and isinstance(value.value, str):
        empty = "''"
    if empty is not None:
        yield Edit("empty_result", node, "value", ast.parse(empty, mode="eval").body, node.lineno)


_OPERATORS: tuple[Callable[[ast.AST], Iterable[Edit]], ...] = (
    _comparisons,
    _numbers,
    _branches,
    _operators,
    _truth,
    _statements,
    _results,
)
