"""A program is tried on code that is wrong: what it does not notice, it does not prove."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config import PipelineConfig
from agent.languages.base import MutantKind
from agent.nodes.check_validity import CheckValidity, MutantResult, describe_weakness, is_vacuous
from agent.sandbox.base import Frame, ReportLine, RunResult, SandboxBackend, SandboxJob
from agent.sandbox.scripted import ScriptedSandbox
from agent.state import State, Step
from agent.types import Status
from tests.nodes.crashes_and_checks import BY_PYTEST, CHECKS, CRASHES, PI
from tests.nodes.running import execute_once, tools_in
from tests.nodes.vacuous_and_sound import SLUG, SOUND, VACUOUS
from tests.scripts import environment, fail_all, pass_all

RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT, RAISES, SAYS_NO, SAYS_YES = MutantKind

TEMPLATE = "# <candidate>\n\n\ndef test_a():\n    assert slug('A b') == 'a-b'\n"


async def checked(template: str, code: str, backend: SandboxBackend, **more: str) -> Step:
    return (await tried(template, code, backend, **more))[0]


async def tried(template: str, code: str, backend: SandboxBackend, **more: str) -> tuple[Step, dict[str, bool]]:
    """Return what the node concludes, and of each kind of mutant whether it was killed."""
    async with tools_in(backend) as tools:
        state: State = {**(await execute_once(template, code, tools)), **more}  # type: ignore[typeddict-item]
        step = await CheckValidity()(state, tools)
        return step, {each.mutant.kind: each.killed for each in tools.history.history.mutants if each.mutant}


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template"), VACUOUS.values(), ids=VACUOUS)
async def test_a_program_proves_nothing_that(bwrap: SandboxBackend, code: str, template: str) -> None:
    step = await checked(template, code, bwrap)
    assert step.outcome == "vacuous"
    assert "code that does nothing and returns nothing" in step.update["weakness"]


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template"), SOUND.values(), ids=SOUND)
async def test_a_program_proves_what_it_says_of(bwrap: SandboxBackend, code: str, template: str) -> None:
    step, killed = await tried(template, code, bwrap)
    assert step.outcome == "checked"
    assert all(killed.get(kind, True) for kind in (RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT))
    assert step.update["strength"] is not None
    assert step.update["strength"] > 0.5


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template"), CRASHES.values(), ids=CRASHES)
async def test_a_program_notices_nothing_but_crashes_that(bwrap: SandboxBackend, code: str, template: str) -> None:
    assert (await checked(template, code, bwrap)).outcome == "vacuous"


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template"), CHECKS.values(), ids=CHECKS)
async def test_a_program_notices_more_than_crashes_that(bwrap: SandboxBackend, code: str, template: str) -> None:
    step = await checked(template, code, bwrap)
    assert step.outcome == "checked"
    assert step.update["strength"]


@pytest.mark.network
@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template", "outcome"), BY_PYTEST.values(), ids=BY_PYTEST)
async def test_a_program_of_pytest_that_checks(bwrap: SandboxBackend, code: str, template: str, outcome: str) -> None:
    async with tools_in(bwrap) as tools:
        state = await execute_once(template, code, tools, await tools.sandbox.build_environment(["pytest"]))
        assert state["report"].status is Status.PASSED
        assert (await CheckValidity()(state, tools)).outcome == outcome


@pytest.mark.bwrap
async def test_what_a_universal_mock_passed_is_reported_and_is_no_measure_of_strength(bwrap: SandboxBackend) -> None:
    template = "# <candidate>\n\n\ndef test_a():\n    pi() + 1\n"
    first = await checked(template, PI, bwrap)
    assert "says no to whatever it is asked, code that returns what goes along" in first.update["weakness"]
    second, killed = await tried(template, PI, bwrap, weakness=first.update["weakness"])
    assert list(killed) == [RETURNS_NOTHING, RAISES]
    assert second.update["strength"] == 1
    assert second.update["report"].vacuous


@pytest.mark.bwrap
async def test_a_file_that_one_mutant_left_is_not_the_work_of_the_next(bwrap: SandboxBackend) -> None:
    code = (
        "def save(text):\n    if len(text) > 0:\n        with open('out.txt', 'w') as f:\n            f.write(text)\n"
    )
    template = "# <candidate>\n\n\ndef test_a():\n    save('hello')\n    assert open('out.txt').read() == 'hello'\n"
    step, killed = await tried(template, code, bwrap)
    assert {kind for kind, noticed in killed.items() if not noticed} == {"off_by_one"}
    assert step.update["strength"] == pytest.approx(2 / 3)


@pytest.mark.bwrap
async def test_a_mutant_that_never_ends_is_killed_by_time(bwrap: SandboxBackend) -> None:
    code = "def f(n):\n    while True:\n        n = n - 1\n        if n <= 0:\n            return n\n"
    template = "# <candidate>\n\n\ndef test_a():\n    assert f(3) == 0\n"
    async with tools_in(bwrap, PipelineConfig(mutant_timeout=0.5)) as tools:
        await CheckValidity()(await execute_once(template, code, tools), tools)
        ended = {each.mutant.kind: each for each in tools.history.history.mutants if each.mutant}
    assert ended["dropped_branch"].report.status is Status.TIMEOUT
    assert ended["dropped_branch"].killed


class Runs:
    """Answers the first run as passed and every mutant by its text."""

    def __init__(self, **ends: object) -> None:
        self.ends = ends
        self.first = True

    def __call__(self, job: SandboxJob) -> RunResult:
        if self.first:
            self.first = False
            return pass_all(job)
        end = next((end for text, end in self.ends.items() if text in job.program), pass_all)
        return end(job)  # type: ignore[operator, no-any-return]


async def test_strength_is_the_share_of_the_killed() -> None:
    sandbox = ScriptedSandbox(Runs(RuntimeError=fail_all, title=pass_all))
    async with tools_in(sandbox, PipelineConfig(mutants=4)) as tools:
        state = await execute_once(TEMPLATE, SLUG, tools)
        state["weakness"] = "an earlier one was vacuous"
        step = await CheckValidity()(state, tools)
        kinds = [each.mutant.kind for each in tools.history.history.mutants if each.mutant]
    assert kinds[:3] == [RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT, RAISES]
    assert step.update["strength"] == 1 / 4


async def test_a_vacuous_program_is_written_again_once_and_the_arbiter_told_the_second_time() -> None:
    first = await checked(TEMPLATE, SLUG, ScriptedSandbox(pass_all))
    assert (first.outcome, first.update["strength"]) == ("vacuous", None)
    assert first.update["report"].vacuous  # should no other program come
    second = await checked(TEMPLATE, SLUG, ScriptedSandbox(pass_all), weakness=first.update["weakness"])
    assert second.outcome == "checked"
    assert second.update["strength"] == 0
    assert second.update["report"].status is Status.PASSED
    assert second.update["report"].vacuous
    assert second.update["report"].message.startswith("the program proves nothing. No case")


@pytest.mark.parametrize(("run", "mutants"), [(fail_all, 12), (pass_all, 0)])
async def test_only_what_passed_is_tried_on_mutants_and_only_where_the_setting_says_so(run: Any, mutants: int) -> None:
    sandbox = ScriptedSandbox(run)
    async with tools_in(sandbox, PipelineConfig(mutants=mutants)) as tools:
        step = await CheckValidity()(await execute_once(TEMPLATE, SLUG, tools), tools)
    assert (step, len(sandbox.jobs)) == (Step("checked", {"strength": None}), 1)


async def test_mutants_run_in_the_environment_of_the_snippet_and_each_in_a_sandbox_of_its_own() -> None:
    sandbox = ScriptedSandbox(pass_all)
    async with tools_in(sandbox) as tools:
        state = await execute_once(TEMPLATE, SLUG, tools)
        state["environment"] = environment(["numpy"])
        await CheckValidity()(state, tools)
        assert {job.environment for job in sandbox.jobs[1:]} == {"knumpy"}
        assert sandbox.acquired == len(sandbox.jobs) + 1 == 14  # one of them for the sentinel run
        await tools.sandbox.run(sandbox.jobs[0])  # a program that is run later has not the last mutant's
    assert sandbox.acquired == 15


async def test_a_universal_mock_is_tried_only_where_a_crash_may_have_been_a_check() -> None:
    for end, kinds in ((fail_all, 0), (pass_all, 0), (broke, 2)):
        sandbox = ScriptedSandbox(Runs(**{"_UniversalMock": pass_all, "def slug": end}))
        await checked(TEMPLATE, SLUG, sandbox)
        assert len([job for job in sandbox.jobs if "class _UniversalMock" in job.program]) == kinds


async def test_mutants_have_little_time_but_no_less_than_the_snippet_needed() -> None:
    sandbox = ScriptedSandbox(pass_all)
    async with tools_in(sandbox, PipelineConfig(mutants=1, test_timeout=10, mutant_timeout=2)) as tools:
        state = await execute_once(TEMPLATE, SLUG, tools)
        for seconds in (0.1, 1.5, 9.0):
            state["result"] = RunResult(seconds=seconds)
            await CheckValidity()(state, tools)
    assert [job.timeout for job in sandbox.jobs[1:]] == [2, 4.5, 10]


def broke(job: SandboxJob) -> RunResult:
    """Return a run in which every case raised an error."""
    frames = (Frame("program.py", 99, "test"),)
    ended = [
        (ReportLine("start", name), ReportLine("case", name, "error", "TypeError", "no", frames)) for name in job.cases
    ]
    return RunResult((*(record for records in ended for record in records), ReportLine("end")))


P, F, E, T = Status.PASSED, Status.FAILED, Status.ERROR, Status.TIMEOUT


@pytest.mark.parametrize(
    ("found", "vacuous"),
    [
        ({RETURNS_NOTHING: P}, True),
        ({RETURNS_NOTHING: E}, None),
        ({RETURNS_NOTHING: E, RETURNS_FIRST_ARGUMENT: P}, None),
        ({RETURNS_NOTHING: E, "off_by_one": F}, False),
        ({RETURNS_NOTHING: E, SAYS_NO: P, SAYS_YES: P}, True),
        ({RETURNS_NOTHING: E, SAYS_NO: F, SAYS_YES: P}, False),
        ({RETURNS_NOTHING: P, "off_by_one": F}, False),
        ({RETURNS_NOTHING: P, "off_by_one": E}, True),
        ({RETURNS_NOTHING: P, RETURNS_FIRST_ARGUMENT: F}, False),
        ({RAISES: P}, None),
        ({}, None),
    ],
)
def test_to_notice_a_crash_is_no_proof(found: dict[str, Status], vacuous: bool | None) -> None:
    assert is_vacuous([MutantResult(kind, status) for kind, status in found.items()]) is vacuous


def test_the_model_is_told_kinds_and_nothing_of_the_code() -> None:
    told = describe_weakness([MutantResult(RETURNS_NOTHING, P), MutantResult("off_by_one", P), MutantResult("x", F)])
    assert "does nothing and returns nothing" in told
    assert "off by one (1 tried)" in told
