"""What a corrected program must keep: it may mend how the code is called, but not what is expected of it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from agent.languages.base import MalformedProgram, Program
from agent.languages.python.cases import case_nodes
from agent.languages.python.insertion import MAX_PROGRAM, Placement
from agent.languages.python.source import parse
from agent.languages.python.tree import is_within, walk

_MOST_NAMED = 5
_SIGNS: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Not: "not",
}


def check_correction(program: Program, corrected: Program) -> None:
    """Refuse a correction that proves less.

    No fewer cases; in no case that stays, and in the whole program, fewer asserts; and every comparison and constant of
    a case's assert (those inside of calls left out, as they may be arguments) is found in an assert again. Asserts are
    `assert` statements, `self.assert...` and `raises`.

    Raises:
        MalformedProgram: says what is missing.
    """
    before, after = _Checked(program), _Checked(corrected)
    gone = [name for name in before.cases if name not in after.cases]
    if len(after.cases) < len(before.cases):
        raise MalformedProgram(f"there are fewer test cases than before; put these back: {_named(gone)}")
    for name in before.cases.keys() & after.cases.keys():
        if after.cases[name] < before.cases[name]:
            raise MalformedProgram(f"the test case `{name}` has fewer asserts than before: put them back")
    if after.asserts < before.asserts:
        raise MalformedProgram("there are fewer asserts than before: put them back")
    lost = before.expected - after.expected
    if lost:
        raise MalformedProgram(f"asserts compared with {_named(lost)}: how and with what may not change")


class _Checked:
    """A program's asserts: by case, in all, and what they compare with."""

    def __init__(self, program: Program) -> None:
        tree = parse(program.source, MAX_PROGRAM)
        nodes = case_nodes(Placement(program.source, program.first_line, program.last_line, tree, tree, ()))
        asserts = {name: list(_asserts([node])) for name, node in nodes.items()}
        self.cases = {name: len(found) for name, found in asserts.items()}
        everywhere = _asserts([tree])
        self.asserts = sum(not is_within(each, program.first_line, program.last_line) for each in everywhere)
        self.expected = Counter(value for found in asserts.values() for each in found for value in _compared(each))


def _asserts(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in walk(nodes):
        name = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Assert) or name.startswith("assert") or name == "raises":
            yield node


def _compared(node: ast.AST) -> Iterator[str]:
    pending: list[ast.AST] = [node.test] if isinstance(node, ast.Assert) else [*getattr(node, "args", ())]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Constant):
            yield repr(part.value)
        elif isinstance(part, ast.cmpop | ast.Not):
            yield _SIGNS[type(part)]
        elif not isinstance(part, ast.Call):
            pending.extend(ast.iter_child_nodes(part))


def _named(names: Iterable[str]) -> str:
    told = [f"`{name[:60]}`" for name in names]
    more = len(told) - _MOST_NAMED
    return ", ".join(told[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
