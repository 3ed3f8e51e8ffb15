"""The checks of `full_plus`: what is verified after the execution, and rated after the label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent import ScriptedLLM, ScriptedSandbox
from agent.config import Config, PipelineConfig
from agent.errors import SandboxError
from agent.events import Event, PairFinished
from agent.pipeline.history import Execution, ModelCall, NodeRun
from agent.runs.store.run_view import load_run
from agent.sandbox.base import Frame, ReportLine, RunResult, SandboxJob
from agent.types import Cause, Status
from tests.runs.test_runner import annotate
from tests.scripts import PAIR, fail_all, label, pass_all, program, screen

PLAIN = ("specify_query", "generate_blind", "repair_program", "arbitrate_or_abstain")


async def test_a_vacuous_program_is_rewritten_with_the_reason() -> None:
    model = ScriptedLLM(
        {
            "screen": [screen()],
            "generate_test": [program("# <candidate>\n\n\ndef test_a():\n    assert True\n"), program()],
            "arbitrate": [label(1)] * 3,
        }
    )
    sandbox = ScriptedSandbox(lambda job: pass_all(job) if would_pass(job) else fail_all(job))
    annotation = await annotate(model, sandbox, variant="full_plus", without=PLAIN)
    assert annotation.test is not None
    assert [case.name for case in annotation.test.cases] == ["test_small", "test_negative"]
    assert not annotation.test.vacuous
    assert (annotation.label, annotation.votes, annotation.strength, annotation.repairs) == (1, (1, 1, 1), 1.0, 0)
    assert annotation.confidence is not None
    assert annotation.confidence > 0.9
    questions = [call.messages[1].content for call in model.calls if call.role == "generate_test"]
    assert ["returns nothing" in question for question in questions] == [False, True]


async def test_a_second_vacuous_program_is_reported_and_supports_no_label() -> None:
    smoke = program("# <candidate>\n\n\ndef test_a():\n    assert True\n")
    replies = {"screen": [screen()], "generate_test": [smoke, smoke], "arbitrate": [label(0)] * 3}
    annotation = await annotate(replies, ScriptedSandbox(pass_all), variant="full_plus", without=PLAIN)
    assert annotation.test is not None
    assert (annotation.test.status, annotation.test.vacuous, annotation.strength) == (Status.PASSED, True, 0.0)
    assert (annotation.label, annotation.against_test, annotation.confidence) == (0, False, 0.8)


async def test_a_rewritten_program_may_be_repaired_as_often_as_the_first() -> None:
    smoke = "# <candidate>\n\n\ndef test_a():\n    add(1, 2)\n"
    sound = "def test_a():\n    assert add(1, 2) == 3\n"
    model = ScriptedLLM(
        {
            "screen": [screen()],
            "scaffold": [program("GIVEN = unknown\n\n# <candidate>\n")],
            "generate_blind": [program(smoke.partition("\n\n\n")[2]), program(sound)],
            "repair": [program("GIVEN = 1\n\n" + smoke), program("GIVEN = 1\n\n# <candidate>\n\n\n" + sound)],
            "arbitrate": [label(1)] * 3,
        }
    )

    def run(job: SandboxJob) -> RunResult:
        if "unknown" in job.program:
            frames = (Frame("program.py", 1, "<module>"),)
            return RunResult((ReportLine("load", "", "error", "NameError", "no", frames), ReportLine("end")))
        return pass_all(job) if "assert" not in job.program or would_pass(job) else fail_all(job)

    config = Config(pipeline=PipelineConfig(max_try_time=1))
    result = await annotate(model, ScriptedSandbox(run), variant="full_plus", without=["specify_query"], config=config)
    assert result.test is not None
    assert (result.test.status, result.test.vacuous, result.repairs) == (Status.PASSED, False, 2)
    questions = [call.messages[1].content for call in model.calls if call.role == "generate_blind"]
    assert ["returns nothing" in question for question in questions] == [False, True]
    assert sum(call.role == "scaffold" for call in model.calls) == 1


async def test_a_test_stays_vacuous_if_the_rewrite_fails() -> None:
    smoke = program("# <candidate>\n\n\ndef test_a():\n    assert True\n")
    replies = {"screen": [screen()], "generate_test": [smoke, *["no program"] * 3]}
    annotation = await annotate(replies, ScriptedSandbox(pass_all), variant="full_plus", without=PLAIN)
    assert annotation.error is not None
    assert annotation.test is not None
    assert annotation.test.vacuous


async def test_a_flaky_program_is_no_evidence_and_has_no_mutant_runs() -> None:
    runs = iter([pass_all, fail_all])
    sandbox = ScriptedSandbox(lambda job: next(runs, pass_all)(job))
    chance = PAIR.model_copy(update={"code": "import random\n\n\ndef add(a, b):\n    return random.random()\n"})
    replies = {"screen": [screen()], "generate_test": [program()], "arbitrate": [label(0)] * 3}
    annotation = await annotate(replies, sandbox, chance, variant="full_plus", without=PLAIN)
    assert (report := annotation.test) is not None
    assert (report.status, report.cause, report.executed) == (Status.ERROR, Cause.FLAKY, True)
    assert (annotation.strength, len(sandbox.jobs)) == (None, 3)


async def test_mutant_and_repeated_runs_are_not_executions() -> None:
    events: list[Event] = []
    sandbox = ScriptedSandbox(lambda job: pass_all(job) if would_pass(job) else fail_all(job))
    replies = {"screen": [screen()], "generate_test": [program()], "arbitrate": [label(1)] * 3}
    await annotate(replies, sandbox, variant="full_plus", without=PLAIN, on_event=events.append)
    finished = next(event for event in events if isinstance(event, PairFinished))
    assert len(sandbox.jobs) > 3
    assert finished.executions == 1


def run_slowly(job: SandboxJob) -> RunResult:
    return replace(pass_all(job) if would_pass(job) else fail_all(job), seconds=0.5)


async def test_every_run_and_call_is_recorded_by_node(tmp_path: Path) -> None:
    chance = PAIR.model_copy(update={"code": "import random\n\n\n" + PAIR.code})
    sandbox = ScriptedSandbox(run_slowly)
    replies = {
        "screen": [screen()],
        "generate_test": [program("# <candidate>\n\n\ndef test_a():\n    assert True\n"), program()],
        "arbitrate": [label(1)] * 3,
    }
    await annotate(replies, sandbox, chance, variant="full_plus", without=PLAIN, run_dir=tmp_path / "run")
    with load_run(tmp_path / "run") as run:
        evidence = run.evidence(PAIR.id)
    assert evidence is not None
    # the scripted sandbox reports no time for sentinel runs
    assert [execution.seconds for execution in evidence.executions if execution.seconds] == [0.5] * len(sandbox.jobs)
    mutants = len(evidence.mutants)
    assert mutants > 2
    runs, model_calls, runs_by_node, calls = 0, 0, [], []
    for event in evidence.events:
        runs += isinstance(event, Execution)
        model_calls += isinstance(event, ModelCall)
        if isinstance(event, NodeRun):
            runs_by_node.append((event.node, runs))
            calls.append(model_calls)
            runs = 0
    assert runs_by_node == [
        ("screen", 0),
        ("generate_test", 0), ("execute", 2), ("check_flakiness", 2), ("check_validity", mutants),
        ("generate_test", 0), ("execute", 2), ("check_flakiness", 2), ("check_validity", mutants),
        ("arbitrate", 0), ("rate_confidence", 0),
    ]  # fmt: skip
    assert calls == [1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 6]


async def test_runs_of_a_node_that_failed_are_recorded(tmp_path: Path) -> None:
    runs = iter([run_slowly, run_slowly])

    def run(job: SandboxJob) -> RunResult | BaseException:
        ready = next(runs, None)
        return SandboxError("gone") if ready is None else ready(job)

    replies = {"screen": [screen()], "generate_test": [program()]}
    await annotate(replies, ScriptedSandbox(run), variant="full_plus", without=PLAIN, run_dir=tmp_path / "run")
    with load_run(tmp_path / "run") as view:
        evidence = view.evidence(PAIR.id)
    assert evidence is not None
    assert evidence.node_runs[-1].node == "execute"
    assert [execution.seconds for execution in evidence.executions] == [0.5, 0, 0.5]


def would_pass(job: SandboxJob) -> bool:
    """Return whether a job's cases would pass: no assertion about the snippet, or an unchanged snippet."""
    return "assert True" in job.program or "return a + b" in job.program
