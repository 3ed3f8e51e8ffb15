"""`--engine ray` annotates pairs in other processes; results, limits and errors stay the same."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.datasets.reading import read_pairs
from agent.errors import AccountError, BudgetExceeded, ExtraMissing, Outage, SandboxUnavailable, UsageError
from agent.events import Event, Note, PairFinished, PairStarted, StepDone, Waiting
from agent.llm.base import Call, Reply
from agent.llm.gateway import MemoryReplyCache
from agent.pipeline.nodes.asking import Screen
from agent.pipeline.state import State, Step, Tools
from agent.runs.ray import list_dead_processes
from agent.runs.ray_worker import PACKAGE, Worker
from agent.runs.spec import RunSpec
from agent.runs.store.run_view import load_run
from tests.cli.processes import wait_until
from tests.cli.test_ray import find_workers
from tests.llm.server import Answer, ChatServer, Request, rate_limited, says, slow, unauthorized
from tests.pipeline.nodes.test_open_context import FROM_MODULE, MODULE, annotate
from tests.runs.test_toolchains import PAIRS as TOOLED
from tests.runs.test_toolchains import ToolSandbox
from tests.runs.test_toolchains import make as make_tooled
from tests.scripts import environment, label, make_replies, pass_all
from tests.test_annotator import collect

NON_MATCH = json.dumps({"reason": "It sorts.", "verdict": "non_match"})
NO = says(NON_MATCH, prompt_tokens=2000)
EXAMPLES = Path(__file__).parents[2] / "examples"


class FailsFirst(Screen):
    """A node that the first worker cannot unpickle."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return fail_first_time, (self.marker,)


def fail_first_time(marker: Path) -> Screen:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return FailsFirst(marker)
    raise ImportError("not on this node")


class Raising:
    """A model that raises."""

    def identity(self) -> dict[str, str]:
        return {"model": "raising"}

    async def reply(self, call: Call) -> Reply:  # noqa: ARG002
        raise ValueError("broken")


class Crashing(Screen):
    """A node that exits its process."""

    async def __call__(self, state: State, tools: Tools) -> Step:  # noqa: ARG002
        os._exit(1)


@pytest.fixture(scope="module", autouse=True)
def two_cores() -> Iterator[None]:
    """Start Ray with two cores on this machine for all tests of this module."""
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def make_pairs(count: int) -> list[Pair]:
    return [Pair(id=str(n), query=f"sort list {n}", code="def f(x): return x\n") for n in range(count)]


def make_annotator(url: str, **more: Any) -> Annotator:
    more = {"config": {"runner.workers": 1}, "sandbox": ScriptedSandbox(), "cache": MemoryReplyCache(), **more}
    if "model" not in more:
        more = {"model": "m", "base_url": url, "api_key": "secret", **more}
    return Annotator(engine="ray", concurrency=16, **more)


def dump_without_times(annotation: Annotation) -> Mapping[str, Any]:
    return annotation.model_dump(exclude={"seconds"})


@pytest.mark.bwrap
async def test_annotations_events_and_evidence_equal_those_of_the_local_engine(tmp_path: Path) -> None:
    results = {}
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
        annotations = await collect(annotator, list(read_pairs([EXAMPLES / "pairs.jsonl"]))[:6])
        with load_run(tmp_path / engine) as view:
            evidence = {
                (annotation.id, annotation.round): [
                    (event.kind, getattr(event, "reply", None), getattr(event, "source", None))
                    for event in view.evidence(annotation.id, annotation.round).events  # type: ignore[union-attr]
                ]
                for annotation in annotations
            }
            sandbox = view.manifest["segments"][-1]["environment"]["sandbox"]
        kinds = Counter(type(event) for event in events if isinstance(event, PairStarted | StepDone | PairFinished))
        by_key = {(annotation.id, annotation.round): dump_without_times(annotation) for annotation in annotations}
        results[engine] = by_key, evidence, kinds, sandbox
    assert results["ray"] == results["local"]
    assert any(isinstance(event, Note) and "sandbox bwrap" in event.message for event in events)


