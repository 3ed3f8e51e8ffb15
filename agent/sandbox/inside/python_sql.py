"""Binds `run_candidate`, which executes an SQL snippet. This file is a part of the Python harness.

The engine splits the snippet into statements. Each statement is executed by a lambda in the statement's line of the
program, so that tracebacks and the stacks of hanging programs name the statement.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_reports import NAME, report_error

LACKING = (
    'near "|incomplete input|unrecognized token|no such (function|module|collation)|wrong number of arguments'
    "|no such (table: (generate_series|unnest)|column: (INTERVAL|ROWNUM|SYSDATE))"
    "|not (currently )?supported|unsupported|not authorized|is not a function|prohibited|not constant|non-constant"
    "|non-deterministic|[Cc]annot (add|modify|use)|may (not|only)|(not|only) allowed|required before HAVING|misused"
    "|HAVING clause|ORDER BY term|DISTINCT aggregates|ecursive reference|circular reference|within a transaction"
    "|no transaction is active|too many (terms|columns|SQL)|too large|stack overflow"
)
"""A pattern for errors about syntax, functions and other features that SQLite lacks."""


class Rows(list):  # type: ignore[type-arg]
    """The rows of a statement, as tuples. `columns` contains the names of their columns."""

    columns: tuple[str, ...] = ()


def split_statements(script: str, is_complete: Callable[[str], bool]) -> Iterator[tuple[int, str]]:
    """Iterate over the statements of a script, each with the offset of its first character."""
    start = end = 0
    while end < len(script):
        end = script.find(";", end) + 1 or len(script)
        text = script[start:end]
        if end == len(script) or is_complete(text):
            if text.strip():
                yield start + len(text) - len(text.lstrip()), text.strip()
            start = end


def make_candidate(script: str, line: int, emit: Callable[..., None]) -> Any:
    """Return the function that executes a snippet, which begins in the given line of the program."""
    import re
    import sqlite3

    connection_type, cursor_type, lacks = sqlite3.Connection, sqlite3.Cursor, sqlite3.NotSupportedError
    operational, programming, version = sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.sqlite_version
    is_lacking = re.compile(LACKING).search
    statements = [*split_statements(script, sqlite3.complete_statement)]

    def run_statements(connection: Any, parameters: Any, calls: tuple[Any, ...]) -> Rows:
        if not isinstance(connection, connection_type):
            raise TypeError("run_candidate needs a sqlite3.Connection, not a " + type(connection).__name__)
        rows = Rows()

        def step(number: int) -> None:
            cursor = connection_type.cursor(connection)
            cursor.row_factory = None
            try:
                cursor_type.execute(cursor, statements[number][1], parameters)
            except programming as error:
                if "uses 0," not in str(error):
                    raise
                cursor_type.execute(cursor, statements[number][1])
            if cursor.description is not None:
                rows[:] = cursor_type.fetchall(cursor)
                rows.columns = tuple([column[0] for column in cursor.description])

        level = connection.isolation_level
        connection.isolation_level = None  # commits, and leaves transactions to the snippet
        try:
            for call in calls:
                call(step)
        except operational as error:
            if not is_lacking(str(error)):
                raise
            message = "SQLite %s cannot run the snippet: %s" % (version, error)
            lacking = lacks(message).with_traceback(error.__traceback__)
            report_error(emit, "load", "sql", lacking)  # the program may handle the exception
            raise lacking from None
        finally:
            connection.isolation_level = level
        return rows

    calls = [""] * (script.count("\n") + 1)
    for number, (offset, _) in enumerate(statements):
        calls[script.count("\n", 0, offset)] += "lambda step: step(%d), " % number
    head = "def run_candidate(connection, parameters=()): return run_statements(connection, parameters, ("
    namespace: dict[str, Any] = {"run_statements": run_statements}
    exec(compile("\n" * (line - 1) + head + "\n".join(calls) + "))", NAME, "exec", dont_inherit=True), namespace)
    return namespace["run_candidate"]
