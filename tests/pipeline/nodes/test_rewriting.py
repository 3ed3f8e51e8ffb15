"""A program that never ran the snippet is rewritten, and every execution and call is recorded in order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent import ScriptedLLM, ScriptedSandbox
from agent.config import Config, PipelineConfig
from agent.errors import SandboxError
from agent.events import Event, PairFinished
from agent.pipeline.history import Execution, ModelCall, NodeRun
from agent.sandbox.base import CommandResult, RunResult, SandboxJob
from agent.types import Status
from tests.runs.store.samples import read_evidence
from tests.runs.test_runner import annotate
from tests.scripts import UNDEFINED_NAME, commands, fail_all, make_replies, pass_all, program, screen

IDLE = "# <candidate>\n\n\ndef test_idle():\n    assert True\n"


def run_slowly(job: SandboxJob) -> RunResult:
    return replace(pass_all(job), seconds=0.5)


def run_sentinel(job: SandboxJob) -> RunResult:
    """Pass only the program that never runs the snippet."""
    return pass_all(job) if "test_idle" in job.cases else fail_all(job)


async def test_a_rewritten_program_may_be_repaired_as_often_as_the_first() -> None:
    repair = [commands("mkdir one"), commands("mkdir two")]
    replies = make_replies(generate_test=[program(IDLE), program()], repair=repair)
    runs = iter([UNDEFINED_NAME, None, UNDEFINED_NAME])
    sandbox = ScriptedSandbox(
        lambda job: next(runs, None) or pass_all(job),
        commands=lambda _: CommandResult(0, ""),
        sentinels=run_sentinel,
    )
    result = await annotate(replies, sandbox, config=Config(pipeline=PipelineConfig(max_repairs=1)))
    assert (result.test.status, result.repairs, result.error) == (Status.PASSED, 2, None)


async def test_sentinel_runs_are_not_counted_as_executions() -> None:
    events: list[Event] = []
    await annotate(make_replies(), ScriptedSandbox(pass_all, sentinels=fail_all), on_event=events.append)
    finished = next(event for event in events if isinstance(event, PairFinished))
    assert finished.executions == 1


async def test_every_run_and_call_is_recorded_by_node(tmp_path: Path) -> None:
    replies = make_replies(generate_test=[program(IDLE), program()])
    await annotate(replies, ScriptedSandbox(run_slowly, sentinels=run_sentinel), run_dir=tmp_path / "run")
    evidence = read_evidence(tmp_path / "run")
    assert [execution.seconds for execution in evidence.tests] == [0.5, 0.5]
    runs, model_calls, runs_by_node, calls = 0, 0, [], []
    for event in evidence.events:
        runs += isinstance(event, Execution)
        model_calls += isinstance(event, ModelCall)
        if isinstance(event, NodeRun):
            runs_by_node.append((event.node, runs))
            calls.append(model_calls)
            runs = 0
    assert runs_by_node == [
        ("screen", 0), ("generate_test", 0), ("execute", 2), ("generate_test", 0), ("execute", 2), ("arbitrate", 0)
    ]  # fmt: skip
    assert calls == [1, 2, 2, 3, 3, 4]


async def test_runs_of_a_node_that_failed_are_recorded(tmp_path: Path) -> None:
    model = ScriptedLLM({"screen": [screen()], "generate_test": [program()]})
    sandbox = ScriptedSandbox(run_slowly, sentinels=lambda _job: SandboxError("gone"))
    await annotate(model, sandbox, run_dir=tmp_path / "run")
    evidence = read_evidence(tmp_path / "run")
    assert evidence.node_runs[-1].node == "generate_test"
    assert [execution.seconds for execution in evidence.executions] == [0.5]
