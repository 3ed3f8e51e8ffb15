"""With `--engine ray` a run's pairs are worked on in other processes, and nothing else about it changes."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.datasets import read_pairs
from agent.engines.ray import list_dead_processes
from agent.engines.worker import Worker
from agent.errors import AccountError, BudgetExceeded, ExtraMissing, Outage, UsageError
from agent.events import Event, Note, PairFinished, PairStarted, StepDone, Waiting
from agent.llm.base import Call, Reply
from agent.llm.gateway import MemoryReplyCache
from agent.nodes.asking import Screen
from agent.state import State, Step, Tools
from agent.store import load_run
from tests.cli.processes import until
from tests.cli.test_ray import workers
from tests.llm.server import Answer, ChatServer, Request, rate_limited, says, slow, unauthorized

NON_MATCH = json.dumps({"reason": "It sorts.", "verdict": "non_match"})
NO = says(NON_MATCH, prompt_tokens=2000)
EXAMPLES = Path(__file__).parents[2] / "examples"


class FailsFirst(Screen):
    """Cannot be had by the first worker that wants it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return had_by_later_ones, (self.marker,)


def had_by_later_ones(marker: Path) -> Screen:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return FailsFirst(marker)
    raise ImportError("not on this node")


class Raising:
    """A user's model that raises."""

    def identity(self) -> dict[str, str]:
        return {"model": "raising"}

    async def reply(self, call: Call) -> Reply:  # noqa: ARG002
        raise ValueError("broken")


class Deadly(Screen):
    """Ends its process."""

    async def __call__(self, state: State, tools: Tools) -> Step:  # noqa: ARG002
        os._exit(1)


@pytest.fixture(scope="module", autouse=True)
def two_cores() -> Iterator[None]:
    """Ray on this machine, for all tests here: what they start, Ray or workers, is found there."""
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def pairs(number: int) -> list[Pair]:
    return [Pair(id=str(each), query=f"sort list {each}", code="def f(x): return x\n") for each in range(number)]


def on_ray(url: str, **more: Any) -> Annotator:
    more = {"config": {"runner.workers": 1}, "sandbox": ScriptedSandbox(), "cache": MemoryReplyCache(), **more}
    if "model" not in more:
        more = {"model": "m", "base_url": url, "api_key": "secret", **more}
    return Annotator(engine="ray", concurrency=16, **more)


async def annotated(annotator: Annotator, given: list[Pair]) -> list[Annotation]:
    async with annotator:
        return [annotation async for annotation in annotator.annotate(given)]


def facts(annotation: Annotation) -> Mapping[str, Any]:
    """Return what of an annotation does not depend on where and when it was made."""
    return annotation.model_dump(exclude={"seconds"})


@pytest.mark.bwrap
async def test_annotations_events_and_evidence_are_those_of_one_process(tmp_path: Path) -> None:
    found = {}
    for engine in ("local", "ray"):
        events: list[Event] = []
        annotator = Annotator(
            model=f"replay:{EXAMPLES / 'replies.jsonl'}",
            sandbox="bwrap",
            engine=engine,  # type: ignore[arg-type]
            run_dir=tmp_path / engine,
            rounds=2,
            on_event=events.append,
        )
        annotations = await annotated(annotator, list(read_pairs([EXAMPLES / "pairs.jsonl"]))[:6])
        with load_run(tmp_path / engine) as view:
            evidence = {
                (each.id, each.round): [
                    (event.kind, getattr(event, "reply", None), getattr(event, "source", None))
                    for event in view.evidence(each.id, each.round).events  # type: ignore[union-attr]
                ]
                for each in annotations
            }
            sandbox = view.manifest["segments"][-1]["environment"]["sandbox"]
        kinds = Counter(type(event) for event in events if isinstance(event, PairStarted | StepDone | PairFinished))
        found[engine] = {(each.id, each.round): facts(each) for each in annotations}, evidence, kinds, sandbox
    assert found["ray"] == found["local"]
    assert any(isinstance(event, Note) and "sandbox bwrap" in event.message for event in events)


async def test_equal_calls_of_different_workers_are_made_once() -> None:
    same = [Pair(id=str(each), query="sort a list", code="def f(x): return x\n") for each in range(8)]
    with ChatServer(slow(0.3, NO)) as server:
        annotations = await annotated(on_ray(server.url, config={}), same)
    assert len(server.requests) == 1
    assert sum(annotation.usage.calls for annotation in annotations) == 1


async def test_the_budget_is_one_for_all_workers() -> None:
    prices = {"m": {"input": 1.0, "output": 1.0}}
    with ChatServer(says(NON_MATCH, prompt_tokens=100_000)) as server, pytest.raises(BudgetExceeded) as stopped:
        await annotated(on_ray(server.url, budget=0.95, prices=prices), pairs(100))
    assert stopped.value.hint.startswith("with a larger budget")
    assert 10 <= len(server.requests) <= 10 + 16


async def test_an_error_of_a_pair_is_its_own_and_what_it_cost_is_counted() -> None:
    def respond(request: Request) -> Answer:
        return says("no JSON", prompt_tokens=2000) if "sort list 3" in request.prompt else NO

    with ChatServer(respond) as server:
        annotations = {each.id: each for each in await annotated(on_ray(server.url), pairs(6))}
    assert [each.id for each in annotations.values() if each.error is not None] == ["3"]
    assert annotations["3"].error is not None
    assert annotations["3"].error.type == "ReplyError"
    assert annotations["3"].usage.calls == 3


async def test_what_stops_one_worker_stops_the_run_with_the_same_error() -> None:
    with ChatServer(unauthorized()) as server, pytest.raises(AccountError, match="Incorrect API key"):
        await annotated(on_ray(server.url), pairs(6))


