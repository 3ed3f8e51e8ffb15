"""`agent corpus mutate`: mutants that a recorded program or inputs tell apart are pairs with label 0."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.mutants import read_contrasts
from agent.languages.python.language import PythonLanguage
from tests.cli.commands import CommandResult, Commands
from tests.cli.processes import wait_until
from tests.evaluation.replays import FAILS, PASSES, make_run
from tests.exports.runs import read_lines
from tests.sandbox.conftest import start

pytestmark = pytest.mark.bwrap

COUNT = 'def count(words, word):\n    """Count a word."""\n    return len([own for own in words if own == word])\n'
TWICE = 'def twice(text):\n    """Repeat a text. Twice."""\n    return (text + text)\n'
SLOW = 'def half(n):\n    """Halve it."""\n    i = 0\n    while i != n: i += 1\n    return n / 2\n'
CODES = {
    "count": COUNT,
    "twice": TWICE,
    "again": TWICE,
    "bare": TWICE.replace('"""Repeat a text. Twice."""', "pass"),
    "plain": 'def plain(x):\n    """Return the text of it."""\n    return repr(x)\n',
    "flag": 'def flag(x):\n    """Compare it."""\n    return x > 3\n',
    "flaky": 'def flaky(x):\n    """Make a name."""\n    return uuid.uuid4().hex + str(x)\n',
    "broken": "def broken(:\n",
    "empty": 'def empty(x):\n    """Do nothing."""\n',
    "clock": 'def clock(n):\n    """Add seconds."""\n    return int(time.monotonic() * 3) + n * (2 if n > 2 else 3)\n',
    "slow": SLOW,
    "rare": 'def mark(text):\n    """Mark it."""\n    if text == "XIV":\n        return 14\n    return text + "!"\n',
}
OPTIONS = ("-c", "sandbox.backend=bwrap", "--concurrency", "2", "--json")


def mutate(agent: Commands, source: str, *more: str) -> CommandResult:
    return agent("corpus", "mutate", source, "-o", "m.jsonl", *OPTIONS, *more)


def list_reasons(agent: Commands) -> dict[str, set[str]]:
    """Return the reasons why snippets and mutants were removed, by the id of the snippet."""
    reasons: dict[str, set[str]] = {}
    for row in read_lines(agent.folder / "m.removed.jsonl"):
        reasons.setdefault(row["id"].partition("/mutant")[0], set()).add(row["removed_by"])
    return reasons


def test_functions_are_checked_with_inputs(agent: Commands) -> None:
    rows: list[dict[str, Any]] = [
        {"id": name, "code": code, "licence": "MIT", "origin": {"repository": "r", "commit": "1", "name": name}}
        for name, code in CODES.items()
    ]
    rows += [{"id": "js", "code": "function f(x) { return x + 1; }", "language": "javascript"}]
    result = mutate(agent, agent.write("codes.jsonl", rows))
    assert result.code == 0, result.err
    document = result.json
    assert (document["read"], document["killed"] + document["removed"]["survived"] > 3) == (len(rows), True)
    lines = read_lines(agent.folder / "m.jsonl")
    assert {row["id"]: row["query"] for row in lines if row["label"] == 1}.items() >= {
        ("count", "Count a word."),
        ("twice", "Repeat a text."),
    }
    assert {row["licence"] for row in lines} == {"MIT"}
    assert {row["origin"]["name"] for row in lines} >= {"count", "twice"}
    contrasts = [*read_contrasts(agent.folder / "m.jsonl")]
    assert len(contrasts) == document["killed"] == sum(document["kinds"].values())
    for contrast in contrasts:
        assert contrast.mutant.check == "inputs"
        assert contrast.mutant.evidence["right"] != contrast.mutant.evidence["mutant"]
        for code in (contrast.right, contrast.wrong):
            assert PythonLanguage().reformat(code) == code
    expected = {
        "again": "duplicate",
        "bare": "no query",
        "plain": "no mutants",
        "flag": "too few results",
        "flaky": "flaky",
        "clock": "flaky",
        "broken": "does not parse",
        "empty": "nothing but documentation",
        "js": "not Python",
    }
    reasons = list_reasons(agent)
    assert {name: reasons.get(name) for name in expected} == {name: {reason} for name, reason in expected.items()}
    assert "timed out" in reasons["slow"]
    assert "seldom different" in reasons["rare"]
    first = (agent.folder / "m.jsonl").read_bytes()
    assert mutate(agent, "codes.jsonl", "--force").code == 0
    assert (agent.folder / "m.jsonl").read_bytes() == first


def test_a_pair_with_label_1_has_its_own_query(agent: Commands) -> None:
    rows = [
        {"id": "yes", "query": "repeat it", "code": CODES["bare"], "label": 1},
        {"id": "no", "query": "repeat it", "code": CODES["bare"], "label": 0},
    ]
    assert mutate(agent, agent.write("pairs.jsonl", rows), "--mutants", "1").code == 0
    assert [(row["id"], row["query"]) for row in read_lines(agent.folder / "m.jsonl")] == [
        ("yes", "repeat it"),
        ("yes/mutant-1", "repeat it"),
    ]
    assert list_reasons(agent) == {"no": {"no query"}}


ADDS = "# <candidate>\n\n\ndef test_small():\n    {}\n"
PROGRAMS = {
    "killed": PASSES,
    "no match": FAILS,
    "survives": ADDS.format("assert add(0, 0) == 0"),
    "raises": ADDS.format("assert [7][add(1, 2) - 3] == 7"),
    "hangs": ADDS.format("while add(1, 2) != 3: pass"),
    "memory": ADDS.format("assert add(1, 2) == 3 or bytearray(1 << 60)"),
    "breaks": ADDS.format("assert add(1, 2) == 3 or undefined"),
}


async def test_matches_of_a_run_are_checked_with_their_programs(agent: Commands) -> None:
    backend = await start("bwrap")
    try:
        await make_run(agent.folder / "run", backend, PROGRAMS, timeout=2)
    finally:
        await backend.close()
    result = mutate(agent, "run")
    assert result.code == 0, result.err
    contrasts = {contrast.function: contrast.mutant for contrast in read_contrasts(agent.folder / "m.jsonl")}
    assert {name: (mutant.check, mutant.crashes) for name, mutant in contrasts.items()} == {
        "killed": ("program", False)
    }
    assert contrasts["killed"].evidence["case"] == "test_small"
    assert list_reasons(agent) == {
        "no match": {"not a match"},
        "survives": {"survived", "no mutant killed"},
        "hangs": {"timed out", "no mutant killed"},
        "raises": {"broken program", "no mutant killed"},
        "memory": {"broken program", "no mutant killed"},
        "breaks": {"broken program", "no mutant killed"},
    }


def test_an_interrupted_command_writes_nothing(agent: Commands) -> None:
    rows = [{"id": str(i), "code": SLOW.replace("half", f"half_{i}")} for i in range(60)]
    agent.write("codes.jsonl", rows)
    running = agent.start("corpus", "mutate", "codes.jsonl", "-o", "m.jsonl", "-c", "sandbox.backend=bwrap")
    wait_until(lambda: bool([*Path(agent.folder).glob("*m.jsonl*")]), "a draft")
    result = running.stop(signal.SIGINT)
    assert (result.code, "Traceback" in result.err) == (3, False), result.err
    assert [*agent.read_files()] == ["codes.jsonl"]


def test_wrong_usage_is_refused(agent: Commands) -> None:
    agent.write("codes.jsonl", [{"code": COUNT}])
    agent.write("m.jsonl", [{}])
    agent.check_refused("absent.jsonl", "corpus", "mutate", "absent.jsonl", "-o", "m.jsonl", "--force")
    agent.check_refused("m.jsonl", "corpus", "mutate", "codes.jsonl", "-o", "m.jsonl")
