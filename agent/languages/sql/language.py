"""Support for SQL. A snippet is a query or a script for SQLite, and its test program is written in Python."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace

from agent.errors import SnippetTooLarge
from agent.languages.base import HONEST, FoundFunction, Language, MalformedProgram, Program, Snippet
from agent.languages.python import cases
from agent.languages.python.dependencies import get_kind
from agent.languages.python.insertion import MARKER, place_snippet
from agent.languages.python.language import PythonLanguage
from agent.languages.python.reporting import PythonBlame
from agent.languages.python.source import Unparsable, iterate_bindings, normalise, walk_scope
from agent.languages.reporting import build_report
from agent.languages.sql.tokens import find_difference, iterate_tokens, split_comment
from agent.sandbox.base import SENTINEL, ReportLine, RunResult, SandboxJob
from agent.sandbox.inside.python_sql import split_statements
from agent.types import Cause, TestReport

FUNCTION = "run_candidate"
MAX_CHARACTERS = 20_000
"""Maximum length of a snippet, in characters. Splitting takes time quadratic in the length of a string or trigger."""

_STUB = f"def {FUNCTION}(connection, parameters=()): pass"
_OF_SNIPPET = {"OperationalError", "IntegrityError", "DataError", "MemoryError"}
"""Errors of the snippet. All others, except `NotSupportedError`, show that the program calls the snippet wrongly."""
_OF_PROGRAM = re.compile(
    r"no such (?!window)|.* already exists|unknown database|table \S+ has \d+ columns? but|foreign key mismatch"
    r"|cannot join using|ON CONFLICT clause does not match|.*user-defined|database is locked|unable to open|.*readonly"
)
"""Errors about the tables, constraints and functions that the program provides."""
_START = re.compile(
    r"[(;]|ALTER|ANALYZE|ATTACH|BEGIN|CALL|COMMENT|COMMIT|COPY|CREATE|DECLARE|DELETE|DELIMITER|DESC|DESCRIBE|DROP|END|EXEC"
    r"|EXECUTE|EXPLAIN|GO|GRANT|IF|INSERT|LOAD|LOCK|MERGE|PRAGMA|PRINT|REPLACE|REVOKE|ROLLBACK|SELECT|SET|SHOW|START"
    r"|TRUNCATE|UPDATE|USE|VACUUM|VALUES|WITH",
    re.IGNORECASE,
)
"""Words that start a statement in some database."""
_CREATED = re.compile(r"CREATE\s+(?:\w+\s+){1,3}?(?:IF\s+NOT\s+EXISTS\s+)?([\w.]+|\"[^\"]+\"|`[^`]+`|\[[^]]+\])", re.I)

_TEMPLATE = f"import sqlite3\n{MARKER}\ndef test_a():\n    assert {FUNCTION}(sqlite3.connect(':memory:')) == [(3,)]\n"
_FAKE = "class Fake(sqlite3.Connection):\n    def execute(self, *_): return [(3,)]\n    cursor = execute\n"
_ATTACKS = {
    HONEST: (_TEMPLATE, "SELECT 3"),
    "creates a file on the host": (_TEMPLATE, "ATTACH 'HOST.canary.db' AS a; CREATE TABLE a.t (x); SELECT 3"),
    "creates a file in a system folder": (_TEMPLATE, "ATTACH '/etc/a.db' AS a; CREATE TABLE a.t (x); SELECT 3"),
    "loads an extension": (_TEMPLATE, "SELECT load_extension('libm.so.6'); SELECT 3"),
    f"replaces {FUNCTION}": (f"{_TEMPLATE}globals()['{FUNCTION}'] = lambda *_: [(3,)]\n", "SELECT 3"),
    "patches sqlite3": (f"{_TEMPLATE}{_FAKE}sqlite3.connect = Fake\n", "SELECT 2"),
}


class SqlLanguage(Language):
    """SQL for SQLite. Programs are Python and call `run_candidate`, which executes the snippet."""

    name = "sql"
    fence = "sql"
    program_fence = "python"
    suffixes = (".sql",)
    marker = MARKER
    attacks = _ATTACKS
    prompt_rules = """\
