"""Pairs in JavaScript, TypeScript and SQL get their labels from tests that a replay reproduces."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from agent import Annotator, Pair, ScriptedLLM
from agent.languages.registry import Languages
from agent.llm.base import Call
from agent.types import Cause, Status
from tests.evaluation.replays import open_run_replayer
from tests.sandbox.conftest import BACKENDS, start
from tests.scripts import label, program, screen

TASKS = {task["id"]: task for task in map(json.loads, Path(__file__).with_name("pairs.jsonl").open(encoding="utf-8"))}
VERDICTS = {"right": (1, Status.PASSED, None), "wrong": (0, Status.FAILED, Cause.SNIPPET)}
PAIRS = [
    Pair(id=f"{name}-{kind}", query=task["query"], code=task[kind], language=task["language"])
    for name, task in TASKS.items()
    for kind in VERDICTS
]


def reply(call: Call) -> str:
    """Reply in a role. The arbiter follows the test."""
    if call.role == "screen":
        return screen()
    if call.role == "arbitrate":
        return label(int(call.variables["report"].status is Status.PASSED))
    task = TASKS[call.pair_id.partition("-")[0]]
    language = Languages()[task["language"]]
    return program(task["program"], fence=language.program_fence or language.fence)


@pytest.mark.node
@pytest.mark.parametrize("name", BACKENDS)
async def test_tests_decide_the_labels_and_a_replay_reproduces_them(tmp_path: Path, name: str) -> None:
    assert Counter(pair.language for pair in PAIRS) == {"javascript": 20, "typescript": 10, "sql": 10}
    backend = await start(name)
    try:
        async with Annotator(model=ScriptedLLM(reply), sandbox=backend, run_dir=tmp_path / "run") as annotator:
            annotations = [annotation async for annotation in annotator.annotate(PAIRS)]
        async with open_run_replayer(tmp_path / "run", backend) as replayer:
            replays = [await replayer.replay(pair.id) for pair in PAIRS]
    finally:
        await backend.close()
    tests = {annotation.id: (annotation.label, annotation.test) for annotation in annotations}
    verdicts = {
        name: (value, test.status, test.cause, test.introspection)
        for name, (value, test) in tests.items()
        if test is not None
    }
    assert verdicts == {pair.id: (*VERDICTS[pair.id.partition("-")[2]], ()) for pair in PAIRS}
    assert [replay.differences for replay in replays] == [()] * len(PAIRS)
