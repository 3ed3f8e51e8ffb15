"""SQL pairs, half of them wrong by a detail, get their labels from tests, and a replay reproduces the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent import Annotator, Pair, ScriptedLLM
from agent.llm.base import Call
from agent.pipeline.history import Execution
from agent.runs.store.run_view import load_run
from agent.types import Cause, Status
from tests.evaluation.replays import open_run_replayer
from tests.sandbox.conftest import BACKENDS, start
from tests.scripts import label, screen

STAFF = '''import sqlite3
# <candidate>


def connect(*rows):
    connection = sqlite3.connect(":memory:")
    connection.executescript("""
        CREATE TABLE staff (id INTEGER PRIMARY KEY, name TEXT, team TEXT, salary INTEGER);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, staff_id INTEGER, total REAL, day TEXT);
    """)
    for table, *values in rows:
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)
    return connection


def staff(number, name, team=None, salary=None):
    return "staff", number, name, team, salary


def order(number, staff_id, total=1.0, day="2024-01-01"):
    return "orders", number, staff_id, total, day


'''

# the query, the right and the wrong snippet, and the cases of the program
TASKS: Mapping[str, tuple[str, str, str, str]] = {
    "second": (
        "second highest distinct salary",
        "SELECT MAX(salary) FROM staff WHERE salary < (SELECT MAX(salary) FROM staff)",
        "SELECT salary FROM staff ORDER BY salary DESC LIMIT 1 OFFSET 1",
        """def test_ties():
    rows = connect(staff(1, "a", "x", 9), staff(2, "b", "x", 9), staff(3, "c", "x", 7))
    assert run_candidate(rows) == [(7,)]


def test_plain():
    assert run_candidate(connect(staff(1, "a", "x", 1), staff(2, "b", "x", 2))) == [(1,)]
""",
    ),
    "without": (
        "staff members without any orders, alphabetically",
        "SELECT s.name FROM staff s LEFT JOIN orders o ON o.staff_id = s.id WHERE o.id IS NULL ORDER BY s.name",
        "SELECT name FROM staff WHERE id NOT IN (SELECT staff_id FROM orders) ORDER BY name",
        """def test_some():
    assert run_candidate(connect(staff(1, "b"), staff(2, "c"), staff(3, "a"), order(1, 2))) == [("a",), ("b",)]


def test_orders_of_nobody():
    assert run_candidate(connect(staff(1, "a"), order(1, None))) == [("a",)]
""",
    ),
    "duplicates": (
        "delete duplicate names but keep the lowest id",
        "DELETE FROM staff WHERE id NOT IN (SELECT MIN(id) FROM staff GROUP BY name);",
        "DELETE FROM staff WHERE id NOT IN (SELECT MAX(id) FROM staff GROUP BY name);",
        """def test_lowest_is_kept():
    connection = connect(staff(1, "a"), staff(2, "b"), staff(3, "a"))
    run_candidate(connection)
    assert connection.execute("SELECT id FROM staff ORDER BY id").fetchall() == [(1,), (2,)]
""",
    ),
    "between": (
        "number of orders between two given days, both included",
        "SELECT COUNT(*) AS orders FROM orders WHERE day BETWEEN :first AND :last",
        "SELECT COUNT(*) AS orders FROM orders WHERE day >= :first AND day < :last",
        """def test_bounds():
    connection = connect(*(order(n, 1, day=f"2024-01-0{n}") for n in range(1, 6)))
    assert run_candidate(connection, {"first": "2024-01-02", "last": "2024-01-04"}) == [(3,)]
""",
    ),
    "view": (
        "create a view named totals with the sum of orders per team, 0 for teams without orders",
        """-- sum per team
CREATE VIEW totals AS
SELECT team, COALESCE(SUM(total), 0) AS total
FROM staff LEFT JOIN orders ON staff_id = staff.id
GROUP BY team;""",
        """-- sum per team
CREATE VIEW totals AS
SELECT team, SUM(total) AS total
FROM staff JOIN orders ON staff_id = staff.id
GROUP BY team;""",
        """def test_totals():
    connection = connect(staff(1, "a", "x"), staff(2, "b", "x"), staff(3, "c", "y"), order(1, 1, 2.0), order(2, 2, 3.0))
    run_candidate(connection)
    assert connection.execute("SELECT team, total FROM totals ORDER BY team").fetchall() == [("x", 5), ("y", 0)]
""",
    ),
}


def reply(call: Call) -> str:
    """Reply in a role. The arbiter follows the test."""
    if call.role == "screen":
        return screen()
    if call.role == "arbitrate":
        return label(int(call.variables["report"].status is Status.PASSED))
    head = json.dumps({"reading": call.variables["query"], "stand_ins": []})
    return f"```json\n{head}\n```\n```python\n{STAFF}{TASKS[call.pair_id.partition('-')[0]][3]}```\n"


@pytest.mark.parametrize("name", BACKENDS)
async def test_pairs_are_labelled_by_their_tests(tmp_path: Path, name: str) -> None:
    pairs = [
        Pair(id=f"{task}-{expected}", query=query, code=code, language="sql")
        for task, (query, right, wrong, _) in TASKS.items()
        for expected, code in ((1, right), (0, wrong))
    ]
    backend = await start(name)
    try:
        async with Annotator(model=ScriptedLLM(reply), sandbox=backend, run_dir=tmp_path / "run") as annotator:
            annotations = [annotation async for annotation in annotator.annotate(pairs)]
        async with open_run_replayer(tmp_path / "run", backend) as replayer:
            replays = [await replayer.replay(pair.id) for pair in pairs]
    finally:
        await backend.close()
    for annotation in annotations:
        expected = int(annotation.id[-1])
        verdict = (Status.PASSED, None) if expected else (Status.FAILED, Cause.SNIPPET)
        assert annotation.test is not None, annotation
        assert (annotation.label, annotation.test.status, annotation.test.cause) == (expected, *verdict), annotation
    assert len(annotations) == len(pairs) == 10
    assert [result.differences for result in replays] == [()] * 10
    with load_run(tmp_path / "run") as view:
        evidence = view.evidence("view-1")
    assert evidence is not None
    assert [event.purpose for event in evidence.events if isinstance(event, Execution)] == ["test", "sentinel"]
