"""The readings of a query are requested once for all its snippets, and later prompts contain them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.llm.base import Call, Reply
from agent.llm.gateway import MemoryReplyCache
from agent.pipeline.graph import load_variant
from agent.runs.store.run_view import load_run
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
SNIPPETS = [
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


class SlowModel(ScriptedLLM):
    """A model that yields to other tasks before it replies, as a server would."""

    async def reply(self, call: Call) -> Reply:
        await asyncio.sleep(0)
        return await super().reply(call)


async def annotate(model: ScriptedLLM, pairs: list[Pair], **options: Any) -> list[Annotation]:
    options = {"variant": VARIANT, "sandbox": ScriptedSandbox(pass_all), **options}
    async with Annotator(model=model, **options) as annotator:
        return [annotation async for annotation in annotator.annotate(pairs)]


def select_calls(model: ScriptedLLM, role: str) -> list[Call]:
    return [call for call in model.calls if call.role == role]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("concurrency", [1, 8])
async def test_twenty_snippets_of_a_query_share_one_call(cached: bool, concurrency: int, tmp_path: Path) -> None:
    model = SlowModel(answer)
    cache = tmp_path / "cache.sqlite" if cached else None
    annotations = await annotate(model, SNIPPETS, concurrency=concurrency, cache=cache)
    assert len(annotations) == 20
    assert len(select_calls(model, "specify_query")) == 1
    assert len(select_calls(model, "screen")) == 20
    assert sum(annotation.usage.calls for annotation in annotations) == len(model.calls)


async def test_a_malformed_reply_is_retried_once_for_all() -> None:
    replies = iter(["no json", SPEC])
    model = SlowModel(lambda call: next(replies) if call.role == "specify_query" else answer(call))
    annotations = await annotate(model, SNIPPETS, concurrency=8)
    assert len(select_calls(model, "specify_query")) == 2
    assert {annotation.error for annotation in annotations} == {None}


class ChangingModel(ScriptedLLM):
    """A model whose replies differ between calls; the first `unreadable` specifications are not JSON."""

    def __init__(self, tag: str, unreadable: int = 0) -> None:
        super().__init__(self._make_reply)
        self._tag, self._unreadable = tag, unreadable

    def _make_reply(self, call: Call) -> str:
        number = len(select_calls(self, "specify_query"))
        if call.role != "specify_query":
            return json.dumps({"reason": "", "reading": 1, "verdict": "match"})
        if number <= self._unreadable:
            return "no json"
        return json.dumps({"readings": [{"reading": f"reading {self._tag}{number}", "requirements": ["It adds."]}]})


async def annotate_readings(
    model: ScriptedLLM, run_dir: Path, limit: int | None = None, **options: Any
) -> dict[tuple[str, int], str]:
    options = {"variant": VARIANT, "sandbox": ScriptedSandbox(pass_all), "run_dir": run_dir, **options}
    async with Annotator(model=model, **options) as annotator:
        annotations = [annotation async for annotation in annotator.annotate(SNIPPETS[:4], limit=limit)]
    return {(annotation.id, annotation.round): annotation.reading for annotation in annotations}


@pytest.mark.parametrize("unreadable", [0, 1])
async def test_a_resumed_run_uses_its_first_readings(unreadable: int, tmp_path: Path) -> None:
    await annotate_readings(ChangingModel("A", unreadable), tmp_path / "run", 2)
    later = ChangingModel("B", unreadable)
    readings = await annotate_readings(later, tmp_path / "run")
    assert (len(readings), set(readings.values())) == (4, {f"reading A{unreadable + 1}"})
    assert select_calls(later, "specify_query") == []


async def test_a_resumed_run_with_another_cache_uses_its_first_readings(tmp_path: Path) -> None:
    await annotate_readings(ChangingModel("A"), tmp_path / "run", 2, cache=tmp_path / "one.sqlite")
    await annotate_readings(ChangingModel("B"), tmp_path / "other run", cache=tmp_path / "two.sqlite")
    readings = await annotate_readings(ChangingModel("C"), tmp_path / "run", cache=tmp_path / "two.sqlite")
    assert (len(readings), set(readings.values())) == (4, {"reading A1"})


async def test_each_round_has_its_own_readings(tmp_path: Path) -> None:
    first_readings = await annotate_readings(ChangingModel("A"), tmp_path / "run", 2, rounds=2)
    assert {first_readings["0", 0], first_readings["0", 1]} == {"reading A1", "reading A2"}
    readings = await annotate_readings(ChangingModel("B"), tmp_path / "run", rounds=3)
    for number in (0, 1):
        assert {readings[pair.id, number] for pair in SNIPPETS[:4]} == {first_readings["0", number]}
    assert {readings[pair.id, 2] for pair in SNIPPETS[:4]} == {"reading B1"}


async def test_missing_readings_are_requested_again(tmp_path: Path) -> None:
    assert set((await annotate_readings(ChangingModel("A", unreadable=9), tmp_path / "run")).values()) == {""}
    readings = await annotate_readings(ChangingModel("B"), tmp_path / "run", retry_errors=True)
    assert set(readings.values()) == {"reading B1"}


async def test_the_prompt_contains_nothing_from_a_snippet() -> None:
    model = ScriptedLLM(answer)
    await annotate(model, SNIPPETS[:1])
    prompt = "\n".join(message.content for message in select_calls(model, "specify_query")[0].messages)
    assert PAIR.query in prompt
    assert "return a + b" not in prompt
    assert "found on page" not in prompt


@pytest.mark.parametrize("role", ["screen", "generate_test", "arbitrate"])
async def test_later_prompts_number_the_readings(role: str) -> None:
    model = ScriptedLLM(answer)
    await annotate(model, SNIPPETS[:1])
    prompt = select_calls(model, role)[0].messages[1].content
    assert "1. Return the sum of two numbers.\n   - It takes two numbers.\n   - It adds them.\n2. Append" in prompt
    assert prompt.index("</query") < prompt.index("1. Return the sum") < prompt.index("found on page")


async def test_the_judges_prompt_has_the_readings_of_the_variant() -> None:
    model = ScriptedLLM(answer)
    nodes = {"specify_query": {"specified": "judge"}, "judge": {"decided": "end"}}
    annotations = await annotate(model, [PAIR], variant={"start": "specify_query", "nodes": nodes})
    assert "1. Return the sum of two numbers." in select_calls(model, "judge")[0].messages[1].content
    assert annotations[0].reading == "Append one number to another."


async def test_the_matched_reading_is_stored(tmp_path: Path) -> None:
    annotations = await annotate(ScriptedLLM(answer), [PAIR], run_dir=tmp_path / "run")
    assert (annotations[0].label, annotations[0].reading) == (1, "Append one number to another.")
    with load_run(tmp_path / "run") as view:
        evidence = view.evidence("1", 0)
    assert evidence is not None
    assert evidence.spec is not None
    assert [len(reading.requirements) for reading in evidence.spec.readings] == [2, 1]


async def test_a_match_of_the_screener_has_its_reading() -> None:
    def match(call: Call) -> str:
        return '{"reason": "", "reading": 2, "verdict": "match"}' if call.role == "screen" else answer(call)

    (annotation,) = await annotate(ScriptedLLM(match), [PAIR])
    assert (annotation.label, annotation.decided_by) == (1, "screen")
    assert annotation.reading.startswith("Append")


def test_a_memory_cache_stores_the_latest_replies() -> None:
    memory = MemoryReplyCache(limit=2)
    for key in ("a", "b"):
        memory.put(key, Reply(key, raw={"long": "body"}))
    assert memory.get("a") == Reply("a")
    memory.put("c", Reply("c"))
    assert [memory.get(key) is None for key in ("a", "b", "c")] == [False, True, False]
