"""Write a language. It replaces the built-in support for SQL and has a format of its own for test programs.

The SQL of each pair runs on an in-memory SQLite database inside the sandbox.

The example needs no API key and no network access.

    python examples/embed_sql.py

The replies were written for this example. They show nothing about the quality of any model.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from agent import Annotator, Pair, ScriptedLLM
from agent.extend import (
    Call,
    CaseOutcome,
    CaseResult,
    Cause,
    Language,
    MalformedProgram,
    MutantKind,
    Mutation,
    Program,
    ReportLine,
    RunResult,
    SandboxJob,
    Snippet,
    Status,
    TestReport,
)

# This code runs inside the sandbox. For each case, it creates a database with the schema and the rows of the case, and
# runs the candidate.
HARNESS = """
import json
import sqlite3

def main(job, emit):
    lines = job.program.split("\\n")
    first, last = int(job.options["first_line"]), int(job.options["last_line"])
    schema, query = "\\n".join(lines[: first - 1]), "\\n".join(lines[first - 1 : last])
    for part in "\\n".join(lines[last:]).split("-- test: ")[1:]:
        name, _, rest = part.partition("\\n")
        inserts, _, expected = rest.partition("-- expect: ")
        run(emit, name.strip(), schema + "\\n" + inserts, query, json.loads(expected.split("\\n")[0]))

def run(emit, name, setup, query, expected):
    emit("start", name)
    database, phase = sqlite3.connect(":memory:"), "set-up"
    try:
        database.executescript(setup)
        phase = "candidate"
        rows = [list(row) for row in database.execute(query)]
    except sqlite3.Error as error:
        emit("case", name, "error", type(error).__name__, str(error), [("program.sql", 0, phase)])
        return
    if rows == expected:
        emit("case", name, "passed")
    else:
        emit("case", name, "failed", "AssertionError", "expected %s, got %s" % (json.dumps(expected), json.dumps(rows)))
"""
_CASE = re.compile(r"^-- test: (\S.*)\n(?:(?!-- test: ).*\n)*?-- expect: (\[.*\])$", re.MULTILINE)


class SqlLanguage(Language):
    """SQL for SQLite. The candidate is a single query. Each test case inserts rows and states the expected rows."""

    name = "sql"
    fence = "sql"
    marker = "-- <candidate>"

    def inspect(self, code: str) -> Snippet:
        """Check that the code is a complete SQL statement. Other errors are found when the statement runs."""
        is_complete = sqlite3.complete_statement(code if code.rstrip().endswith(";") else f"{code};")
        return Snippet(code, None if is_complete else "it is not a complete SQL statement")

    def insert(self, template: str, snippet: Snippet) -> Program:
        """Replace the marker with the query.

        Raises:
            MalformedProgram: the marker does not appear exactly once, or there is no test case.
        """
        lines = template.split("\n")
        if lines.count(self.marker) != 1:
            raise MalformedProgram(f"the line `{self.marker}` must appear exactly once in the test")
        at = lines.index(self.marker)
        names = tuple(name.strip() for name, _ in _CASE.findall(template))
        if not names:
            raise MalformedProgram(
                "the test has no cases; write `-- test: name`, INSERT statements and `-- expect: [[...]]`"
            )
        query = snippet.code.split("\n")
        first, last = at + 1, at + len(query)
        options = {"first_line": str(first), "last_line": str(last)}
        source = "\n".join([*lines[:at], *query, *lines[at + 1 :]])
        return Program(template=template, source=source, first_line=first, last_line=last, cases=names, options=options)

    def check_correction(self, program: Program, corrected: Program) -> None:
        """Check that a correction keeps all test cases and their expected rows.

        Raises:
            MalformedProgram: the test cases or their expected rows have changed.
        """
        if _CASE.findall(program.template) != _CASE.findall(corrected.template):
            raise MalformedProgram("the cases and their expected rows must not change")

    def job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:
        """Return the sandbox job for a program."""
        return SandboxJob(HARNESS, program.source, program.cases, program.options, environment, timeout)

    def report(self, program: Program, result: RunResult) -> TestReport:
        """Return the test report of a run.

        If the test does not create a table or column that the snippet needs, the cause is the program, not the snippet.
        """
        records = {record.name: record for record in result.records if record.kind == "case"}
        cases = tuple(_case(name, records.get(name)) for name in program.cases)
        if result.timed_out:
            return TestReport(status=Status.TIMEOUT, cause=Cause.SNIPPET, cases=cases)
        causes = {case.cause for case in cases}
        outcomes = {case.outcome for case in cases}
        if Cause.PROGRAM in causes or CaseOutcome.NOT_RUN in outcomes or not result.clean:
            return TestReport(status=Status.ERROR, cause=Cause.PROGRAM, cases=cases, message=result.stderr)
        if CaseOutcome.FAILED in outcomes:
            return TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=cases)
        if CaseOutcome.ERROR in outcomes:
            return TestReport(status=Status.ERROR, cause=Cause.SNIPPET, cases=cases)
        return TestReport(status=Status.PASSED, cases=cases)

    def mutants(self, snippet: Snippet, limit: int) -> tuple[Mutation, ...]:
        """Return a mutant of the query that returns no rows. A test that passes with this mutant proves nothing."""
        empty = f"SELECT * FROM ({snippet.code.rstrip().rstrip(';')}) WHERE 0"
        return (Mutation(MutantKind.RETURNS_NOTHING, "it returns no rows", Snippet(empty)),)[:limit]


def _case(name: str, record: ReportLine | None) -> CaseResult:
    if record is None:
        return CaseResult(name=name, outcome=CaseOutcome.NOT_RUN)
    cause = None
    if record.outcome != "passed":
        in_set_up = any(frame.function == "set-up" for frame in record.frames)
        is_schema_incomplete = record.message.startswith(("no such table", "no such column"))
        cause = Cause.PROGRAM if in_set_up or is_schema_incomplete else Cause.SNIPPET
    return CaseResult(name=name, outcome=CaseOutcome(record.outcome), message=record.message, cause=cause)


PAIRS = [
    Pair(
        id="per-author",
        query="number of books per author most first",
        code="SELECT author, COUNT(*) FROM books GROUP BY author ORDER BY COUNT(*) DESC",
        language="sql",
    ),
    Pair(
        id="second-highest",
        query="second highest salary",
        code="SELECT MAX(salary) FROM staff",
        language="sql",
    ),
    Pair(id="typo", query="all names sorted", code="SELECT name FORM people ORDER BY name", language="sql"),
]
TESTS: Mapping[str, str] = {
    "per-author": """CREATE TABLE books (title TEXT, author TEXT);
