"""A program is run again, and must agree with itself."""

from __future__ import annotations

import pytest

from agent.nodes.check_flakiness import CheckFlakiness
from agent.sandbox.base import HASH_SEED, RunResult, SandboxBackend, SandboxJob
from agent.sandbox.scripted import ScriptedSandbox
from agent.state import Step
from agent.types import CaseOutcome, Cause, Status
from tests.nodes.running import execute_once, tools_in
from tests.scripts import fail_all, pass_all

ORDER = """# <candidate>


def test_order():
    assert unique(list("abcdefghijklmnop")) == {expected}


def test_number():
    assert len(unique([1, 1, 2])) == 2
"""
PRINTS = "# <candidate>\n\n\ndef test_order():\n    print(*unique(list('abcdefghijklmnop')))\n"
UNIQUE = "def unique(xs):\n    return list(set(xs))\n"
CHANCE = "import random\n\n\ndef draw(xs):\n    return random.choice(xs)\n"
STEADY_CHANCE = "# <candidate>\n\n\ndef test_draws_one_of_them():\n    assert draw([1, 2, 3]) in [1, 2, 3]\n"
LEAVES_A_FILE = """# <candidate>
import random


def test_writes():
    note("x")
    assert open("note.txt").read() == "x"
"""
NOTE = "def note(text):\n    with open('note.txt', 'x') as file:\n        file.write(text)\n"


async def checked(template: str, code: str, backend: SandboxBackend) -> Step:
    async with tools_in(backend) as tools:
        return await CheckFlakiness()(await execute_once(template, code, tools), tools)


@pytest.mark.bwrap
async def test_an_order_that_hashes_decide_is_flaky(bwrap: SandboxBackend) -> None:
    async with tools_in(bwrap) as tools:
        seen = await execute_once(PRINTS, UNIQUE, tools)
        state = await execute_once(ORDER.replace("{expected}", repr(seen["result"].stdout.split())), UNIQUE, tools)
        assert state["report"].status is Status.PASSED
        step = await CheckFlakiness()(state, tools)
    assert step.outcome == "flaky"
    report = step.update["report"]
    assert (report.status, report.cause, report.executed) == (Status.ERROR, Cause.FLAKY, True)
    assert [(case.name, case.outcome, case.cause) for case in report.cases] == [
        ("test_order", CaseOutcome.ERROR, Cause.FLAKY),
        ("test_number", CaseOutcome.PASSED, None),
    ]
    assert "test_order" in report.message


@pytest.mark.bwrap
async def test_chance_whose_properties_are_tested_is_steady(bwrap: SandboxBackend) -> None:
    assert await checked(STEADY_CHANCE, CHANCE, bwrap) == Step("steady", {})


@pytest.mark.bwrap
async def test_a_file_that_an_earlier_run_wrote_is_no_flakiness(bwrap: SandboxBackend) -> None:
    assert await checked(LEAVES_A_FILE, NOTE, bwrap) == Step("steady", {})


def by_turns(*ends: object) -> ScriptedSandbox:
    """Return a sandbox whose runs pass or fail as told."""
    left = list(ends)
    return ScriptedSandbox(lambda job: left.pop(0)(job))  # type: ignore[operator]


async def test_one_disagreement_among_three_runs_is_enough() -> None:
    step = await checked(STEADY_CHANCE, CHANCE, by_turns(pass_all, pass_all, fail_all))
    assert step.outcome == "flaky"
    assert "passed, passed, failed" in step.update["report"].cases[0].message


@pytest.mark.bwrap
async def test_a_case_that_never_ran_the_snippet_is_no_flakiness(bwrap: SandboxBackend) -> None:
    case = "\n\ndef test_b():\n    assert callable(draw)\n"
    assert await checked(STEADY_CHANCE + case, CHANCE, bwrap) == Step("steady", {})


@pytest.mark.bwrap
async def test_a_program_that_never_ran_the_snippet_is_not_run_again(bwrap: SandboxBackend) -> None:
    template = "# <candidate>\n\n\ndef test_b():\n    assert callable(draw)\n"
    assert await checked(template, CHANCE, bwrap) == Step("steady", {})


async def test_each_run_has_a_fresh_sandbox_and_a_seed_of_its_own() -> None:
    sandbox = ScriptedSandbox(pass_all)
    async with tools_in(sandbox) as tools:
        await CheckFlakiness()(await execute_once(STEADY_CHANCE, CHANCE, tools), tools)
        assert [job.options.get(HASH_SEED) for job in sandbox.jobs] == [None, "1", "2"]
        assert sandbox.acquired == 4  # a sentinel run among them
        await tools.sandbox.run(sandbox.jobs[0])  # a program that is run later has not the last repeat's
    assert sandbox.acquired == 5


async def test_a_busy_machine_is_no_flakiness() -> None:
    sandbox = ScriptedSandbox(pass_all)
    await checked(STEADY_CHANCE, CHANCE, sandbox)
    first, *others = (job.timeout for job in sandbox.jobs)
    assert all(timeout > first for timeout in others)


async def test_a_run_that_took_all_its_time_is_not_repeated() -> None:
    def hangs(_job: SandboxJob) -> RunResult:
        return RunResult(timed_out=True, exit_code=None, signal=9)

    sandbox = ScriptedSandbox(hangs)
    assert await checked(STEADY_CHANCE, CHANCE, sandbox) == Step("steady", {})
    assert len(sandbox.jobs) == 1
