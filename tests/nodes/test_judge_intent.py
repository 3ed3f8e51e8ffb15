"""The variant `cosqa` asks for search intent first. Pairs without it end without a label and are counted apart."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from agent import Annotation, Annotator, Pair, ScriptedLLM
from agent.evaluation.tally import Observation
from agent.llm.base import Call
from agent.store import load_run
from agent.views.figures import RunFigures
from agent.views.queues import build_queue
from tests.scripts import PAIR, label

PAIRS = [
    PAIR.model_copy(update={"id": f"{query[0]}{n}", "query": query, "code": f"{PAIR.code}# {n}\n"})
    for query in ("sum of two numbers", "what is a sum")
    for n in range(3)
]


def answer(call: Call) -> str:
    if call.role == "judge_intent":
        wanted = "what" not in call.variables["query"]
        return json.dumps({"reason": "a concept" if not wanted else "a task", "intent": "yes" if wanted else "no"})
    return label(1)


async def annotate(model: ScriptedLLM, pairs: list[Pair] = PAIRS, **options: Any) -> list[Annotation]:
    async with Annotator(model=model, variant="cosqa", **options) as annotator:
        return [annotation async for annotation in annotator.annotate(pairs)]


def count_calls(model: ScriptedLLM) -> Counter[str]:
    return Counter(call.role for call in model.calls)


async def test_only_pairs_with_search_intent_are_judged_by_the_criterion_half() -> None:
    model = ScriptedLLM(answer)
    annotations = {annotation.id: annotation for annotation in await annotate(model)}
    assert {pair_id: annotation.label for pair_id, annotation in annotations.items()} == {
        "s0": 1, "s1": 1, "s2": 1, "w0": None, "w1": None, "w2": None
    }  # fmt: skip
    without = annotations["w1"]
    assert (without.decided_by, without.reason, without.error) == ("judge_intent", "a concept", None)
    assert count_calls(model) == {"judge_intent": 2, "judge": 3}
    assert {call.variables["criterion"] for call in model.calls if call.role == "judge"} == {"half"}


async def test_a_named_criterion_overrides_the_criterion_of_the_variant(tmp_path: Path) -> None:
    for criterion, options in (("half", {}), ("exact", {"config": {"pipeline.criterion": "exact"}})):
        model, run = ScriptedLLM(answer), tmp_path / criterion
        await annotate(model, run_dir=run, **options)
        assert {call.variables["criterion"] for call in model.calls if call.role == "judge"} == {criterion}
        with load_run(run) as view:
            assert view.manifest["identity"]["pipeline"]["criterion"] == criterion


async def test_each_round_asks_for_the_intent_anew(tmp_path: Path) -> None:
    model = ScriptedLLM(answer)
    await annotate(model, rounds=3, cache=tmp_path / "cache.sqlite")
    assert {call.sample for call in model.calls} == {0, 1, 2}
    assert count_calls(model) == {"judge_intent": 6, "judge": 9}


async def test_without_the_node_every_pair_is_judged() -> None:
    model = ScriptedLLM(answer)
    assert {annotation.label for annotation in await annotate(model, without=["judge_intent"])} == {1}
    assert count_calls(model) == {"judge": 6}


async def test_an_unusable_answer_is_an_error_and_not_a_missing_intent() -> None:
    model = ScriptedLLM(lambda _: json.dumps({"reason": "", "intent": "maybe"}))
    (annotation,) = await annotate(model, PAIRS[:1])
    assert annotation.error is not None
    assert (annotation.error.type, Observation(annotation).label) == ("ReplyError", "error")


async def test_pairs_without_intent_are_neither_undecided_nor_errors() -> None:
    annotations = await annotate(ScriptedLLM(answer))
    assert not build_queue(["undecided"], [[annotation] for annotation in annotations], []).entries
    figures = RunFigures(len(annotations))
    for observation in map(Observation, annotations):
        figures.add(observation, [observation])
    cards = {card["name"]: card["value"] for card in figures.build_cards()}
    assert (cards["undecided"], cards["errors"], cards["no search intent"]) == ("0", "0", "3")