-- <candidate>
-- test: the busiest author comes first
INSERT INTO books VALUES ('a', 'Ann'), ('b', 'Bob'), ('c', 'Bob');
-- expect: [["Bob", 2], ["Ann", 1]]
-- test: no books
-- expect: []""",
    "second-highest": """CREATE TABLE staff (name TEXT, salary INTEGER);
-- <candidate>
-- test: three salaries
INSERT INTO staff VALUES ('a', 10), ('b', 30), ('c', 20);
-- expect: [[20]]""",
    "typo": """CREATE TABLE people (name TEXT);
-- <candidate>
-- test: two names
INSERT INTO people VALUES ('b'), ('a');
-- expect: [["a"], ["b"]]""",
}


class Replies:
    """Replies that were written for this example."""

    labels: ClassVar[Mapping[str, int]] = {"per-author": 1, "second-highest": 0, "typo": 0}

    def __call__(self, call: Call) -> str:
        """Return the reply of a role for a pair."""
        if call.role == "screen":
            return json.dumps({"reason": "a test must show whether it matches", "verdict": "unclear"})
        if call.role == "generate_test":
            return f'```json\n{{"reading": "", "stand_ins": []}}\n```\n```sql\n{TESTS[call.pair_id]}\n```'
        return json.dumps({"reason": "the test shows it", "label": self.labels[call.pair_id]})


async def main() -> None:
    """Annotate the pairs and print the labels and the test cases."""
    prompts = Path(__file__).parent / "sql_prompts"
    async with Annotator(model=ScriptedLLM(Replies()), languages=[SqlLanguage()], prompts=prompts) as annotator:
        async for annotation in annotator.annotate(PAIRS, ordered=True):
            print(f"{annotation.id}: label {annotation.label}, error {annotation.error}")
            for case in annotation.test.cases if annotation.test else ():
                print(f"  {case.outcome.value} {case.name} {case.message}".rstrip())


if __name__ == "__main__":
    asyncio.run(main())
