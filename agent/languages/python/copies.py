"""Finds the work of a snippet's body in the scaffolding around it, under whatever names and with whatever constants."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from agent.languages.python.hiding import is_plain

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_STEPS = (ast.Call, ast.BinOp, ast.AugAssign, ast.IfExp, ast.JoinedStr, *_COMPREHENSIONS)
_TESTS = (ast.Compare, ast.BoolOp, ast.Subscript, ast.keyword)
_LEFT_OUT = frozenset({"ctx", "kind", "type_comment"})
_OPERAND = "operand"
_CONSTANT = "constant"

_Key = tuple[str, int]


@dataclass(frozen=True)
class _Form:
    """What an expression is compared by: `exact` keeps its names, `loose` only those of what it calls.

    Constants are all alike in both. `steps` counts what computes in it, `tests` what looks something up, compares, or
    says by keyword how to compute.
    """

    exact: int
    loose: int
    steps: int = 0
    tests: int = 0


def copied_from(own: Iterable[ast.stmt], told: ast.AST, others: ast.AST) -> str | None:
    """Return the longest expression of the statements `own` that `others`, which may hold them, has as well.

    None where there is none. Expressions of `told` are free. One step, such as `a + b` or `load(path)`, is compared
    with its names, except for what every class may say (`len(a)`, `a is None`, `a[0]`, `super().close()`); what takes
    two or more is found under other names, too.
    """
    own = list(own)
    reader = _Reader({id(node) for node in own})
    secret = reader.forms(own).keys() - reader.forms([told]).keys()
    found = [node for key, node in reader.forms([others]).items() if key in secret]
    return max(map(ast.unparse, found), key=len, default=None)


class _Reader:
    """Numbers expressions, equal ones alike; `apart` are the ids of statements that are not read within others."""

    def __init__(self, apart: Set[int]) -> None:
        self._apart = apart
        self._numbers: dict[tuple[object, ...], int] = {}

    def forms(self, nodes: Iterable[ast.AST]) -> dict[_Key, ast.AST]:
        """Return the expressions in the nodes that do work."""
        found: dict[_Key, ast.AST] = {}
        for node in nodes:
            self._read(node, found)
        return found

    def _read(self, node: ast.AST, found: dict[_Key, ast.AST]) -> _Form:
        if isinstance(node, ast.Constant):
            number = self._number((_CONSTANT,))
            return _Form(number, number)
        exact: list[object] = [type(node).__name__]
        loose: list[object] = [*exact, _called(node)]
        steps, tests = _own_steps(node), int(isinstance(node, _TESTS))
        for part in _parts(node):
            if id(part) in self._apart:
                continue
            if isinstance(part, ast.AST):
                form = self._read(part, found)
                exact.append(form.exact)
                loose.append(form.loose)
                steps, tests = steps + form.steps, tests + form.tests
            else:
                exact.append(part)
                loose.append(part)
        if self._is_operand(node, loose):
            loose = [_OPERAND]
        form = _Form(self._number(tuple(exact)), self._number(tuple(loose)), steps, tests)
        if isinstance(node, ast.expr | ast.AugAssign) and not isinstance(node, ast.Slice):
            found |= dict.fromkeys(_keys(node, form), node)
        return form

    def _is_operand(self, node: ast.AST, loose: list[object]) -> bool:
        if isinstance(node, ast.Attribute):
            return loose[2] == self._number((_OPERAND,))
        return isinstance(node, ast.Name | ast.arg)

    def _number(self, form: tuple[object, ...]) -> int:
        return self._numbers.setdefault(form, len(self._numbers))


def _parts(node: ast.AST) -> Iterator[object]:
    for name, value in ast.iter_fields(node):
        if name not in _LEFT_OUT:
            yield from value if isinstance(value, list) else (value,)


def _own_steps(node: ast.AST) -> int:
    if isinstance(node, ast.Slice):
        return 2 if node.step else int(any((node.lower, node.upper)))
    return int(isinstance(node, _STEPS) and _called(node) != "super")


def _called(node: ast.AST) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""


def _keys(node: ast.expr | ast.AugAssign, form: _Form) -> Iterator[_Key]:
    if isinstance(node, ast.Call) and any(_called(part) == "super" for part in ast.walk(node.func)):
        return
    if form.steps >= 2 or (form.steps and form.steps + form.tests >= 3):
        yield "loose", form.loose
    elif form.steps + form.tests and _is_telling(node):
        yield "exact", form.exact


def _is_telling(node: ast.expr | ast.AugAssign) -> bool:
    """Say whether a single step may be somebody's own idea."""
    if isinstance(node, ast.Call):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if all(isinstance(value, ast.Constant) for value in given):
            return False
        return not (isinstance(node.func, ast.Name) and is_plain(node.func.id))
    if isinstance(node, ast.Compare):
        return not isinstance(node.ops[0], ast.Is | ast.IsNot)
    return isinstance(node, _STEPS) or (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice))