async def test_a_worker_checks_toolchains_before_any_call_and_its_versions_are_recorded(tmp_path: Path) -> None:
    options = {"engine": "ray", "config": {"runner.workers": 1}, "run_dir": tmp_path / "run"}
    model = ScriptedLLM(lambda _call: NON_MATCH)
    with pytest.raises(SandboxUnavailable, match=r"1\.9"):
        await collect(make_tooled(ToolSandbox("1.9"), model, **options), TOOLED)
    assert not (tmp_path / "run").exists()
    judge = ScriptedLLM(lambda call: label(0) if call.role == "judge" else NON_MATCH)
    judged = await collect(make_tooled(ToolSandbox("1.9"), judge, engine="ray", unsupported="judge"), TOOLED)
    assert {annotation.id: annotation.decided_by for annotation in judged}["tooled"] == "judge"
    await collect(make_tooled(ToolSandbox("2.1"), model, **options), TOOLED)
    with load_run(tmp_path / "run") as view:
        assert view.manifest["segments"][-1]["environment"]["sandbox"]["tool"] == "2.1"


async def test_identical_calls_of_different_workers_are_made_once() -> None:
    identical_pairs = [Pair(id=str(n), query="sort a list", code="def f(x): return x\n") for n in range(8)]
    with ChatServer(slow(0.3, NO)) as server:
        annotations = await collect(make_annotator(server.url, config={}), identical_pairs)
    assert len(server.requests) == 1
    assert sum(annotation.usage.calls for annotation in annotations) == 1


async def test_all_workers_share_the_budget() -> None:
    prices = {"m": {"input": 1.0, "output": 1.0}}
    with ChatServer(says(NON_MATCH, prompt_tokens=100_000)) as server, pytest.raises(BudgetExceeded) as stopped:
        await collect(make_annotator(server.url, budget=0.95, prices=prices), make_pairs(100))
    assert "budget" in stopped.value.hint
    assert 10 <= len(server.requests) <= 10 + 16


async def test_an_error_fails_only_its_pair_and_its_usage_is_counted() -> None:
    def respond(request: Request) -> Answer:
        return says("no JSON", prompt_tokens=2000) if "sort list 3" in request.prompt else NO

    with ChatServer(respond) as server:
        annotations = {a.id: a for a in await collect(make_annotator(server.url), make_pairs(6))}
    assert [pair_id for pair_id, annotation in annotations.items() if annotation.error is not None] == ["3"]
    assert annotations["3"].error.type == "ReplyError"
    assert annotations["3"].usage.calls == 3


async def test_an_error_that_stops_one_worker_stops_the_run() -> None:
    with ChatServer(unauthorized()) as server, pytest.raises(AccountError, match="Incorrect API key"):
        await collect(make_annotator(server.url), make_pairs(6))


async def test_a_wait_in_a_worker_is_reported() -> None:
    events: list[Event] = []
    with ChatServer([rate_limited("0.1"), NO]) as server:
        await collect(make_annotator(server.url, on_event=events.append), make_pairs(1))
    assert any(isinstance(event, Waiting) and "attempt 2" in event.what for event in events)


async def test_a_pair_timeout_cancels_the_call_in_the_worker() -> None:
    with ChatServer(slow(30, NO)) as server:
        annotations = await collect(make_annotator(server.url, pair_timeout=0.5), make_pairs(2))
    assert [annotation.error and annotation.error.type for annotation in annotations] == ["PairTimeout"] * 2


async def test_the_pairs_of_a_lost_worker_are_repeated_and_no_reply_is_paid_for_twice(tmp_path: Path) -> None:
    finished = 0

    def kill(event: Event) -> None:
        nonlocal finished
        finished += isinstance(event, PairFinished)
        if finished == 20:
            finished += 1
            os.kill(find_workers()[0], signal.SIGKILL)

    with ChatServer(slow(0.1, NO)) as server:
        paths = {"run_dir": tmp_path / "run", "cache": tmp_path / "c.sqlite"}
        annotator = make_annotator(server.url, **paths, config={}, on_event=kill)
        annotations = await collect(annotator, make_pairs(120))
        resumed = await collect(
            Annotator(model="m", base_url=server.url, sandbox=ScriptedSandbox(), **paths), make_pairs(120)
        )
    assert sorted(int(annotation.id) for annotation in annotations) == list(range(120))
    assert {annotation.label for annotation in annotations} == {0}
    prompts = Counter(request.prompt for request in server.requests)
    assert len(prompts) == 120
    assert sum(prompts.values()) <= 120 + 8, "more calls were repeated than were in flight"
    assert len(resumed) == 120
    lines = (tmp_path / "run" / "annotations.jsonl").read_text().splitlines()
    assert len({json.loads(line)["id"] for line in lines}) == len(lines) == 120


@pytest.mark.long
async def test_a_pair_that_always_crashes_its_worker_stops_the_run() -> None:
    with ChatServer(NO) as server, pytest.raises(Outage, match="'0'"):
        await collect(make_annotator(server.url, variant="ps_fa", nodes={"screen": Crashing()}), make_pairs(1))


