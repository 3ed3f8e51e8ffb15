"""Tests of `Annotator`, the asynchronous Python interface."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.config import Config, ModelConfig, PipelineConfig, SandboxConfig
from agent.deadline import Deadline
from agent.errors import (
    BudgetExceeded,
    ConfigError,
    DeadlineReached,
    InputError,
    RunFolderError,
    SandboxUnavailable,
    UsageError,
)
from agent.events import Event, Note, PairFinished, PairStarted, ReplyReceived, RunStarted, Waiting
from agent.languages.base import Language
from agent.llm.base import Call, Reply, Wait
from agent.llm.budget import Budget
from agent.llm.parsing import LabelReply, parse_label
from agent.pipeline.state import Node, Role, State, Step, Tools
from agent.runs.spec import AnnotatorOptions, ModelOptions
from agent.runs.store.run_view import load_run
from agent.sandbox.base import SandboxBackend
from agent.types import Usage
from tests.scripts import PAIR, label, program, screen

PAIRS = [PAIR.model_copy(update={"id": str(n), "query": f"query {n}"}) for n in range(6)]


def matching(_: Call) -> str:
    return screen("match")


async def collect(annotator: Annotator, pairs: Any = PAIRS, **options: Any) -> list[Annotation]:
    async with annotator:
        return [annotation async for annotation in annotator.annotate(pairs, **options)]


async def test_nothing_is_written_or_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    await collect(Annotator(model=ScriptedLLM(matching), sandbox=ScriptedSandbox()))
    assert os.listdir(tmp_path) == []  # noqa: PTH208
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("ordered", [True, False])
async def test_pairs_may_come_from_an_asynchronous_source(ordered: bool) -> None:
    async def source() -> AsyncIterator[Pair]:
        for pair in PAIRS:
            yield pair

    annotator = Annotator(model=ScriptedLLM(matching), sandbox=ScriptedSandbox())
    annotations = await collect(annotator, source(), ordered=ordered)
    assert sorted(annotation.id for annotation in annotations) == [pair.id for pair in PAIRS]


async def test_ordered_annotations_are_in_input_order() -> None:
    gates = {pair.query: asyncio.Event() for pair in PAIRS}
    gates[PAIRS[-1].query].set()

    async def backwards(call: Call) -> str:
        number = int(call.pair_id)
        await gates[f"query {number}"].wait()
        if number:
            gates[f"query {number - 1}"].set()
        return screen("match")

    annotator = Annotator(model=ScriptedLLM(backwards), sandbox=ScriptedSandbox(), concurrency=6)
    assert [annotation.id for annotation in await collect(annotator, ordered=True)] == [pair.id for pair in PAIRS]


async def test_ordered_includes_finished_annotations_in_input_order(tmp_path: Path) -> None:
    run = tmp_path / "run"
    await collect(Annotator(model=ScriptedLLM(matching), sandbox=ScriptedSandbox(), run_dir=run), PAIRS, limit=2)
    lines = (run / "annotations.jsonl").read_text().splitlines(keepends=True)
    (run / "annotations.jsonl").write_text("".join(reversed(lines)))
    model = ScriptedLLM(matching)
    annotations = await collect(Annotator(model=model, sandbox=ScriptedSandbox(), run_dir=run), PAIRS, ordered=True)
    assert [annotation.id for annotation in annotations] == [pair.id for pair in PAIRS]
    assert {call.pair_id for call in model.calls} == {pair.id for pair in PAIRS[2:]}


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_limit_stops_reading_the_source(ordered: bool) -> None:
    source = iter(PAIRS)
    annotator = Annotator(model=ScriptedLLM(matching), sandbox=ScriptedSandbox(), rounds=2)
    annotations = await collect(annotator, source, limit=2, ordered=ordered)
    assert sorted((row.id, row.round) for row in annotations) == [("0", 0), ("0", 1), ("1", 0), ("1", 1)]
    assert next(source) is PAIRS[2]


async def test_a_negative_limit_is_rejected() -> None:
    with pytest.raises(UsageError, match="limit=-1"):
        await collect(Annotator(model=ScriptedLLM(matching), sandbox=ScriptedSandbox()), PAIRS, limit=-1)


async def test_each_role_may_have_its_own_model() -> None:
    first, second = ScriptedLLM({"screen": [screen()]}), ScriptedLLM({"arbitrate": [label(0)]})
    models = {"screen": first, "default": second}
    annotations = await collect(Annotator(model=models, variant="ps_fa"), [PAIR])
    assert (annotations[0].label, len(first.calls), len(second.calls)) == (0, 1, 1)


class Slow:
    """A model that replies only to the first pair, and whose calls take a while to cancel."""

    def __init__(self) -> None:
        self.cancelled = 0

    def identity(self) -> dict[str, Any]:
        return {"model": "slow"}

    async def reply(self, call: Call) -> Reply:
        if call.pair_id == "0":
            return Reply(label(1))
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            self.cancelled += 1
        raise AssertionError


@pytest.mark.parametrize("pause", [None, 0, 0.01, 0.2])
async def test_the_annotator_may_close_at_any_time(pause: float | None, loop_errors: list[str]) -> None:
    model = Slow()
    async with Annotator(model=model, variant="single_llm") as annotator:
        async for _ in annotator.annotate(PAIRS):
            break
        if pause is not None:
            await asyncio.sleep(pause)
    assert model.cancelled == len(PAIRS) - 1
    assert loop_errors == []


async def test_closing_the_annotator_cancels_other_tasks_without_recording_errors(
    tmp_path: Path, loop_errors: list[str]
) -> None:
    model, ids, finished = Slow(), [], asyncio.Event()

    async def other(annotator: Annotator) -> None:
        ids.extend([annotation.id async for annotation in annotator.annotate(PAIRS)])

    def on_event(event: Event) -> None:
        if isinstance(event, PairFinished):
            finished.set()

    async with Annotator(model=model, variant="single_llm", run_dir=tmp_path / "run", on_event=on_event) as annotator:
        work = asyncio.ensure_future(other(annotator))
        await finished.wait()
    assert model.cancelled == len(PAIRS) - 1
    with pytest.raises(UsageError, match="closed"):
        await work
    lines = (tmp_path / "run/annotations.jsonl").read_text().splitlines()
    assert [(line["id"], line["error"]) for line in map(json.loads, lines)] == [("0", None)]
    assert loop_errors == []


async def test_cancelling_the_task_releases_its_sandboxes() -> None:
    started = asyncio.Event()

    async def run(_: object) -> Any:
        started.set()
        await asyncio.Event().wait()

    replies = {"screen": [screen()], "generate_test": [program()]}
    sandbox = ScriptedSandbox(run)
    task = asyncio.ensure_future(collect(Annotator(model=ScriptedLLM(replies), sandbox=sandbox), [PAIR]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sandbox.acquired == sandbox.released == 1


@pytest.mark.parametrize("budget", [{"budget": 1.0}, {"config": {"runner.budget_usd": 1.0}}])
async def test_the_budget_stops_the_run(budget: dict[str, Any]) -> None:
    model = ScriptedLLM(lambda _: Reply(screen("match"), usage=Usage(calls=1, cost_usd=0.4)))
    with pytest.raises(BudgetExceeded):
        await collect(Annotator(model=model, sandbox=ScriptedSandbox(), concurrency=1, **budget))
    assert len(model.calls) == 3


async def test_a_wait_before_a_retry_is_reported_as_an_event() -> None:
    async def slow(call: Call) -> str:
        await call.on_wait(Wait("HTTP 429", 0.1))
        return screen("match")

    events: list[Event] = []
    await collect(Annotator(model=ScriptedLLM(slow), sandbox=ScriptedSandbox(), on_event=events.append), [PAIR])
    assert Waiting("HTTP 429", 0.1) in events


async def test_an_annotator_works_only_while_open_and_in_its_event_loop() -> None:
    annotator = Annotator(model=ScriptedLLM(matching), sandbox=ScriptedSandbox())
    await fail_to_annotate(annotator)
    async with annotator:
        with pytest.raises(UsageError, match="already"):
            await annotator.__aenter__()
        await asyncio.to_thread(lambda: asyncio.run(fail_to_annotate(annotator)))
    assert len(await collect(annotator, [PAIR])) == 1  # it may be opened again


async def fail_to_annotate(annotator: Annotator) -> None:
    with pytest.raises(UsageError, match="async with"):
        await anext(annotator.annotate([PAIR]))


async def test_events_report_the_progress() -> None:
    events: list[Event] = []
    await collect(Annotator(model=ScriptedLLM(matching), sandbox=ScriptedSandbox(), on_event=events.append), [PAIR])
    kinds = [type(event) for event in events if not isinstance(event, Note)]
    assert kinds[:3] == [RunStarted, PairStarted, ReplyReceived]
    assert kinds[-1] is PairFinished


JAVA = PAIR.model_copy(update={"language": "java"})


@pytest.mark.parametrize("variant", ["full", "ps_tpg_fa"])
async def test_an_unsupported_language_fails_before_any_call(variant: str) -> None:
    model = ScriptedLLM(matching)
    with pytest.raises(InputError, match="'java'"):
        await collect(Annotator(model=model, sandbox=ScriptedSandbox(), variant=variant), [PAIR, JAVA])
    assert model.calls == []


@pytest.mark.parametrize("context", ["none", "module"])
@pytest.mark.parametrize(("unsupported", "expected"), [("judge", (1, "judge", None)), ("skip", (None, None, None))])
async def test_an_unsupported_language_can_be_judged_or_skipped(
    unsupported: Any, expected: tuple[Any, ...], context: str
) -> None:
    options: Any = {"unsupported": unsupported, "config": {"pipeline.context": context}}
    model = ScriptedLLM({"judge": [label(1)]})
    (annotation,) = await collect(Annotator(model=model, sandbox=ScriptedSandbox(), **options), [JAVA])
    assert (annotation.label, annotation.decided_by, annotation.error) == expected
    reason = annotation.module_context and annotation.module_context.reason
    assert reason == (None if context == "none" else "tests in java do not run in modules")


@pytest.mark.parametrize("unsupported", ["fail", "judge", "skip"])
async def test_a_variant_that_writes_no_programs_labels_every_language(unsupported: Any) -> None:
    model = ScriptedLLM({"screen": [screen("unclear")], "arbitrate": [label(1)]})
    (annotation,) = await collect(Annotator(model=model, variant="ps_fa", unsupported=unsupported), [JAVA])
    assert (annotation.label, annotation.decided_by) == (1, "arbitrate")


class Unfinished(Node):
    """A node without outcomes."""

    async def __call__(self, state: State, tools: Tools) -> Step:
        raise NotImplementedError


class WithoutEnvironments(SandboxBackend):
    """A backend without a builder of environments."""

    name = "mine"

    async def acquire(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"without": "screen"}, r"without='screen' .* str.*Sequence\[str\]"),
        ({"sandbox": 5}, "sandbox=5 .* int.* str .*SandboxBackend"),
        ({"rounds": 2.0}, r"rounds=2\.0 .* float.* int"),
        ({"rounds": True}, "rounds=True .* bool.* int"),
        ({"budget": "1"}, "budget='1' .* str.* float .*Budget"),
        ({"config": "x"}, "config='x' .* str.* Config .*Mapping"),
        ({"cache": []}, r"cache=\[\] .* list.* ReplyCache"),
        ({"nodes": []}, "nodes=.* list.*Mapping.*Node"),
        ({"nodes": {"screen": 5}}, "nodes=.* 5.*Mapping.*Node"),
        ({"model": None}, "--model heuristic"),
        ({"model": "x", "base_url": "nonsense"}, "'nonsense'"),
        ({"variant": "none"}, "unknown variant 'none'"),
        ({"on_event": "print"}, "on_event='print' .* str.*Callable"),
        ({"unsupported": "ignore"}, "unsupported='ignore' .*fail.*judge.*skip"),
        ({"languages": [5]}, r"languages=\[5\] .*Language"),
        ({"languages": [Language()]}, r"Language\.name"),
        ({"nodes": {"mine": Unfinished()}}, r"Unfinished\.outcomes"),
        ({"sandbox": WithoutEnvironments()}, r"WithoutEnvironments\.environments"),
        ({"model": "m", "base_url": "http://localhost/v1", "http_client": "mine"}, "http_client must"),
        ({"config": {"runner.concurency": 4}}, "'runner.concurency'.*runner.concurrency"),
        ({"config": {"runner.concurrency": 0}}, "setting runner.concurrency: .* 1"),
        ({"budget": -1.0}, "budget: .*greater than 0"),
        ({"concurency": None}, "'concurency'.*concurrency"),
    ],
)
def test_an_invalid_argument_is_named_with_its_valid_values(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Annotator(**{"model": "heuristic", **options})


def test_options_are_typed_and_described_once() -> None:
    settings = {*ModelConfig.model_fields} - {"name"}
    assert settings == ModelOptions.__optional_keys__ - {"api_key", "http_client", "prices"}
    names = AnnotatorOptions.__optional_keys__ - ModelOptions.__optional_keys__
    assert {name for name in names if f"\n        {name}: " not in (Annotator.__doc__ or "")} == set()


def test_arguments_override_settings_by_key() -> None:
    settings = {
        "variant": "ps_fa",
        "runner.concurrency": 2,
        "pipeline.format_retries": 0,
        "sandbox.images": {"3.9": "mine"},
    }
    annotator = Annotator(model=ScriptedLLM([]), config=settings, concurrency=3)
    assert annotator.identity()["variant"]["name"] == "ps_fa"
    assert annotator.identity()["pipeline"]["format_retries"] == 0


async def test_annotators_that_share_a_budget_share_its_tokens_and_its_deadline() -> None:
    model = ScriptedLLM(lambda _: Reply(screen("match"), usage=Usage(calls=1, input_tokens=300, output_tokens=100)))
    budget = Budget(max_tokens=2600)
    for expected in (6, 7):
        annotator = Annotator(model=model, sandbox=ScriptedSandbox(), budget=budget, concurrency=1)
        with suppress(BudgetExceeded):
            await collect(annotator)
        assert len(model.calls) == expected
    expired_budget = Budget(deadline=Deadline(datetime.now(UTC)))
    with pytest.raises(DeadlineReached):
        await collect(Annotator(model=model, sandbox=ScriptedSandbox(), budget=expired_budget))


class TestDeadline:
    """The deadline ends all work in progress and keeps finished annotations."""

    ONE_SECOND: ClassVar = {"runner.deadline": "1s"}

    async def test_the_deadline_ends_the_wait_for_a_sandbox(self, tmp_path: Path) -> None:
        class Never(ScriptedSandbox):
            async def acquire(self) -> Any:
                await asyncio.sleep(60)

        def answer(call: Call) -> str:
            return program() if call.role == "generate_test" else screen("match" if call.pair_id == "0" else "unclear")

        annotator = Annotator(model=ScriptedLLM(answer), sandbox=Never(), run_dir=tmp_path, config=self.ONE_SECOND)
        with pytest.raises(DeadlineReached):
            await collect(annotator)
        with load_run(tmp_path) as run:
            assert [annotation.id for annotation in run.annotations()] == ["0"]

    async def test_the_deadline_ends_the_search_for_a_sandbox(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def never(*_: object) -> SandboxBackend:
            await asyncio.sleep(60)
            raise AssertionError

        monkeypatch.setattr("agent.runs.run.choose", never)
        with pytest.raises(DeadlineReached):
            await collect(Annotator(model=ScriptedLLM([]), config=self.ONE_SECOND))

    async def test_the_deadline_ends_a_run_without_model_calls(self, tmp_path: Path) -> None:
        cache, ids = tmp_path / "c.sqlite", []
        await collect(Annotator(model=ScriptedLLM(matching), sandbox=ScriptedSandbox(), cache=cache))
        cached_annotator = Annotator(
            model=ScriptedLLM([]), sandbox=ScriptedSandbox(), cache=cache, concurrency=1, config=self.ONE_SECOND
        )

        async def take_slowly() -> None:
            async with cached_annotator:
                async for annotation in cached_annotator.annotate(PAIRS):
                    ids.append(annotation.id)
                    await asyncio.sleep(0.4)

        with pytest.raises(DeadlineReached):
            await take_slowly()
        assert 0 < len(ids) < len(PAIRS)

    async def test_a_finished_run_is_returned_after_the_deadline(self, tmp_path: Path) -> None:
        for config in ({}, {"runner.deadline": "2026-01-01T07:00"}):
            annotator = Annotator(model=ScriptedLLM(matching), variant="ps_fa", run_dir=tmp_path, config=config)
            assert len(await collect(annotator)) == len(PAIRS)


async def test_user_nodes_and_their_versions_are_in_the_run_identity(tmp_path: Path) -> None:
    from agent.pipeline.nodes.asking import Judge

    class Mine(Judge):
        version: int | None = None

    class Newer(Mine):
        version = 2

    def run(**nodes: Judge) -> Annotator:
        model = ScriptedLLM(lambda _: label(1))
        return Annotator(model=model, variant="single_llm", nodes=nodes, run_dir=tmp_path / "run")

    await collect(run(), [PAIR])
    with pytest.raises(RunFolderError, match=r"nodes\.judge: .*tests\.test_annotator"):
        await collect(run(judge=Mine()), [PAIR])
    assert run(judge=Newer()).identity()["nodes"] == {"judge": f"{Newer.__module__}.{Newer.__qualname__} 2"}
    assert "nodes" not in run().identity()


@pytest.mark.bwrap
def test_no_process_remains_after_a_run() -> None:
    code = (
        "from agent import Pair, annotate, ScriptedLLM\n"
        "from tests.scripts import PAIR, screen, program, label\n"
        "pairs = [PAIR.model_copy(update={'id': str(n), 'query': str(n)}) for n in range(4)]\n"
        "replies = {'screen': screen(), 'generate_test': program(), 'arbitrate': label(1)}\n"
        "model = ScriptedLLM(lambda call: replies[call.role])\n"
        "print([a.test.status.value for a in annotate(pairs, model=model, sandbox='bwrap')])\n"
        "import os, subprocess\n"
        "listing = ['ps', '--ppid', str(os.getpid()), '-o', 'comm=']\n"
        "print(subprocess.run(listing, capture_output=True, text=True).stdout)\n"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.split("\n")[:2] == ["['passed', 'passed', 'passed', 'passed']", "ps"]


def test_sandbox_settings_that_affect_programs_are_in_the_run_identity(tmp_path: Path) -> None:
    (names := tmp_path / "requirements.txt").write_text("b\na>=1\n")

    def identify(context: Literal["none", "module"] = "none", **settings: Any) -> Any:
        config = Config(sandbox=SandboxConfig(**settings), pipeline=PipelineConfig(context=context))
        return Annotator(model=ScriptedLLM([]), config=config).identity().get("sandbox")

    assert identify() is identify(memory_mb=512, pool=0) is None
    assert identify(python="3.9", exclude_newer="2020-01-01") == {"python": "3.9", "exclude_newer": "2020-01-01"}
    assert identify(requirements=str(names)) == {"requirements": ["a>=1", "b"]}
    assert identify(checkouts=str(tmp_path)) is None
    assert identify("module", checkouts=str(tmp_path)) == {"checkouts": True}


async def test_without_a_sandbox_the_error_names_variants_that_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail_to_choose(*_arguments: object) -> SandboxBackend:
        raise SandboxUnavailable("None.")

    monkeypatch.setattr("agent.runs.run.choose", fail_to_choose)
    with pytest.raises(SandboxUnavailable, match=r"^None\.\n.*--variant single_llm"):
        await Annotator(model="heuristic").__aenter__()


class Verify(Node):
    """A node with its own role."""

    name = "verify"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": frozenset({"label", "decided_by", "reason"})}
    roles = (Role("verify", {"claim": "it sorts"}, LabelReply),)

    async def __call__(self, state: State, tools: Tools) -> Step:
        reply = await tools.asker.ask(self.roles[0], {"claim": state["pair"].query}, parse_label)
        return Step("decided", {"label": reply.label, "decided_by": self.name, "reason": reply.reason})


async def test_a_user_node_may_have_its_own_role_and_model(tmp_path: Path) -> None:
    template = "{% block system %}Judge in json.{% endblock %}{% block user %}{{ claim | data('claim') }}{% endblock %}"
    (tmp_path / "verify.j2").write_text(template)
    verifier, others = ScriptedLLM([label(1)]), ScriptedLLM([])
    variant = {"start": "verify", "nodes": {"verify": {"decided": "end"}}}
    options: dict[str, Any] = {"nodes": {"verify": Verify()}, "prompts": tmp_path, "variant": variant}
    (annotation,) = await collect(Annotator(model={"default": others, "verify": verifier}, **options), [PAIR])
    assert (annotation.label, annotation.decided_by) == (1, "verify")
    assert [call.reply for call in verifier.calls] == ["json"]
    with pytest.raises(ConfigError, match=r"'verfy'.* verify"):
        Annotator(model={"default": others, "verfy": verifier}, **options)
