"""A program is repeated, and all runs must agree."""

from __future__ import annotations

import pytest

from agent.pipeline.nodes.check_flakiness import CheckFlakiness
from agent.pipeline.state import Step
from agent.sandbox.base import HASH_SEED, RunResult, SandboxBackend, SandboxJob
from agent.sandbox.scripted import ScriptedSandbox
from agent.types import CaseOutcome, Cause, Status
from tests.pipeline.nodes.running import execute_once, open_tools
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


async def check(template: str, code: str, backend: SandboxBackend) -> Step:
    async with open_tools(backend) as tools:
        return await CheckFlakiness()(await execute_once(template, code, tools), tools)


@pytest.mark.bwrap
async def test_an_order_that_depends_on_hashes_is_flaky(bwrap: SandboxBackend) -> None:
    async with open_tools(bwrap) as tools:
        printed = await execute_once(PRINTS, UNIQUE, tools)
        state = await execute_once(ORDER.replace("{expected}", repr(printed["result"].stdout.split())), UNIQUE, tools)
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
async def test_tests_of_properties_of_random_results_are_steady(bwrap: SandboxBackend) -> None:
    assert await check(STEADY_CHANCE, CHANCE, bwrap) == Step("steady", {})


@pytest.mark.bwrap
async def test_files_of_an_earlier_run_cause_no_flakiness(bwrap: SandboxBackend) -> None:
    assert await check(LEAVES_A_FILE, NOTE, bwrap) == Step("steady", {})


def make_sandbox(*outcomes: object) -> ScriptedSandbox:
    """Return a sandbox whose runs have these outcomes in order."""
    remaining = list(outcomes)
    return ScriptedSandbox(lambda job: remaining.pop(0)(job))  # type: ignore[operator]


async def test_one_disagreement_among_three_runs_is_enough() -> None:
    step = await check(STEADY_CHANCE, CHANCE, make_sandbox(pass_all, pass_all, fail_all))
    assert step.outcome == "flaky"
    assert "passed, passed, failed" in step.update["report"].cases[0].message


@pytest.mark.bwrap
async def test_a_case_that_never_ran_the_snippet_is_not_flaky(bwrap: SandboxBackend) -> None:
    case = "\n\ndef test_b():\n    assert callable(draw)\n"
    assert await check(STEADY_CHANCE + case, CHANCE, bwrap) == Step("steady", {})


@pytest.mark.bwrap
async def test_a_program_that_never_ran_the_snippet_is_not_repeated(bwrap: SandboxBackend) -> None:
    template = "# <candidate>\n\n\ndef test_b():\n    assert callable(draw)\n"
    assert await check(template, CHANCE, bwrap) == Step("steady", {})


async def test_each_run_has_a_fresh_sandbox_and_its_own_seed() -> None:
    sandbox = ScriptedSandbox(pass_all)
    async with open_tools(sandbox) as tools:
        await CheckFlakiness()(await execute_once(STEADY_CHANCE, CHANCE, tools), tools)
        assert [job.options.get(HASH_SEED) for job in sandbox.jobs] == [None, "1", "2"]
        assert sandbox.acquired == 4  # including a sentinel run
        await tools.sandbox.run(sandbox.jobs[0])  # a later program does not share the last repeat's sandbox
    assert sandbox.acquired == 5


async def test_repeats_have_longer_timeouts() -> None:
    sandbox = ScriptedSandbox(pass_all)
    await check(STEADY_CHANCE, CHANCE, sandbox)
    first, *others = (job.timeout for job in sandbox.jobs)
    assert all(timeout > first for timeout in others)


async def test_a_run_that_timed_out_is_not_repeated() -> None:
    def time_out(_job: SandboxJob) -> RunResult:
        return RunResult(timed_out=True, exit_code=None, signal=9)

    sandbox = ScriptedSandbox(time_out)
    assert await check(STEADY_CHANCE, CHANCE, sandbox) == Step("steady", {})
    assert len(sandbox.jobs) == 1
