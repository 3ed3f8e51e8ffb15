"""Rounds annotate each pair several times with new samples, and a run can be extended by more rounds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent import Annotation, Annotator, ScriptedLLM, ScriptedSandbox
from agent.events import Event, Note, PairStarted, RunStarted
from agent.llm.base import Call
from agent.llm.models import Models, describe_scripted, explain_dependence
from tests.llm.server import Answer, ChatServer, Request, says
from tests.scripts import PAIR, label, screen

PAIRS = [PAIR.model_copy(update={"id": str(n), "query": f"query {n}"}) for n in range(3)]


def wavering(call: Call) -> str:
    """Find pair 0 a match in all rounds, pair 1 in two of three, and pair 2 in none."""
    matches = {"0": True, "1": call.sample != 1, "2": False}[call.pair_id]
    return screen("match" if matches else "non_match")


async def collect(model: ScriptedLLM | str, rounds: int, pairs: Any = PAIRS, **options: Any) -> list[Annotation]:
    async with Annotator(model=model, sandbox=ScriptedSandbox(), rounds=rounds, **options) as annotator:
        return [annotation async for annotation in annotator.annotate(pairs)]


async def test_the_cache_keeps_the_samples_of_rounds_apart(tmp_path: Path) -> None:
    model = ScriptedLLM(wavering)
    await collect(model, 3, cache=tmp_path / "c.sqlite")
    assert len(model.calls) == 9
    second_model = ScriptedLLM(wavering)
    await collect(second_model, 3, cache=tmp_path / "c.sqlite")
    assert second_model.calls == []


async def test_the_rounds_of_a_pair_run_in_succession() -> None:
    events: list[Event] = []
    await collect(ScriptedLLM(wavering), 2, concurrency=1, on_event=events.append)
    started = [(event.id, event.round) for event in events if isinstance(event, PairStarted)]
    assert started == [(pair.id, number) for pair in PAIRS for number in range(2)]


async def test_a_run_resumes_with_more_rounds(tmp_path: Path) -> None:
    run = tmp_path / "run"
    await collect(ScriptedLLM(wavering), 1, run_dir=run)
    events: list[Event] = []
    more = ScriptedLLM(wavering)
    annotations = await collect(more, 3, run_dir=run, on_event=events.append)
    assert {call.sample for call in more.calls} == {1, 2}
    assert len(annotations) == 9
    assert RunStarted(9, 3, "full", "scripted", 3) in events
    labels = [json.loads(line) for line in (run / "labels.jsonl").read_text().splitlines()]
    assert [(row["id"], row["label"], row["votes"]) for row in labels] == [
        ("0", 1, [1, 1, 1]), ("1", 1, [1, 0, 1]), ("2", 0, [0, 0, 0])
    ]  # fmt: skip
    assert [row["agreement"] for row in labels] == [1.0, 1 / 3, 1.0]


async def test_a_start_with_fewer_rounds_keeps_the_annotations_of_the_others(tmp_path: Path) -> None:
    await collect(ScriptedLLM(wavering), 3, run_dir=tmp_path / "run")
    second_model = ScriptedLLM(wavering)
    notes: list[Event] = []
    assert {a.round for a in await collect(second_model, 1, run_dir=tmp_path / "run", on_event=notes.append)} == {0}
    assert any(isinstance(note, Note) and re.search(r"\b1 .*\b3 ", note.message) for note in notes)
    assert second_model.calls == []
    assert len((tmp_path / "run" / "annotations.jsonl").read_text().splitlines()) == 9


@pytest.mark.parametrize("caches", [False, True])
async def test_a_gateway_that_repeats_its_responses_is_reported_once(caches: bool) -> None:
    def respond(request: Request) -> Answer:
        return says(label(1), prompt_tokens=1_000, id="chatcmpl-1" if caches else f"chatcmpl-{request.number}")

    notes: list[Event] = []
    with ChatServer(respond) as server:
        options = {"base_url": server.url, "temperature": 0.7, "variant": "single_llm"}
        await collect("m", 3, on_event=notes.append, **options)
    assert [isinstance(note, Note) and "no-cache" in note.message for note in notes].count(True) == caches


def openai(**options: Any) -> list[Any]:
    return Models.of(["m"], base_url="http://127.0.0.1:1/v1", **options).list_models()


@pytest.mark.parametrize(
    ("models", "doubt"),
    [
        (openai(temperature=0.0), "temperature 0"),
        (openai(extra_body='{"temperature": 0}'), "temperature 0"),
        (openai(), "temperature"),
        (openai(temperature=0.7), None),
        (Models.of(["heuristic"]).list_models(), "heuristic"),
    ],
)
def test_dependent_rounds_are_reported(models: list[Any], doubt: str | None) -> None:
    note = explain_dependence(models)
    assert note is None if doubt is None else doubt in str(note)


async def test_a_note_reports_dependent_rounds_unless_there_is_only_one() -> None:
    notes: list[Event] = []
    await collect(ScriptedLLM(wavering), 2, on_event=notes.append)
    assert any("scripted" in note.message for note in notes if isinstance(note, Note))
    notes.clear()
    await collect(ScriptedLLM(lambda _: screen("match")), 1, on_event=notes.append)
    assert not [note for note in notes if isinstance(note, Note)]


def test_scripted_replies_are_recognised() -> None:
    assert "(heuristic)" in str(describe_scripted(Models.of(["heuristic"]).list_models()))
    assert "(scripted)" in str(describe_scripted([*openai(), ScriptedLLM([label(1)])]))
    assert describe_scripted(openai()) is None
