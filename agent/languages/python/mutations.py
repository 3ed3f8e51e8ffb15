"""Find small edits to a snippet's syntax tree that probably make the snippet wrong.

The operators come from mutation testing (DeMillo, Lipton and Sayward, "Hints on Test Data Selection", 1978). They were
chosen to match typical mistakes in code that almost answers a query.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent.languages.python.source import Definition, get_last_name, is_main_guard, is_text_constant

_Comparisons = dict[type[ast.cmpop], type[ast.cmpop]]
_NEGATED: _Comparisons = {ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.Is: ast.IsNot}
_OPPOSITE = _NEGATED | {negated: operator for operator, negated in _NEGATED.items()}
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
    """A field of a node, and a function that creates a wrong value for it.

    `about` is the part of the code that changes. If `later` is true, the edit comes after all other edits of the same
    kind.
    """

    kind: str
    node: ast.AST
    field: str
    value: Callable[[], Any]
    about: ast.expr | ast.stmt
    later: bool = False


def find_edits(tree: ast.Module) -> list[Edit]:
    """Return every edit that changes the code's behaviour, in line order. Does not change the tree."""
    steps = {id(node) for node in _iterate_loop_steps(tree)}
    edits = [edit for node in _walk_running(tree) for operator in _OPERATORS for edit in operator(node)]
    safe = [edit for edit in edits if id(edit.node) not in steps and id(edit.about) not in steps]
    return sorted(safe, key=lambda edit: (edit.later, edit.about.lineno))


def _iterate_loop_steps(tree: ast.Module) -> Iterator[ast.AST]:
    """Iterate over nodes that make `while` loops end.

    Most edits to these nodes would make the loop run until the time limit.
    """
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.While)):
        if isinstance(loop.test, ast.Constant):
            yield loop.test
        names = {part.id for part in ast.walk(loop.test) if isinstance(part, ast.Name)}
        for change in (part for part in ast.walk(loop) if isinstance(part, ast.Assign | ast.AugAssign)):
            targets = change.targets if isinstance(change, ast.Assign) else [change.target]
            if any(isinstance(target, ast.Name) and target.id in names for target in targets):
                yield from ast.walk(change)


def _walk_running(tree: ast.Module) -> Iterator[ast.AST]:
    """Iterate over nodes that run. Excludes signatures, decorators, annotations and code under `if __name__`."""
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


def _swap_comparisons(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Compare):
        return
    for index, operator in enumerate(node.ops):
        for kind, table, later in (("swapped_comparison", _OPPOSITE, False), ("off_by_one", _NEIGHBOUR, True)):
            if type(operator) in table:
                operators = partial(_replace_item, node.ops, index, table[type(operator)]())
                yield Edit(kind, node, "ops", operators, node, later)


def _replace_item(items: Sequence[Any], index: int, item: Any) -> list[Any]:
    return [*items[:index], item, *items[index + 1 :]]


def _change_values(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        opposite = not node.value
        yield Edit("swapped_truth", node, "value", lambda: opposite, node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        number = node.value
        yield Edit("off_by_one", node, "value", lambda: number + 1, node)
        yield Edit("off_by_one", node, "value", lambda: number - 1, node, later=True)
    elif isinstance(node, ast.Call) and get_last_name(node) == "range" and node.args:
        index = 0 if len(node.args) == 1 else 1
        end = node.args[index]
        if not isinstance(end, ast.Constant | ast.Starred):
            shorter = ast.BinOp(end, ast.Sub(), ast.Constant(1))
            yield Edit("off_by_one", node, "args", partial(_replace_item, node.args, index, shorter), node)


def _drop_branches(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.If | ast.IfExp):
        test = node.test
        yield Edit("dropped_branch", node, "test", lambda: ast.Constant(False), test)
        if not isinstance(test, ast.Compare):
            yield Edit("negated_condition", node, "test", lambda: ast.UnaryOp(ast.Not(), test), test)
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield Edit("dropped_branch", node, "ifs", list, node.ifs[0])


def _swap_operators(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        yield Edit("swapped_and_or", node, "op", ast.Or if isinstance(node.op, ast.And) else ast.And, node)
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        # for strings and lists, another operator would raise TypeError on any input
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
        if not any(map(_is_sequence, operands)):
            yield Edit("swapped_arithmetic", node, "op", _ARITHMETIC[type(node.op)], node)


def _is_sequence(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_sequence(node.left) or _is_sequence(node.right)
    return (
        type(node) in _EMPTY_OF
        or is_text_constant(node)
        or (isinstance(node, ast.Call) and get_last_name(node) in _SEQUENCES)
    )


def _drop_statements(node: ast.AST) -> Iterator[Edit]:
    for field, block in ast.iter_fields(node):
        for index, statement in enumerate(block if isinstance(block, list) else []):
            if _has_effect(statement):
                drop = partial(_replace_item, block, index, ast.Pass())
                yield Edit("dropped_statement", node, field, drop, statement)


def _has_effect(statement: object) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    return isinstance(statement, ast.AugAssign)


def _empty_results(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Return) or node.value is None:
        return
    value, empty = node.value, _EMPTY_OF.get(type(node.value))
    if isinstance(value, ast.Call):
        empty = _EMPTY.get(get_last_name(value))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        empty = "''"
    if empty is not None:
        result = ast.parse(empty, mode="eval").body
        yield Edit("empty_result", node, "value", lambda: result, value)


_OPERATORS: tuple[Callable[[ast.AST], Iterable[Edit]], ...] = (
    _swap_comparisons,
    _change_values,
    _drop_branches,
    _swap_operators,
    _drop_statements,
    _empty_results,
)
