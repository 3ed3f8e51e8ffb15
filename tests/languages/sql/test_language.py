"""SQL snippets: inspection, insertion into Python programs, and outlines of scripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import SnippetTooLarge
from agent.languages.base import FoundFunction, MalformedProgram
from agent.languages.sql.language import MAX_CHARACTERS, SqlLanguage
from agent.types import Cause

sql = SqlLanguage()
TEMPLATE = (
    "import sqlite3\n# <candidate>\ndef test_a():\n    assert run_candidate(sqlite3.connect(':memory:')) == [(1,)]\n"
)
HOSTILE = "SELECT 1 -- '''\n/* \"\"\" */\n# <candidate>\n\x0c\tdef test_b(): pass \\\n;"


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("SELECT 1", None),
        ("SELECT '-- ' || \"a + 'b\" -- 'c' + 'd'", None),
        ("SELECT name FORM people", None),
        ("", Cause.SNIPPET),
        (" ;; -- SELECT 1\n/* SELECT 2", Cause.SNIPPET),
        ("SELECT '\0'", Cause.SNIPPET),
        ("SELECT '\ud800'", Cause.SNIPPET),
        ("SELECT first + ' ' + last FROM people", Cause.DEPENDENCY),
        ("select cast(max(day) as datetime ) from t", Cause.DEPENDENCY),
        ("UPDATE p SET a = 1 FROM people p WHERE p.id = 1", Cause.DEPENDENCY),
        ("UPDATE p SET a = q.a FROM q JOIN r ON q.id = r.id WHERE q.id = p.id", None),
        ("UPDATE p SET a = (SELECT MAX(a) FROM p)", None),
        ("select cast(a as decimal) / b from t", Cause.DEPENDENCY),
        ("CREATE TABLE t (id INT IDENTITY(1, 1))", Cause.DEPENDENCY),
        ("CREATE TABLE t (id int auto_increment)", Cause.DEPENDENCY),
        ("CREATE TABLE t (id bigserial)", Cause.DEPENDENCY),
    ],
)
def test_a_snippet_that_cannot_be_tested_has_a_problem(code: str, cause: Cause | None) -> None:
    snippet = sql.inspect(code)
    assert (snippet.cause if snippet.problem else None) == cause


def test_a_long_snippet_is_too_large() -> None:
    with pytest.raises(SnippetTooLarge):
        sql.inspect("SELECT 1" + " " * MAX_CHARACTERS)


@pytest.mark.parametrize("code", ["SELECT 1", HOSTILE, "\ufeffSELECT 1;\r\nSELECT 2"])
def test_a_snippet_is_inserted_unchanged(code: str) -> None:
    snippet = sql.inspect(code)
    program = sql.insert(TEMPLATE, snippet)
    lines = program.source.split("\n")
    assert "\n".join(lines[program.first_line - 1 : program.last_line]) == snippet.code
    job, sentinel = (make(program, environment=None, timeout=1) for make in (sql.job, sql.sentinel_job))
    assert (job.options["sql"], job.cases) == (snippet.code, ("test_a",))
    assert (sentinel.program, sentinel.options) == (job.program, {**job.options, "sentinel": "1"})
    compile(job.program, "program.py", "exec")


@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE.replace("# <candidate>\n", ""),
        TEMPLATE.replace("import", "# <candidate>\nimport"),
        TEMPLATE.replace("# <candidate>", "if True:\n    # <candidate>"),
        TEMPLATE.replace("# <candidate>", "@print\n# <candidate>"),
        TEMPLATE + "def run_candidate(connection): return [(1,)]\n",
        TEMPLATE.replace("# <candidate>", "run_candidate = print\n# <candidate>"),
        TEMPLATE.replace("test_a", "check"),
    ],
)
def test_a_malformed_program_is_rejected(template: str) -> None:
    with pytest.raises(MalformedProgram):
        sql.insert(template, sql.inspect("SELECT 1"))


@given(st.text(st.sampled_from("aA1'\"`[];-/*\n <=.(#\ud800"), max_size=60))
def test_any_text_is_inspected(code: str) -> None:
    snippet = sql.inspect(code)
    if snippet.problem is None:
        assert sql.insert(TEMPLATE, snippet).cases == ("test_a",)


def test_an_outline_lists_statements_with_their_comments() -> None:
    source = (
        ";\n-- Users; by age.\n/* Oldest first. */\nCREATE VIEW IF NOT EXISTS by_age AS\nSELECT * FROM u;\n;\nselect 1"
    )
    view = "CREATE VIEW IF NOT EXISTS by_age AS\nSELECT * FROM u;"
    assert list(sql.outline(source)) == [
        FoundFunction("by_age", None, "Users; by age.\nOldest first.", view, 4, 5),
        FoundFunction("select", None, None, "select 1", 7, 7),
    ]


@pytest.mark.parametrize("source", ["the table:\nSELECT 1", "x" * 1_000_001])
def test_text_that_is_not_sql_has_no_outline(source: str) -> None:
    with pytest.raises(ValueError, match="it"):
        list(sql.outline(source))


@pytest.mark.parametrize(
    ("code", "count"),
    [("SELECT " + "[" * 900_000, 1), ("/*" + "\n" * 900_000 + "x */ SELECT 1", 1), ("SELECT 1;" * 100_000, 100_000)],
    ids=["brackets", "lines", "statements"],
)
def test_hostile_text_has_an_outline(code: str, count: int) -> None:
    assert len(list(sql.outline(code))) == count