@pytest.mark.long
async def test_closing_the_stream_cancels_pairs_in_progress() -> None:
    with ChatServer(slow(0.2, NO)) as server:
        async with make_annotator(server.url) as annotator:
            stream = annotator.annotate(make_pairs(200))
            async for _annotation in stream:
                break
            await stream.aclose()
            before = len(server.requests)
            assert [annotation.label async for annotation in annotator.annotate(make_pairs(3))] == [0] * 3
        assert before <= 32 + 16
    wait_until(lambda: not find_workers(), "exit of the workers", 20)


async def test_a_model_that_cannot_be_pickled_is_refused() -> None:
    class Locked(ScriptedLLM):
        def __init__(self) -> None:
            super().__init__(lambda _call: NON_MATCH)
            self.lock = Lock()

    with pytest.raises(UsageError, match="--engine ray"):
        await collect(Annotator(model=Locked(), sandbox=ScriptedSandbox(), engine="ray"), make_pairs(1))


async def test_a_worker_that_cannot_start_reports_the_cause(tmp_path: Path) -> None:
    config = {"sandbox.requirements": str(tmp_path / "none.txt")}
    annotator = Annotator(model="heuristic", sandbox="bwrap", engine="ray", config=config)
    with pytest.raises(UsageError, match=r"none\.txt"):
        await collect(annotator, make_pairs(1))
    wait_until(lambda: not find_workers(), "exit of the workers", 20)


async def test_a_run_continues_if_a_worker_fails_to_start_once(tmp_path: Path) -> None:
    notes: list[str] = []
    with ChatServer(lambda _request: NO) as server:
        annotator = make_annotator(
            server.url,
            nodes={"screen": FailsFirst(tmp_path / "marker")},
            config={"runner.workers": 2},
            on_event=lambda event: notes.append(event.message) if isinstance(event, Note) else None,
        )
        labels = [annotation.label for annotation in await collect(annotator, make_pairs(4))]
    assert labels == [0] * 4
    assert any("not on this node" in note for note in notes)


async def test_a_worker_with_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\b0\.0\.1\b"):
        await Worker().start("0.0.1", b"")


async def test_a_worker_without_the_drivers_languages_ends_the_run() -> None:
    spec = RunSpec.of({"model": "heuristic", "variant": "ps_tpg_fa"}).for_worker()
    worker = Worker()
    await worker.start(version(PACKAGE), pickle.dumps(spec))
    worker.annotate(1, Pair(id="1", query="q", code="c", language="cobol"), 0, True)
    ((name, number, (error, _)),) = pickle.loads(await worker.messages())
    assert (name, number, type(error)) == ("end", 1, UsageError)
    await worker.close()


async def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ExtraMissing, match=r"test-driven-annotator\[ray\]"):
        await collect(Annotator(model="heuristic", sandbox=ScriptedSandbox(), engine="ray"), make_pairs(1))


def test_no_dead_processes_are_listed_without_rays_private_interface() -> None:
    import ray

    assert list_dead_processes(ray) == list_dead_processes(ModuleType("ray")) == set()
    dead = SimpleNamespace(dead_processes=lambda: [("raylet", None)])
    fake_ray = SimpleNamespace(_private=SimpleNamespace(worker=SimpleNamespace(_global_node=dead)))
    assert list_dead_processes(fake_ray) == {"raylet"}


async def test_an_exception_of_a_model_in_a_worker_fails_the_pair() -> None:
    annotations = await collect(make_annotator("", model=Raising()), make_pairs(2))
    assert [annotation.error and annotation.error.type for annotation in annotations] == ["ModelError"] * 2


async def test_an_exception_of_a_listener_stops_the_run() -> None:
    def listen(event: Event) -> None:
        if isinstance(event, StepDone):
            raise RuntimeError("the listener's own")

    with ChatServer(NO) as server, pytest.raises(RuntimeError, match="the listener's own"):
        await collect(make_annotator(server.url, on_event=listen), make_pairs(3))


async def test_workers_test_snippets_in_their_modules() -> None:
    results = []
    for engine in ("local", "ray"):
        sandbox = ScriptedSandbox(pass_all, environments=environment)
        results.append((await annotate(make_replies(FROM_MODULE), sandbox, engine=engine))[0])
    local, remote = results
    assert remote.module_context is not None
    assert (remote.module_context.module, dump_without_times(remote)) == (MODULE, dump_without_times(local))
