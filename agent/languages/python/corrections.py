"""What a corrected program must keep: it may mend how the code is called, but not what is expected of it."""

from __future__ import annotations

import builtins
from collections.abc import Iterable

from agent.languages.base import MalformedProgram, Program
from agent.languages.python.telling import EXITS, Scope, Statement, Told, binds
from agent.languages.python.tree import Definition

_MOST_NAMED = 5
_SHOWN = 80


def check_correction(program: Program, corrected: Program) -> None:
    """Refuse a correction that proves less.

    Every test case stays under its name. In each function, what tells something of the code stays, in the same order
    and the same blocks: asserts, the data and helpers they read, and statements that use the code. It stays as it is
    written, but for calls of the code: their arguments, how they are reached (`f(x)`, `Stand().f(x)`), and `await`,
    `asyncio.run`, `list` and `tuple` around them. Between these, nothing may leave the function early or bind their
    names anew. All else is free: imports, stand-ins, fixtures, input, further cases.

    Raises:
        MalformedProgram: says what is missing.
    """
    gone = [name for name in program.cases if name not in corrected.cases]
    if gone:
        raise MalformedProgram(f"every test case stays, under its name; put these back: {_named(gone)}")
    before, after = Told(program), Told(corrected)
    new = after.defined - before.defined
    hidden = {name for name in new if _asserts(name) or (name in before.read and name in dir(builtins))}
    if hidden:
        raise MalformedProgram(
            f"the program may not define {_named(sorted(hidden))} itself: the asserts need what is real"
        )
    for scope, statements in before.telling():
        _check_scope(scope, statements, before, after, program.source.split("\n"))


def _check_scope(scope: Scope, statements: list[Statement], before: Told, after: Told, lines: list[str]) -> None:
    there = after.scopes.get(scope, [])
    where = f"`{'.'.join(scope)}`" if scope else "the module"
    left = iter([(after.plain(each), after.strict(each)) for each in there])
    for each in statements:
        plain, lenient = before.plain(each), before.lenient(each)
        if not any(plain == as_written or lenient == opened for as_written, opened in left):
            raise MalformedProgram(_missing(where, each, lines))
    if _exits(there) > _exits(before.scopes[scope]):
        raise MalformedProgram(f"{where} has a `return`, `raise`, `break` or `continue` more than before: leave it out")
    names = {(scope, name) for each in statements for name in binds(each.node)}
    names |= {(scope[:-1], scope[-1])} if scope else set()
    again = sorted(name for name in names if after.bound[name] > before.bound[name])
    if again:
        raise MalformedProgram(f"{where}: {_named(name for _, name in again)} may not be set again")


def _missing(where: str, statement: Statement, lines: list[str]) -> str:
    if isinstance(statement.node, Definition):
        return f"{where} stays where it stands, with the decorators and bases that it has and no others"
    return (
        f"{where} must keep `{lines[statement.node.lineno - 1].strip()[:_SHOWN]}` at its place, in the same blocks and "
        "no others: only how the code is called in it may change. Prepare what it needs in statements before it"
    )


def _exits(statements: Iterable[Statement]) -> int:
    return sum(isinstance(each.node, EXITS) for each in statements)


def _asserts(name: str) -> bool:
    return name.startswith("assert") or name == "raises"


def _named(names: Iterable[str]) -> str:
    told = [f"`{name[:60]}`" for name in names]
    more = len(told) - _MOST_NAMED
    return ", ".join(told[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
