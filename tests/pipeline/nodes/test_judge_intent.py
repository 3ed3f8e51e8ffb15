"""The variant `cosqa` asks for search intent first. Pairs without it end without a label and are counted apart."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from agent import Annotation, Annotator, Pair, ScriptedLLM
from agent.evaluation.tally import Observation
from agent.llm.base import Call
from agent.runs.store.run_view import load_run
from agent.views.figures import RunFigures
from agent.views.queues import build_queue
from tests.scripts import label
from tests.test_annotator import collect

QUERIES = ("sum of two numbers", "what is a sum")
PAIRS = [Pair(id=f"{query[0]}{n}", query=query, code=f"add{n}(a, b)") for query in QUERIES for n in range(3)]


def answer(call: Call) -> str:
    intent = "no" if "what" in call.variables["query"] else "yes"
    return json.dumps({"reason": "a reason", "intent": intent}) if call.role == "judge_intent" else label(1)


async def annotate(model: ScriptedLLM, pairs: list[Pair] = PAIRS, **options: Any) -> list[Annotation]:
    return await collect(Annotator(model=model, variant="cosqa", **options), pairs)


async def test_pairs_without_search_intent_are_not_judged_and_neither_undecided_nor_errors() -> None:
    model = ScriptedLLM(answer)
    annotations = {annotation.id: annotation for annotation in await annotate(model)}
    labels = {pair_id: annotation.label for pair_id, annotation in annotations.items()}
    assert labels == {**dict.fromkeys(("s0", "s1", "s2"), 1), **dict.fromkeys(("w0", "w1", "w2"))}
    without = annotations["w1"]
    assert (without.decided_by, without.reason, without.error) == ("judge_intent", "a reason", None)
    assert Counter(call.role for call in model.calls) == {"judge_intent": 2, "judge": 3}
    assert not build_queue(["undecided"], [[annotation] for annotation in annotations.values()], []).entries
    figures = RunFigures(len(annotations))
    for observation in map(Observation, annotations.values()):
        figures.add(observation, [observation])
    cards = {card["name"]: card["value"] for card in figures.build_cards()}
    assert (cards["undecided"], cards["errors"], cards["no search intent"]) == ("0", "0", "3")


async def test_the_criterion_is_half_unless_another_one_is_named(tmp_path: Path) -> None:
    for criterion, options in (("half", {}), ("exact", {"config": {"pipeline.criterion": "exact"}})):
        model, run = ScriptedLLM(answer), tmp_path / criterion
        await annotate(model, run_dir=run, **options)
        assert {call.variables["criterion"] for call in model.calls if call.role == "judge"} == {criterion}
        with load_run(run) as view:
            assert view.manifest["identity"]["pipeline"]["criterion"] == criterion


async def test_without_the_node_every_pair_is_judged() -> None:
    model = ScriptedLLM(answer)
    assert {annotation.label for annotation in await annotate(model, without=["judge_intent"])} == {1}
    assert [call.role for call in model.calls] == ["judge"] * 6


async def test_an_unusable_answer_is_an_error_and_not_a_missing_intent() -> None:
    model = ScriptedLLM(lambda _: json.dumps({"reason": "", "intent": "maybe"}))
    (annotation,) = await annotate(model, PAIRS[:1])
    assert (annotation.error.type, Observation(annotation).label) == ("ReplyError", "error")
