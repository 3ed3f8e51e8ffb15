"""SQL snippets run on SQLite in both sandboxes: verdicts, causes, proofs and attacks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.languages.sql.language import SqlLanguage
from agent.pipeline.nodes.execute import mark_unexercised
from agent.sandbox.base import ReportLine, RunResult, Sandbox
from agent.types import Cause, Status, TestReport

sql = SqlLanguage()
SCHEMA = '''
import sqlite3
# <candidate>
def connect():
    connection = sqlite3.connect(":memory:")
    connection.executescript("""
        CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT UNIQUE, age INTEGER, joined TEXT, boss INTEGER);
        INSERT INTO people VALUES (1, 'Ann', 30, '2020-01-02', NULL), (2, 'Bob', 20, '2021-05-06', 1);
        INSERT INTO people VALUES (3, 'Cid', NULL, '2021-05-06', 1);
    """)
    return connection
'''
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "
NAMES = "SELECT name FROM people ORDER BY name"
ALL = "[('Ann',), ('Bob',), ('Cid',)]"
PASSED, FAILED = (Status.PASSED, None), (Status.FAILED, Cause.SNIPPET)
SNIPPET, PROGRAM, DEPENDENCY = ((Status.ERROR, cause) for cause in (Cause.SNIPPET, Cause.PROGRAM, Cause.DEPENDENCY))
NOT_EXERCISED = (Status.ERROR, Cause.PROGRAM)

# the snippet, the statements of the case (or the rows that it expects), and the status and cause
VERDICTS: Mapping[str, tuple[str, str, tuple[Status, Cause | None]]] = {
    "a right query": (NAMES, ALL, PASSED),
    "a wrong order": (NAMES + " DESC", ALL, FAILED),
    "a null that is no equal": ("SELECT name FROM people WHERE age = NULL", "[('Cid',)]", FAILED),
    "a null that a join drops": (
        "SELECT p.name, b.name FROM people p JOIN people b ON b.id = p.boss ORDER BY 1",
        "[('Ann', None), ('Bob', 'Ann'), ('Cid', 'Ann')]",
        FAILED,
    ),
    "columns": (
        "SELECT name AS who, age FROM people",
        "    rows = run_candidate(connect())\n    assert dict(zip(rows.columns, rows[0])) == {'who': 'Ann', 'age': 30}",
        PASSED,
    ),
    "a sequence of parameters": (
        "DELETE FROM people WHERE id = 3; SELECT name FROM people WHERE joined = ? AND age < ?",
        "    assert run_candidate(connect(), ['2021-05-06', 25]) == [('Bob',)]",
        PASSED,
    ),
    "named parameters": (
        "SELECT name FROM people WHERE age < :limit",
        "    assert run_candidate(connect(), {'limit': 25, 'other': 1}) == [('Bob',)]",
        PASSED,
    ),
    "too few parameters": ("SELECT ?", "[(1,)]", PROGRAM),
    "a script with a trigger": (
        "CREATE TABLE log (name TEXT);\nCREATE TRIGGER t AFTER DELETE ON people BEGIN\n"
        "  INSERT INTO log VALUES (old.name); SELECT 1;\nEND;\nDELETE FROM people WHERE id = 3;\nSELECT * FROM log;",
        "[('Cid',)]",
        PASSED,
    ),
    "a transaction": (
        "BEGIN; UPDATE people SET age = age + 1; COMMIT",
        "    connection = connect()\n    connection.execute('UPDATE people SET age = 1')\n"
        "    assert run_candidate(connection) == []\n"
        "    assert connection.execute('SELECT DISTINCT age FROM people').fetchall() == [(2,)]",
        PASSED,
    ),
    "rows of an insertion": (
        "INSERT INTO people (name) VALUES ('Dan') RETURNING id; -- its number", "[(4,)]", PASSED,
    ),
    "a marker line": ("SELECT '\"\"\"' ||\n'\n# <candidate>\n*/'", r"""[('\"\"\"\n# <candidate>\n*/',)]""", PASSED),
    "a row factory": (
        NAMES,
        "    connection = connect()\n    connection.row_factory = sqlite3.Row\n"
        f"    assert run_candidate(connection) == {ALL}",
        PASSED,
    ),
    "a missing table": ("SELECT * FROM orders", "[]", PROGRAM),
    "a missing column": ("SELECT salary FROM people", "[]", PROGRAM),
    "a table that exists": ("CREATE TABLE people (id INTEGER)", "[]", PROGRAM),
    "a missing constraint": (
        "INSERT INTO people (name, age) VALUES ('Ann', 1) ON CONFLICT (age) DO UPDATE SET age = 2", "[]", PROGRAM,
    ),
    "a missing column of a join": ("SELECT * FROM people JOIN (SELECT 1 AS n) USING (n)", "[]", PROGRAM),
    "a function of the program": (
        "SELECT f(1)",
        "    connection = connect()\n    connection.create_function('f', 1, lambda x: 1 / 0)\n"
        "    assert run_candidate(connection) == [(1,)]",
        PROGRAM,
    ),
    "another connection": (NAMES, "    assert run_candidate(None) == []", PROGRAM),
    "a constraint": ("INSERT INTO people (name) VALUES ('Ann')", "[]", SNIPPET),
    "a type": ("INSERT INTO people (id) VALUES ('x')", "[]", SNIPPET),
    "an ambiguous column": ("SELECT name FROM people p JOIN people b ON b.id = p.boss", "[]", SNIPPET),
    "an expected error": (
        "CREATE TABLE t (a INTEGER CHECK (a > 0))",
        "    connection = connect()\n    run_candidate(connection)\n    try:\n"
        "        connection.execute('INSERT INTO t VALUES (0)')\n    except sqlite3.IntegrityError:\n        return\n"
        "    assert False",
        PASSED,
    ),
    "an endless query": (ENDLESS + "COUNT(*) FROM n", "[]", (Status.TIMEOUT, Cause.SNIPPET)),
    "a huge result": (ENDLESS + "zeroblob(10000000) FROM n", "[]", SNIPPET),
    "a case without the snippet": (NAMES, "    assert connect()", NOT_EXERCISED),
    "a case that ignores the rows": (NAMES, "    run_candidate(connect())\n    assert connect()", NOT_EXERCISED),
    "no rows": (NAMES + " LIMIT 0", "[]", NOT_EXERCISED),
    "a local replacement": (
        NAMES, f"    run_candidate = lambda connection: {ALL}\n    assert run_candidate(1) == {ALL}", NOT_EXERCISED
    ),
    "a patched module": (
        "SELECT 1",
        "    sqlite3.Connection = sqlite3.Cursor = object\n    sqlite3.complete_statement = lambda text: True\n"
        "    assert run_candidate(connect()) == [(2,)]",
        FAILED,
    ),
    "a handled error": (
        "SELECT YEAR(joined) FROM people",
        "    rows = []\n    try: rows = run_candidate(connect())\n    except BaseException: pass\n    assert rows",
        DEPENDENCY,
    ),
    "the report descriptor": ("ATTACH '/proc/self/fd/3' AS a; CREATE TABLE a.t (x)", "[]", PROGRAM),
    "the process's memory": ("ATTACH '/proc/self/mem' AS a; CREATE TABLE a.t (x)", "[]", PROGRAM),
    "a copy to the report descriptor": ("VACUUM INTO '/proc/self/fd/3'", "[]", PROGRAM),
    "a damaged schema": (
        "PRAGMA writable_schema = 1; DELETE FROM sqlite_master; PRAGMA writable_schema = RESET; SELECT 2",
        "[(1,)]",
        FAILED,
    ),
}  # fmt: skip

DIALECTS = {
    "postgresql": [
        "SELECT name FROM people WHERE name ILIKE 'a%'",
        "SELECT age::text FROM people",
        "SELECT DISTINCT ON (joined) joined, name FROM people ORDER BY joined",
        "SELECT i FROM generate_series(1, 3) AS i",
        "SELECT EXTRACT(YEAR FROM joined) FROM people",
        "SELECT joined + INTERVAL '1 day' FROM people",
        "SELECT ARRAY_AGG(name) FROM people",
        "CREATE TABLE t (id SERIAL PRIMARY KEY)",
        "SELECT CAST(AVG(age) / 3 AS NUMERIC(10, 2)) FROM people",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT ROW_NUMBER() OVER () FROM n) SELECT i FROM n LIMIT 2",
    ],
    "mysql": [
        "SELECT GROUP_CONCAT(name SEPARATOR ', ') FROM people",
        "SELECT DATE_SUB(NOW(), INTERVAL 7 DAY)",
        "SELECT YEAR(joined) FROM people",
        "INSERT INTO people (id) VALUES (1) ON DUPLICATE KEY UPDATE age = 1",
        "DELETE p FROM people p JOIN people b ON b.id = p.boss",
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)",
        "SELECT name FROM people WHERE name REGEXP '^A'",
    ],
    "t-sql": [
        "SELECT TOP 1 name FROM people",
        "SELECT name FROM people WITH (NOLOCK)",
        "SELECT ISNULL(age, 0) FROM people",
        "SELECT * INTO #t FROM people",
        "DECLARE @n INT = 1; SELECT @n",
        "SELECT name + ' ' + joined FROM people",
        "SELECT CAST(joined AS DATE) FROM people",
    ],
}


def write_program(case: str) -> str:
    statements = case if case.startswith(" ") else f"    assert run_candidate(connect()) == {case}"
    return SCHEMA + f"def test_a():\n{statements}\n"


async def judge(sandbox: Sandbox, code: str, case: str) -> TestReport:
    """Run a program and, if it passes, run it again without the snippet, as the pipeline does."""
    snippet = sql.inspect(code)
    if snippet.problem is not None:
        return TestReport(status=Status.ERROR, cause=snippet.cause, message=snippet.problem)
    program = sql.insert(write_program(case), snippet)
    report = sql.report(program, await sandbox.run(sql.job(program, environment=None, timeout=2)))
    if report.status is Status.PASSED:
        job = sql.sentinel_job(program, environment=None, timeout=2)
        report = mark_unexercised(report, sql.report(program, await sandbox.run(job)))
    return report


@pytest.mark.parametrize(("code", "case", "verdict"), VERDICTS.values(), ids=VERDICTS)
async def test_a_program_has_its_verdict(
    shared_sandbox: Sandbox, code: str, case: str, verdict: tuple[Status, Cause | None]
) -> None:
    report = await judge(shared_sandbox, code, case)
    assert (report.status, report.cause, report.introspection) == (*verdict, ()), report


@pytest.mark.parametrize("code", [code for codes in DIALECTS.values() for code in codes])
async def test_another_dialect_is_no_evidence(shared_sandbox: Sandbox, code: str) -> None:
    report = await judge(shared_sandbox, code, "[('Ann',)]")
    assert (report.status, report.cause) == DEPENDENCY, report
    assert "SQLite" in report.message


def test_an_interpreter_without_sqlite_lacks_a_dependency() -> None:
    program = sql.insert(write_program(ALL), sql.inspect(NAMES))
    record = ReportLine("load", "", "error", "ModuleNotFoundError", "No module named '_sqlite3'")
    report = sql.report(program, RunResult((record, ReportLine("end"))))
    assert (report.status, report.cause) == DEPENDENCY
    assert "_sqlite3" in report.message
