"""`agent corpus equivalents`: functions with the same results are proposed to people, and labels never change."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.groups import EquivalentRecord, read_groups
from agent.datasets.reading import read_dataset
from tests.cli.commands import CommandResult, Commands
from tests.cli.processes import wait_until
from tests.exports.runs import read_lines

pytestmark = pytest.mark.bwrap

UNIQUE = "    seen = set()\n    return [x for x in items if not (x in seen or seen.add(x))]\n"
LOOP = "    new = []\n    for x in items:\n        if x not in new:\n            new.append(x)\n    return new\n"
COUNT = "    total = 0\n    for x in items:\n        total += 1\n    {}\n"
CODES = {
    "unique": f"def unique(items):\n    'Remove duplicates.'\n{UNIQUE}",
    "by self": "def unique(self):\n" + UNIQUE.replace("in items", "in self.items"),
    "with unknown name": f"def unique(items: Items):\n    if items is None: raise Missing\n{UNIQUE}",
    "same text": f"def unique(items):\n    'Remove duplicates.'\n{UNIQUE}",
    "copies": f"def copy_all(items):\n{LOOP.replace('x not in new', 'True')}",
    "count": f"def count(items):\n{COUNT.format('return total + total * 2')}",
    "count again": f"def size(text):\n{COUNT.replace('items', 'text').format('return 2 * total + total')}",
    "prints": f"def show(items):\n{COUNT.format('print(total + total * 2)')}",
    "changes": f"def change(items):\n{COUNT.format('items.append(total + total * 2)')}",
    "no mutants": "def f(x):\n    return repr(x)\n",
    "no mutants either": "def g(y):\n    return repr(y)\n",
    "random": "def f(items):\n    return random.random() + len(items)\n",
    "predicate": "def f(x):\n    return x == 3\n",
    "no argument": "def f():\n    return 3\n",
    "broken": "def f(:\n",
}
OPTIONS = ("-c", "sandbox.backend=bwrap", "--concurrency", "2", "--json")


def group(agent: Commands, source: str | Path, *more: str) -> CommandResult:
    return agent("corpus", "equivalents", source, "-o", "g.jsonl", *OPTIONS, *more)


def test_functions_with_the_same_results_are_grouped(agent: Commands) -> None:
    rows: list[dict[str, Any]] = [{"id": name, "code": code, "licence": "MIT"} for name, code in CODES.items()]
    rows += [{"id": "js", "code": "function f(x) { return x + 1; }", "language": "javascript"}]
    result = group(agent, agent.write("codes.jsonl", rows))
    assert result.code == 0, result.err
    groups = [*read_groups(agent.folder / "g.jsonl")]
    assert [[member.id for member in own.members] for own in groups] == [
        ["unique", "by self", "with unknown name"],
        ["count", "count again"],
    ]
    for own in groups:
        assert own.inputs >= own.informative >= own.outputs >= 3
        assert 3 <= len(own.evidence) == len({call.output for call in own.evidence}) <= 5
        for member in own.members:
            assert (member.code, member.meta) == (CODES[member.id], {"licence": "MIT"})
            assert member.mutants >= 4
            assert member.told_apart >= 0.75 * member.mutants
    assert {row["id"]: row["removed_by"] for row in read_lines(agent.folder / "g.removed.jsonl")} == {
        "same text": "duplicate",
        "copies": "no equivalent function",
        "prints": "no equivalent function",
        "changes": "no equivalent function",
        "no mutants": "no mutants",
        "no mutants either": "no mutants",
        "random": "no equivalent function",
        "predicate": "too few results",
        "no argument": "arguments",
        "broken": "does not parse",
        "js": "not Python",
    }
    document = result.json
    assert (document["read"], document["groups"], document["members"], sum(document["removed"].values())) == (
        len(rows), 2, 5, 11
    )  # fmt: skip
    first = agent.read_files()
    assert group(agent, "codes.jsonl", "--force").code == 0
    assert agent.read_files() == first


@pytest.mark.parametrize("count", [60, 61, 500])
def test_forged_results_remove_only_their_own_function(agent: Commands, count: int) -> None:
    digests = " ".join(f"{number:06x}" for number in range(count))
    scopes = "[__import__('sys')._getframe(depth).f_globals for depth in range(4)]"
    forge = f"[own.update(call_shared=lambda _: '{digests}') for own in {scopes} if 'call_shared' in own]"
    rows = [{"id": f"forged {n}", "code": f"def f{n}(x, y={forge}):\n    return x + {n}\n"} for n in range(2)]
    rows += [{"id": name, "code": CODES[name]} for name in ("unique", "by self")]
    result = group(agent, agent.write("codes.jsonl", rows))
    assert (result.code, result.json["removed"]) == (0, {"process died": 2})
    assert [[member.id for member in own.members] for own in read_groups(agent.folder / "g.jsonl")] == [
        ["unique", "by self"]
    ]


@pytest.mark.parametrize(("field", "options"), [("code-idx", ()), ("name", ("--map", "id=name"))])
def test_ids_are_those_of_the_codes(agent: Commands, field: str, options: tuple[str, ...]) -> None:
    rows = [{field: 7 * number, "code": CODES[name]} for number, name in enumerate(("count", "broken", "count again"))]
    assert group(agent, agent.write("codes.jsonl", rows), *options).code == 0
    [own] = read_groups(agent.folder / "g.jsonl")
    assert [member.id for member in own.members] == ["0", "14"]


def test_unjudged_equivalents_of_relevant_code_are_proposed(agent: Commands) -> None:
    labels = {"unique": 1, "copies": 0, "count": 0}
    rows = [
        {"query": "drop duplicates", "code": CODES[name], "label": label, "licence": "MIT"}
        for name, label in labels.items()
    ]
    rows += [{"query": "count items", "code": CODES[name], "label": None} for name in ("by self", "count again")]
    result = group(agent, agent.write("pairs.jsonl", rows), "--pairs", "proposed.jsonl")
    assert (result.code, result.json["proposed_pairs"]) == (0, 1), result.err
    [pair] = read_dataset([agent.folder / "proposed.jsonl"])
    assert (pair.query, pair.code) == ("drop duplicates", CODES["by self"])
    record = EquivalentRecord.model_validate(pair.meta["equivalent"])
    assert (record.of, record.group, len(record.evidence) >= 3) == ("1", "g1", True)


def test_an_interrupted_command_writes_nothing(agent: Commands) -> None:
    slow = "def half_{}(n):\n    while n != 0: n -= 0\n"
    agent.write("codes.jsonl", [{"id": str(i), "code": slow.format(i)} for i in range(60)])
    running = agent.start("corpus", "equivalents", "codes.jsonl", "-o", "g.jsonl", "-c", "sandbox.backend=bwrap")
    wait_until(lambda: bool([*Path(agent.folder).glob("*g.jsonl*")]), "a draft")
    result = running.stop(signal.SIGINT)
    assert (result.code, "Traceback" in result.err) == (3, False), result.err
    assert [*agent.read_files()] == ["codes.jsonl"]


def test_wrong_usage_is_refused(agent: Commands) -> None:
    agent.write("codes.jsonl", [{"code": CODES["count"]}])
    agent.write("g.jsonl", [{}])
    for path, options in {
        "absent.jsonl": ("absent.jsonl", "-o", "x.jsonl"),
        "g.jsonl": ("codes.jsonl", "-o", "g.jsonl"),
        "--pairs": ("codes.jsonl", "-o", "x.jsonl", "--pairs", "p.jsonl"),
    }.items():
        agent.check_refused(path, "corpus", "equivalents", *options)
