"""Finds what can be changed in a snippet so that it is probably wrong: one small edit of its syntax tree at a time.

The operators are those of mutation testing (DeMillo, Lipton and Sayward, "Hints on Test Data Selection", 1978), chosen
for the mistakes that code which almost answers a query makes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent.languages.python.source import Definition, is_main_guard, is_text, last_name

_Comparisons = dict[type[ast.cmpop], type[ast.cmpop]]
_NEGATED: _Comparisons = {ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.Is: ast.IsNot}
_OPPOSITE = _NEGATED | {other: one for one, other in _NEGATED.items()}
_NEIGHBOUR: _Comparisons = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
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
_TEXTS = {"repr", "format", "strip", "lower", "upper", "replace", "encode", "decode", "split", "bytes"}
_SEQUENCES = _EMPTY.keys() | _TEXTS
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
    """One field of one node, and what makes the value that would be wrong there.

    `about` is the part of the code that becomes another; `later` is for when all others of its kind are used up.
    """

    kind: str
    node: ast.AST
    field: str
    value: Callable[[], Any]
    about: ast.expr | ast.stmt
    later: bool = False


def edits(tree: ast.Module) -> list[Edit]:
    """Return every edit of what the code does, in the order of its lines; the tree is left as it is."""
    steps = {id(node) for node in _steps(tree)}
    every = [edit for node in _walk_running(tree) for operator in _OPERATORS for edit in operator(node)]
    safe = [edit for edit in every if id(edit.node) not in steps and id(edit.about) not in steps]
    return sorted(safe, key=lambda edit: (edit.later, edit.about.lineno))


def _steps(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what makes `while` loops come to their end: changed, most of them would go on until the time limit."""
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.While)):
        if isinstance(loop.test, ast.Constant):
            yield loop.test
        names = {part.id for part in ast.walk(loop.test) if isinstance(part, ast.Name)}
        for change in (part for part in ast.walk(loop) if isinstance(part, ast.Assign | ast.AugAssign)):
            targets = change.targets if isinstance(change, ast.Assign) else [change.target]
            if any(isinstance(target, ast.Name) and target.id in names for target in targets):
                yield from ast.walk(change)


def _walk_running(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that run: no signatures, decorators and annotations, and nothing under `if __name__`."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and is_main_guard(node.test):
            pending.extend(node.orelse)
            continue
        yield node
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, Definition):
            children = node.body
        elif isinstance(node, ast.AnnAssign):
            children = [] if node.value is None else [node.value]
        pending.extend(children)


def _comparisons(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Compare):
        return
    for at, operator in enumerate(node.ops):
        for kind, table, later in (("swapped_comparison", _OPPOSITE, False), ("off_by_one", _NEIGHBOUR, True)):
            if type(operator) in table:
                changed = partial(_replace_item, node.ops, at, table[type(operator)]())
                yield Edit(kind, node, "ops", changed, node, later)


def _replace_item(items: Sequence[Any], at: int, item: Any) -> list[Any]:
    return [*items[:at], item, *items[at + 1 :]]


def _values(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        other = not node.value
        yield Edit("swapped_truth", node, "value", lambda: other, node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        number = node.value
        yield Edit("off_by_one", node, "value", lambda: number + 1, node)
        yield Edit("off_by_one", node, "value", lambda: number - 1, node, later=True)
    elif isinstance(node, ast.Call) and last_name(node) == "range" and node.args:
        at = 0 if len(node.args) == 1 else 1
        end = node.args[at]
        if not isinstance(end, ast.Constant | ast.Starred):
            shorter = ast.BinOp(end, ast.Sub(), ast.Constant(1))
            yield Edit("off_by_one", node, "args", partial(_replace_item, node.args, at, shorter), node)


def _branches(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.If | ast.IfExp):
        test = node.test
        yield Edit("dropped_branch", node, "test", lambda: ast.Constant(False), test)
        if not isinstance(test, ast.Compare):
            yield Edit("negated_condition", node, "test", lambda: ast.UnaryOp(ast.Not(), test), test)
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield Edit("dropped_branch", node, "ifs", list, node.ifs[0])


def _operators(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        yield Edit("swapped_and_or", node, "op", ast.Or if isinstance(node.op, ast.And) else ast.And, node)
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        # joining or repeating texts and lists: another operator is no slip, it is a TypeError on any input
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
        if not any(map(_is_sequence, operands)):
            yield Edit("swapped_arithmetic", node, "op", _ARITHMETIC[type(node.op)], node)


def _is_sequence(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_sequence(node.left) or _is_sequence(node.right)
    return type(node) in _EMPTY_OF or is_text(node) or (isinstance(node, ast.Call) and last_name(node) in _SEQUENCES)


def _statements(node: ast.AST) -> Iterator[Edit]:
    for field, block in ast.iter_fields(node):
        for at, statement in enumerate(block if isinstance(block, list) else []):
            if _acts(statement):
                yield Edit("dropped_statement", node, field, partial(_replace_item, block, at, ast.Pass()), statement)


def _acts(statement: object) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    return isinstance(statement, ast.AugAssign)


def _results(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Return) or node.value is None:
        return
    value, empty = node.value, _EMPTY_OF.get(type(node.value))
    if isinstance(value, ast.Call):
        empty = _EMPTY.get(last_name(value))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        empty = "''"
    if empty is not None:
        result = ast.parse(empty, mode="eval").body
        yield Edit("empty_result", node, "value", lambda: result, value)


_OPERATORS: tuple[Callable[[ast.AST], Iterable[Edit]], ...] = (
    _comparisons,
    _values,
    _branches,
    _operators,
    _statements,
    _results,
)
