"""Our best variant, from pair to label: what is checked behind the execution, and rated behind the label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent import ScriptedLLM, ScriptedSandbox
from agent.config import Config, PipelineConfig
from agent.errors import SandboxError
from agent.events import Event, PairFinished
from agent.history import Exchange, Execution, Visit
from agent.sandbox.base import Frame, ReportLine, RunResult, SandboxJob
from agent.store import load_run
from agent.types import Cause, Status
from tests.scripts import PAIR, fail_all, label, pass_all, program, screen
from tests.test_runner import annotate

PLAIN = ("specify_query", "generate_blind", "repair_program", "arbitrate_or_abstain")


async def test_a_program_that_proves_nothing_is_written_again_and_told_why() -> None:
    model = ScriptedLLM(
        {
            "screen": [screen()],
            "generate_test": [program("# <candidate>\n\n\ndef test_a():\n    assert True\n"), program()],
            "arbitrate": [label(1)] * 3,
        }
    )
    sandbox = ScriptedSandbox(lambda job: pass_all(job) if holds(job) else fail_all(job))
    found = await annotate(model, sandbox, variant="full_plus", without=PLAIN)
    assert found.test is not None
    assert [case.name for case in found.test.cases] == ["test_small", "test_negative"]
    assert not found.test.vacuous
    assert (found.label, found.votes, found.strength, found.repairs) == (1, (1, 1, 1), 1.0, 0)
    assert found.confidence is not None
    assert found.confidence > 0.9
    questions = [call.messages[1].content for call in model.calls if call.role == "generate_test"]
    assert ["returns nothing" in question for question in questions] == [False, True]


async def test_a_program_that_still_proves_nothing_is_kept_as_such_and_supports_no_label() -> None:
    smoke = program("# <candidate>\n\n\ndef test_a():\n    assert True\n")
    replies = {"screen": [screen()], "generate_test": [smoke, smoke], "arbitrate": [label(0)] * 3}
    found = await annotate(replies, ScriptedSandbox(pass_all), variant="full_plus", without=PLAIN)
    assert found.test is not None
    assert (found.test.status, found.test.vacuous, found.strength) == (Status.PASSED, True, 0.0)
    assert (found.label, found.against_test, found.confidence) == (0, False, 0.8)


async def test_a_program_that_is_written_again_may_be_repaired_as_often_as_the_first() -> None:
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
        return pass_all(job) if "assert" not in job.program or holds(job) else fail_all(job)

    config = Config(pipeline=PipelineConfig(max_try_time=1))
    found = await annotate(model, ScriptedSandbox(run), variant="full_plus", without=["specify_query"], config=config)
    assert found.test is not None
    assert (found.test.status, found.test.vacuous, found.repairs) == (Status.PASSED, False, 2)
    questions = [call.messages[1].content for call in model.calls if call.role == "generate_blind"]
    assert ["returns nothing" in question for question in questions] == [False, True]
    assert sum(call.role == "scaffold" for call in model.calls) == 1


async def test_a_test_proves_nothing_also_where_the_other_program_never_came() -> None:
    smoke = program("# <candidate>\n\n\ndef test_a():\n    assert True\n")
    replies = {"screen": [screen()], "generate_test": [smoke, *["no program"] * 3]}
    found = await annotate(replies, ScriptedSandbox(pass_all), variant="full_plus", without=PLAIN)
    assert found.error is not None
    assert found.test is not None
    assert found.test.vacuous


async def test_a_flaky_program_is_no_evidence_and_tried_on_no_mutants() -> None:
    runs = iter([pass_all, fail_all])
    sandbox = ScriptedSandbox(lambda job: next(runs, pass_all)(job))
    chance = PAIR.model_copy(update={"code": "import random\n\n\ndef add(a, b):\n    return random.random()\n"})
    replies = {"screen": [screen()], "generate_test": [program()], "arbitrate": [label(0)] * 3}
    found = await annotate(replies, sandbox, chance, variant="full_plus", without=PLAIN)
    assert found.test is not None
    assert (found.test.status, found.test.cause, found.test.executed) == (Status.ERROR, Cause.FLAKY, True)
    assert (found.strength, len(sandbox.jobs)) == (None, 3)


async def test_mutants_and_repeated_runs_are_no_executions() -> None:
    events: list[Event] = []
    sandbox = ScriptedSandbox(lambda job: pass_all(job) if holds(job) else fail_all(job))
    replies = {"screen": [screen()], "generate_test": [program()], "arbitrate": [label(1)] * 3}
    await annotate(replies, sandbox, variant="full_plus", without=PLAIN, on_event=events.append)
    finished = next(event for event in events if isinstance(event, PairFinished))
    assert len(sandbox.jobs) > 3
    assert finished.executions == 1


def slow(job: SandboxJob) -> RunResult:
    return replace(pass_all(job) if holds(job) else fail_all(job), seconds=0.5)


async def test_the_time_of_every_run_and_call_is_kept_by_node(tmp_path: Path) -> None:
    chance = PAIR.model_copy(update={"code": "import random\n\n\n" + PAIR.code})
    sandbox = ScriptedSandbox(slow)
    replies = {
        "screen": [screen()],
        "generate_test": [program("# <candidate>\n\n\ndef test_a():\n    assert True\n"), program()],
        "arbitrate": [label(1)] * 3,
    }
    await annotate(replies, sandbox, chance, variant="full_plus", without=PLAIN, run_dir=tmp_path / "run")
    with load_run(tmp_path / "run") as run:
        evidence = run.evidence(PAIR.id)
    assert evidence is not None
    # of a sentinel run the scripted sandbox says that it took no time
    assert [each.seconds for each in evidence.executions if each.seconds] == [0.5] * len(sandbox.jobs)
    wrong = len(evidence.mutants)
    assert wrong > 2
    runs, asked, ran, calls = 0, 0, [], []
    for event in evidence.events:
        runs += isinstance(event, Execution)
        asked += isinstance(event, Exchange)
        if isinstance(event, Visit):
            ran.append((event.node, runs))
            calls.append(asked)
            runs = 0
    assert ran == [
        ("screen", 0),
        ("generate_test", 0), ("execute", 2), ("check_flakiness", 2), ("check_validity", wrong),
        ("generate_test", 0), ("execute", 2), ("check_flakiness", 2), ("check_validity", wrong),
        ("arbitrate", 0), ("rate_confidence", 0),
    ]  # fmt: skip
    assert calls == [1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 6]


async def test_what_ran_in_a_node_that_broke_is_kept_too(tmp_path: Path) -> None:
    runs = iter([slow, slow])

    def run(job: SandboxJob) -> RunResult | BaseException:
        ready = next(runs, None)
        return SandboxError("gone") if ready is None else ready(job)

    replies = {"screen": [screen()], "generate_test": [program()]}
    await annotate(replies, ScriptedSandbox(run), variant="full_plus", without=PLAIN, run_dir=tmp_path / "run")
    with load_run(tmp_path / "run") as view:
        evidence = view.evidence(PAIR.id)
    assert evidence is not None
    assert evidence.visits[-1].node == "execute"
    assert [each.seconds for each in evidence.executions] == [0.5, 0, 0.5]


def holds(job: SandboxJob) -> bool:
    """Say whether a job's cases would pass: no assertion about the snippet, or the snippet as it is."""
    return "assert True" in job.program or "return a + b" in job.program