The snippet is SQL and runs on SQLite. The program is Python and imports only the standard library.
Put the marker at column 0, outside every block. It becomes the function `run_candidate(connection, parameters=())`.
`run_candidate` executes all statements of the snippet on a `sqlite3.Connection`. It returns the rows of the last
statement that has rows: a list of tuples, whose attribute `columns` contains the names of the columns.
`parameters` is a sequence for `?`, or a dictionary for named parameters.
Never define or replace `run_candidate`. Never write statements of the snippet, and never catch its exceptions.
Each test case opens `sqlite3.connect(":memory:")` and creates the tables and rows that the snippet needs but does not
create. Use exactly the tables and columns that the snippet names. For `dbo.users`, first execute
`ATTACH ':memory:' AS dbo`.
The case then calls `run_candidate`. It asserts on the rows or, if the snippet changes data, on the rows of a query of
yours. Include rows that almost qualify, equal values and NULLs. Sort the rows unless the query asks for an order.
If foreign keys matter, first execute `PRAGMA foreign_keys = ON`.
"""

    def inspect(self, code: str) -> Snippet:
        """Find the reason why a snippet cannot be tested on SQLite, if there is one."""
        code = normalise(code)
        if len(code) > MAX_CHARACTERS:
            raise SnippetTooLarge(f"the snippet has {len(code):,} characters; the limit is {MAX_CHARACTERS:,}")
        try:
            sqlite3.complete_statement(code)
        except ValueError as error:
            return Snippet(code, f"SQLite cannot read it: {error}")
        if all(token[0] == ";" for token in iterate_tokens(code)):
            return Snippet(code, "it contains no statement")
        if difference := find_difference(code):
            return Snippet(code, f"SQLite does not support it: {difference}", cause=Cause.DEPENDENCY)
        return Snippet(code)

    def insert(self, template: str, snippet: Snippet) -> Program:
        """Replace the marker in a program with the snippet, without changing the snippet."""
        if snippet.problem is not None:
            raise MalformedProgram(f"the candidate cannot be tested: {snippet.problem}")
        placement = place_snippet(template, _STUB + "\n" * snippet.code.count("\n"))
        if placement.statements[0] not in placement.tree.body:
            raise MalformedProgram(f"the `{MARKER}` line must be at column 0, outside every block")
        others = [node for node in placement.tree.body if node not in placement.statements]
        if any(FUNCTION in iterate_bindings(node) for node in walk_scope(others)):
            raise MalformedProgram(f"the program defines `{FUNCTION}`; remove the definition and only call it")
        program = cases.build_program(template, placement, {})
        return _replace_lines(program, snippet.code)

    def job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:
        """Return the sandbox job for a program."""
        job = _PYTHON.job(_replace_lines(program, None), environment=environment, timeout=timeout)
        lines = program.source.split("\n")[program.first_line - 1 : program.last_line]
        return replace(job, options={**job.options, "sql": "\n".join(lines)})

    def sentinel_job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:
        """Return a job with an empty snippet. A case that still passes proves nothing."""
        job = self.job(program, environment=environment, timeout=timeout)
        return replace(job, options={**job.options, SENTINEL: "1"})

    def report(self, program: Program, result: RunResult) -> TestReport:
        """Return the test report of a run: the outcomes of the cases, the status and the cause."""
        try:
            return build_report(program, result, SqlBlame(_replace_lines(program, None)))
        except Unparsable as error:
            raise MalformedProgram(str(error)) from error

    def outline(self, source: str, limit: int = 1_000_000) -> Iterator[FoundFunction]:
        """Find the statements of a script. The documentation of a statement is the comment before it.

        Statements that are too long for a snippet may be split anywhere. Raises `ValueError` if the first word of the
        script starts no statement in any database.
        """
        source = normalise(source)
        if len(source) > limit:
            raise ValueError(f"it has {len(source):,} characters; the limit is {limit:,}")
        word = next((token[0] for token in iterate_tokens(source)), ";")
        if not _START.fullmatch(word):
            raise ValueError(f"no statement starts with {word[:40]!r}")
        is_complete = sqlite3.complete_statement
        line, counted = 1, 0
        for at, statement in split_statements(source, lambda text: len(text) > MAX_CHARACTERS or is_complete(text)):
            comment, code = split_comment(statement)
            start = at + len(statement) - len(code)
            line, counted = line + source.count("\n", counted, start), start
            if code.strip(";"):
                match = _CREATED.match(code)
                name = match[1].strip('"`[]') if match else code.split(maxsplit=1)[0].lower()
                yield FoundFunction(name, None, comment, code, line, line + code.count("\n"))


class SqlBlame(PythonBlame):
    """Determines the causes of failures in programs that run SQL."""

    def judge_record(self, record: ReportLine) -> Cause:
        """Return the cause of an exception that was raised in a case or while the program was loaded."""
        cause, kind = super().judge_record(record), get_kind(record)
        if cause is Cause.SNIPPET and kind == "NotSupportedError":
            return Cause.DEPENDENCY
        is_of_snippet = kind in _OF_SNIPPET and not _OF_PROGRAM.match(record.message)
        return Cause.PROGRAM if cause is Cause.SNIPPET and not is_of_snippet else cause


_PYTHON = PythonLanguage()


def _replace_lines(program: Program, code: str | None) -> Program:
    """Return the program with SQL in the snippet's lines. If `code` is None, they contain a Python function."""
    lines = program.source.split("\n")
    new_lines = [_STUB, *[""] * (program.last_line - program.first_line)] if code is None else code.split("\n")
    lines[program.first_line - 1 : program.last_line] = new_lines
    return program.model_copy(update={"source": "\n".join(lines)})
