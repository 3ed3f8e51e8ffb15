"""A call about a query alone is made once per round for all its snippets, and a resumed run keeps its reply."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM
from agent.llm.base import Call, Reply
from agent.llm.gateway import MemoryReplyCache
from tests.scripts import PAIR, label
from tests.test_annotator import collect

SNIPPETS = [
    PAIR.model_copy(update={"id": str(n), "code": f"{PAIR.code}# {n}\n", "context": f"found on page {n}"})
    for n in range(20)
]


def answer(call: Call) -> str:
    return '{"reason": "a task", "intent": "yes"}' if call.role == "judge_intent" else label(1)


class SlowModel(ScriptedLLM):
    """A model that yields to other tasks before it replies, as a server would."""

    async def reply(self, call: Call) -> Reply:
        await asyncio.sleep(0)
        return await super().reply(call)


async def annotate(model: ScriptedLLM, pairs: list[Pair], limit: int | None = None, **options: Any) -> list[Annotation]:
    return await collect(Annotator(model=model, variant="cosqa", **options), pairs, limit=limit)


def select_calls(model: ScriptedLLM, role: str = "judge_intent") -> list[Call]:
    return [call for call in model.calls if call.role == role]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("concurrency", [1, 8])
async def test_twenty_snippets_of_a_query_share_one_call(cached: bool, concurrency: int, tmp_path: Path) -> None:
    model = SlowModel(answer)
    cache = tmp_path / "cache.sqlite" if cached else None
    annotations = await annotate(model, SNIPPETS, concurrency=concurrency, cache=cache)
    assert len(annotations) == 20
    assert len(select_calls(model)) == 1
    assert len(select_calls(model, "judge")) == 20
    assert sum(annotation.usage.calls for annotation in annotations) == len(model.calls)


async def test_a_malformed_reply_is_retried_once_for_all() -> None:
    replies = iter(["no json", '{"reason": "a task", "intent": "yes"}'])
    model = SlowModel(lambda call: next(replies) if call.role == "judge_intent" else label(1))
    annotations = await annotate(model, SNIPPETS, concurrency=8)
    assert len(select_calls(model)) == 2
    assert {annotation.error for annotation in annotations} == {None}


class ChangingModel(ScriptedLLM):
    """A model that gives each call another reason; the first `unreadable` replies are not JSON."""

    def __init__(self, tag: str, unreadable: int = 0) -> None:
        super().__init__(self._make_reply)
        self._tag, self._unreadable = tag, unreadable

    def _make_reply(self, _call: Call) -> str:
        number = len(self.calls)
        if number <= self._unreadable:
            return "no json"
        return json.dumps({"reason": f"reason {self._tag}{number}", "intent": "no"})


async def annotate_reasons(
    model: ScriptedLLM, run_dir: Path, limit: int | None = None, **options: Any
) -> dict[tuple[str, int], str]:
    annotations = await annotate(model, SNIPPETS[:4], limit, run_dir=run_dir, **options)
    return {(annotation.id, annotation.round): annotation.reason for annotation in annotations}


@pytest.mark.parametrize("unreadable", [0, 1])
async def test_a_resumed_run_uses_its_first_reply(unreadable: int, tmp_path: Path) -> None:
    await annotate_reasons(ChangingModel("A", unreadable), tmp_path / "run", 2)
    later = ChangingModel("B", unreadable)
    reasons = await annotate_reasons(later, tmp_path / "run")
    assert (len(reasons), set(reasons.values())) == (4, {f"reason A{unreadable + 1}"})
    assert select_calls(later) == []


async def test_a_resumed_run_with_another_cache_uses_its_first_reply(tmp_path: Path) -> None:
    await annotate_reasons(ChangingModel("A"), tmp_path / "run", 2, cache=tmp_path / "one.sqlite")
    await annotate_reasons(ChangingModel("B"), tmp_path / "other run", cache=tmp_path / "two.sqlite")
    reasons = await annotate_reasons(ChangingModel("C"), tmp_path / "run", cache=tmp_path / "two.sqlite")
    assert (len(reasons), set(reasons.values())) == (4, {"reason A1"})


async def test_each_round_has_its_own_reply(tmp_path: Path) -> None:
    first_reasons = await annotate_reasons(ChangingModel("A"), tmp_path / "run", 2, rounds=2)
    assert {first_reasons["0", 0], first_reasons["0", 1]} == {"reason A1", "reason A2"}
    reasons = await annotate_reasons(ChangingModel("B"), tmp_path / "run", rounds=3)
    for number in (0, 1):
        assert {reasons[pair.id, number] for pair in SNIPPETS[:4]} == {first_reasons["0", number]}
    assert {reasons[pair.id, 2] for pair in SNIPPETS[:4]} == {"reason B1"}


async def test_a_missing_reply_is_requested_again(tmp_path: Path) -> None:
    assert set((await annotate_reasons(ChangingModel("A", unreadable=99), tmp_path / "run")).values()) == {""}
    reasons = await annotate_reasons(ChangingModel("B"), tmp_path / "run", retry_errors=True)
    assert set(reasons.values()) == {"reason B1"}


async def test_the_prompt_contains_nothing_from_a_snippet() -> None:
    model = ScriptedLLM(answer)
    await annotate(model, SNIPPETS[:1])
    prompt = "\n".join(message.content for message in select_calls(model)[0].messages)
    assert PAIR.query in prompt
    assert "return a + b" not in prompt
    assert "found on page" not in prompt


def test_a_memory_cache_stores_the_latest_replies() -> None:
    memory = MemoryReplyCache(limit=2)
    for key in ("a", "b"):
        memory.put(key, Reply(key, raw={"long": "body"}))
    assert memory.get("a") == Reply("a")
    memory.put("c", Reply("c"))
    assert [memory.get(key) is None for key in ("a", "b", "c")] == [False, True, False]