async def test_a_wait_in_a_worker_reaches_the_progress_line() -> None:
    events: list[Event] = []
    with ChatServer([rate_limited("0.1"), NO]) as server:
        await annotated(on_ray(server.url, on_event=events.append), pairs(1))
    assert any(isinstance(event, Waiting) and "attempt 2" in event.what for event in events)


async def test_a_time_limit_of_a_pair_ends_its_call_in_the_worker() -> None:
    with ChatServer(slow(30, NO)) as server:
        annotations = await annotated(on_ray(server.url, pair_timeout=0.5), pairs(2))
    assert [annotation.error and annotation.error.type for annotation in annotations] == ["PairTimeout"] * 2


async def test_a_lost_workers_pairs_are_done_again_and_no_reply_is_paid_twice(tmp_path: Path) -> None:
    done = 0

    def kill(event: Event) -> None:
        nonlocal done
        done += isinstance(event, PairFinished)
        if done == 20:
            done += 1
            os.kill(workers()[0], signal.SIGKILL)

    with ChatServer(slow(0.1, NO)) as server:
        kept = {"run_dir": tmp_path / "run", "cache": tmp_path / "c.sqlite"}
        annotator = on_ray(server.url, **kept, config={}, on_event=kill)
        annotations = await annotated(annotator, pairs(120))
        again = await annotated(
            Annotator(model="m", base_url=server.url, sandbox=ScriptedSandbox(), **kept), pairs(120)
        )
    assert sorted(int(each.id) for each in annotations) == list(range(120))
    assert {each.label for each in annotations} == {0}
    prompts = Counter(request.prompt for request in server.requests)
    assert len(prompts) == 120
    assert sum(prompts.values()) <= 120 + 8, "only calls in flight are made again"
    assert len(again) == 120
    lines = (tmp_path / "run" / "annotations.jsonl").read_text().splitlines()
    assert len({json.loads(line)["id"] for line in lines}) == len(lines) == 120


@pytest.mark.long
async def test_a_pair_that_ends_its_worker_again_and_again_ends_the_run() -> None:
    with ChatServer(NO) as server, pytest.raises(Outage, match="workers were lost"):
        await annotated(on_ray(server.url, variant="ps_fa", nodes={"screen": Deadly()}), pairs(1))


@pytest.mark.long
async def test_leaving_early_ends_what_is_in_progress() -> None:
    with ChatServer(slow(0.2, NO)) as server:
        async with on_ray(server.url) as annotator:
            stream = annotator.annotate(pairs(200))
            async for _annotation in stream:
                break
            await stream.aclose()
            before = len(server.requests)
            assert [each.label async for each in annotator.annotate(pairs(3))] == [0] * 3
        assert before <= 32 + 16
    until(lambda: not workers(), "the end of the workers", 20)


async def test_a_model_that_cannot_travel_is_refused_at_the_start() -> None:
    class Held(ScriptedLLM):
        def __init__(self) -> None:
            super().__init__(lambda _call: NON_MATCH)
            self.lock = Lock()

    with pytest.raises(UsageError, match="cannot be sent to workers"):
        await annotated(Annotator(model=Held(), sandbox=ScriptedSandbox(), engine="ray"), pairs(1))


async def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    wanted = {"sandbox.requirements": str(tmp_path / "none.txt")}
    annotator = Annotator(model="heuristic", sandbox="bwrap", engine="ray", config=wanted)
    with pytest.raises(UsageError, match=r"none\.txt"):
        await annotated(annotator, pairs(1))
    until(lambda: not workers(), "the end of the workers", 20)


async def test_a_run_goes_on_where_one_of_its_workers_cannot_start(tmp_path: Path) -> None:
    notes: list[str] = []
    with ChatServer(lambda _request: NO) as server:
        annotator = on_ray(
            server.url,
            nodes={"screen": FailsFirst(tmp_path / "marker")},
            config={"runner.workers": 2},
            on_event=lambda event: notes.append(event.message) if isinstance(event, Note) else None,
        )
        labels = [annotation.label for annotation in await annotated(annotator, pairs(4))]
    assert labels == [0] * 4
    assert any("could not start" in note and "not on this node" in note for note in notes)


async def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match="install the same on all nodes"):
        await Worker().start("0.0.1", b"")


async def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ExtraMissing, match=r"test-driven-annotator\[ray\]"):
        await annotated(Annotator(model="heuristic", sandbox=ScriptedSandbox(), engine="ray"), pairs(1))


def test_a_version_of_ray_without_what_is_private_has_no_ended_processes() -> None:
    import ray

    assert list_dead_processes(ray) == list_dead_processes(ModuleType("ray")) == set()
    dead = SimpleNamespace(dead_processes=lambda: [("raylet", None)])
    ended = SimpleNamespace(_private=SimpleNamespace(worker=SimpleNamespace(_global_node=dead)))
    assert list_dead_processes(ended) == {"raylet"}


async def test_what_a_users_model_raises_in_a_worker_is_the_pairs_error() -> None:
    annotations = await annotated(on_ray("", model=Raising()), pairs(2))
    assert [each.error and each.error.type for each in annotations] == ["ModelError"] * 2


async def test_what_a_listener_raises_ends_the_run() -> None:
    def listen(event: Event) -> None:
        if isinstance(event, StepDone):
            raise RuntimeError("the listener's own")

    with ChatServer(NO) as server, pytest.raises(RuntimeError, match="the listener's own"):
        await annotated(on_ray(server.url, on_event=listen), pairs(3))
