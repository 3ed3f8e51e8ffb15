"""What a query may mean is asked once for all its candidates, and every later question goes by it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.graph import load_variant
from agent.llm.base import Call, Reply
from agent.llm.gateway import MemoryReplyCache
from agent.store import load_run
from tests.scripts import PAIR, PROGRAM, pass_all

SPEC = json.dumps(
    {
        "readings": [
            {"reading": "Return the sum of two numbers.", "requirements": ["It takes two numbers.", "It adds them."]},
            {"reading": "Append one number to another.", "requirements": ["It joins their digits."]},
        ]
    }
)
FULL = load_variant("full")
VARIANT = {"start": "specify_query", "nodes": {"specify_query": {"specified": "screen"}, **FULL.nodes}}
CANDIDATES = [
    PAIR.model_copy(update={"id": str(n), "code": f"{PAIR.code}# {n}\n", "context": f"found on page {n}"})
    for n in range(20)
]
TEST = f'```json\n{{"reading": 1, "stand_ins": []}}\n```\n```python\n{PROGRAM}```\n'


def answer(call: Call) -> str:
    if call.role == "specify_query":
        return SPEC
    if call.role == "screen":
        return json.dumps({"reason": "", "reading": None, "verdict": "unclear"})
    if call.role == "generate_test":
        return TEST
    return json.dumps({"reason": "", "reading": 2, "label": 1})


class Slow(ScriptedLLM):
    """A model that lets others go on while it thinks, as a server would."""

    async def reply(self, call: Call) -> Reply:
        await asyncio.sleep(0)
        return await super().reply(call)


async def annotate(model: ScriptedLLM, pairs: list[Pair], **options: Any) -> list[Annotation]:
    options = {"variant": VARIANT, "sandbox": ScriptedSandbox(pass_all), **options}
    async with Annotator(model=model, **options) as annotator:
        return [annotation async for annotation in annotator.annotate(pairs)]


def of(model: ScriptedLLM, role: str) -> list[Call]:
    return [call for call in model.calls if call.role == role]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("concurrency", [1, 8])
async def test_twenty_candidates_of_a_query_share_one_question(cached: bool, concurrency: int, tmp_path: Path) -> None:
    model = Slow(answer)
    cache = tmp_path / "cache.sqlite" if cached else None
    found = await annotate(model, CANDIDATES, concurrency=concurrency, cache=cache)
    assert len(found) == 20
    assert len(of(model, "specify_query")) == 1
    assert len(of(model, "screen")) == 20
    assert sum(annotation.usage.calls for annotation in found) == len(model.calls)


async def test_a_malformed_answer_is_asked_again_once_for_all() -> None:
    replies = iter(["no json", SPEC])
    model = Slow(lambda call: next(replies) if call.role == "specify_query" else answer(call))
    found = await annotate(model, CANDIDATES, concurrency=8)
    assert len(of(model, "specify_query")) == 2
    assert {annotation.error for annotation in found} == {None}


class Changing(ScriptedLLM):
    """A model whose answers differ from call to call; the first `unreadable` specifications are no JSON."""

    def __init__(self, tag: str, unreadable: int = 0) -> None:
        super().__init__(self._told)
        self._tag, self._unreadable = tag, unreadable

    def _told(self, call: Call) -> str:
        asked = len(of(self, "specify_query"))
        if call.role != "specify_query":
            return json.dumps({"reason": "", "reading": 1, "verdict": "match"})
        if asked <= self._unreadable:
            return "no json"
        return json.dumps({"readings": [{"reading": f"reading {self._tag}{asked}", "requirements": ["It adds."]}]})


async def readings_of(
    model: ScriptedLLM, run_dir: Path, limit: int | None = None, **options: Any
) -> dict[tuple[str, int], str]:
    options = {"variant": VARIANT, "sandbox": ScriptedSandbox(pass_all), "run_dir": run_dir, **options}
    async with Annotator(model=model, **options) as annotator:
        found = [annotation async for annotation in annotator.annotate(CANDIDATES[:4], limit=limit)]
    return {(annotation.id, annotation.round): annotation.reading for annotation in found}


@pytest.mark.parametrize("unreadable", [0, 1])
async def test_a_resumed_run_goes_on_with_the_readings_it_began_with(unreadable: int, tmp_path: Path) -> None:
    await readings_of(Changing("A", unreadable), tmp_path / "run", 2)
    later = Changing("B", unreadable)
    found = await readings_of(later, tmp_path / "run")
    assert (len(found), set(found.values())) == (4, {f"reading A{unreadable + 1}"})
    assert of(later, "specify_query") == []


async def test_it_does_so_too_when_its_cache_is_gone_or_another(tmp_path: Path) -> None:
    await readings_of(Changing("A"), tmp_path / "run", 2, cache=tmp_path / "one.sqlite")
    await readings_of(Changing("B"), tmp_path / "other run", cache=tmp_path / "two.sqlite")
    found = await readings_of(Changing("C"), tmp_path / "run", cache=tmp_path / "two.sqlite")
    assert (len(found), set(found.values())) == (4, {"reading A1"})


async def test_each_round_goes_on_with_its_own_readings(tmp_path: Path) -> None:
    begun = await readings_of(Changing("A"), tmp_path / "run", 2, rounds=2)
    assert {begun["0", 0], begun["0", 1]} == {"reading A1", "reading A2"}
    found = await readings_of(Changing("B"), tmp_path / "run", rounds=3)
    for number in (0, 1):
        assert {found[pair.id, number] for pair in CANDIDATES[:4]} == {begun["0", number]}
    assert {found[pair.id, 2] for pair in CANDIDATES[:4]} == {"reading B1"}


async def test_where_no_readings_were_had_they_are_asked_for_again(tmp_path: Path) -> None:
    assert set((await readings_of(Changing("A", unreadable=9), tmp_path / "run")).values()) == {""}
    found = await readings_of(Changing("B"), tmp_path / "run", retry_errors=True)
    assert set(found.values()) == {"reading B1"}


async def test_nothing_of_a_candidate_is_in_the_question() -> None:
    model = ScriptedLLM(answer)
    await annotate(model, CANDIDATES[:1])
    told = "\n".join(message.content for message in of(model, "specify_query")[0].messages)
    assert PAIR.query in told
    assert "return a + b" not in told
    assert "found on page" not in told


@pytest.mark.parametrize("role", ["screen", "generate_test", "arbitrate"])
async def test_later_questions_show_the_readings_by_number(role: str) -> None:
    model = ScriptedLLM(answer)
    await annotate(model, CANDIDATES[:1])
    told = of(model, role)[0].messages[1].content
    assert "1. Return the sum of two numbers.\n   - It takes two numbers.\n   - It adds them.\n2. Append" in told
    assert told.index("</query") < told.index("1. Return the sum") < told.index("found on page")


async def test_the_judge_goes_by_them_where_the_variant_has_them() -> None:
    model = ScriptedLLM(answer)
    nodes = {"specify_query": {"specified": "judge"}, "judge": {"decided": "end"}}
    found = await annotate(model, [PAIR], variant={"start": "specify_query", "nodes": nodes})
    assert "1. Return the sum of two numbers." in of(model, "judge")[0].messages[1].content
    assert found[0].reading == "Append one number to another."


async def test_the_reading_that_is_met_is_kept(tmp_path: Path) -> None:
    found = await annotate(ScriptedLLM(answer), [PAIR], run_dir=tmp_path / "run")
    assert (found[0].label, found[0].reading) == (1, "Append one number to another.")
    with load_run(tmp_path / "run") as view:
        evidence = view.evidence("1", 0)
    assert evidence is not None
    assert evidence.spec is not None
    assert [len(reading.requirements) for reading in evidence.spec.readings] == [2, 1]


async def test_a_match_of_the_screener_keeps_its_reading() -> None:
    def match(call: Call) -> str:
        return '{"reason": "", "reading": 2, "verdict": "match"}' if call.role == "screen" else answer(call)

    found = await annotate(ScriptedLLM(match), [PAIR])
    assert (found[0].label, found[0].decided_by, found[0].reading) == (1, "screen", "Append one number to another.")


def test_a_memory_keeps_the_latest_replies() -> None:
    memory = MemoryReplyCache(limit=2)
    for key in ("a", "b"):
        memory.put(key, Reply(key, raw={"long": "body"}))
    assert memory.get("a") == Reply("a")
    memory.put("c", Reply("c"))
    assert [memory.get(key) is None for key in ("a", "b", "c")] == [False, True, False]
