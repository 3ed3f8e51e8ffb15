"""A program is run on wrong code, and is vacuous if it detects only crashes."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config import PipelineConfig
from agent.languages.base import MutantKind
from agent.pipeline.nodes.check_validity import CheckValidity, MutantResult, describe_weakness, is_vacuous
from agent.pipeline.state import State, Step
from agent.sandbox.base import Frame, ReportLine, RunResult, SandboxBackend, SandboxJob
from agent.sandbox.scripted import ScriptedSandbox
from agent.types import Status
from tests.pipeline.nodes.crashes_and_checks import BY_PYTEST, CHECKS, CRASHES, PI
from tests.pipeline.nodes.running import execute_once, open_tools
from tests.pipeline.nodes.vacuous_and_sound import SLUG, SOUND, VACUOUS
from tests.scripts import environment, fail_all, pass_all

RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT, RAISES, SAYS_NO, SAYS_YES = MutantKind

TEMPLATE = "# <candidate>\n\n\ndef test_a():\n    assert slug('A b') == 'a-b'\n"


async def check(template: str, code: str, backend: SandboxBackend, **more: str) -> Step:
    return (await check_mutants(template, code, backend, **more))[0]


async def check_mutants(template: str, code: str, backend: SandboxBackend, **more: str) -> tuple[Step, dict[str, bool]]:
    """Return the node's step, and whether each kind of mutant was killed."""
    async with open_tools(backend) as tools:
        state: State = {**(await execute_once(template, code, tools)), **more}  # type: ignore[typeddict-item]
        step = await CheckValidity()(state, tools)
        return step, {run.mutant.kind: run.killed for run in tools.history.history.mutants if run.mutant}


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template"), VACUOUS.values(), ids=VACUOUS)
async def test_vacuous_programs_are_detected(bwrap: SandboxBackend, code: str, template: str) -> None:
    step = await check(template, code, bwrap)
    assert step.outcome == "vacuous"
    assert "returns nothing" in step.update["weakness"]


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template"), SOUND.values(), ids=SOUND)
async def test_sound_programs_are_accepted(bwrap: SandboxBackend, code: str, template: str) -> None:
    step, killed = await check_mutants(template, code, bwrap)
    assert step.outcome == "checked"
    assert all(killed.get(kind, True) for kind in (RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT))
    assert step.update["strength"] is not None
    assert step.update["strength"] > 0.5


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template"), CRASHES.values(), ids=CRASHES)
async def test_programs_that_only_crash_are_vacuous(bwrap: SandboxBackend, code: str, template: str) -> None:
    assert (await check(template, code, bwrap)).outcome == "vacuous"


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template"), CHECKS.values(), ids=CHECKS)
async def test_errors_that_check_results_count(bwrap: SandboxBackend, code: str, template: str) -> None:
    step = await check(template, code, bwrap)
    assert step.outcome == "checked"
    assert step.update["strength"]


@pytest.mark.network
@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "template", "outcome"), BY_PYTEST.values(), ids=BY_PYTEST)
async def test_pytest_programs_are_checked(bwrap: SandboxBackend, code: str, template: str, outcome: str) -> None:
    async with open_tools(bwrap) as tools:
        state = await execute_once(template, code, tools, await tools.sandbox.build_environment(["pytest"]))
        assert state["report"].status is Status.PASSED
        assert (await CheckValidity()(state, tools)).outcome == outcome


@pytest.mark.bwrap
async def test_universal_mocks_are_reported_but_do_not_count_for_the_strength(bwrap: SandboxBackend) -> None:
    template = "# <candidate>\n\n\ndef test_a():\n    pi() + 1\n"
    first = await check(template, PI, bwrap)
    assert all(kind in first.update["weakness"] for kind in ("always false", "always true"))
    second, killed = await check_mutants(template, PI, bwrap, weakness=first.update["weakness"])
    assert list(killed) == [RETURNS_NOTHING, RAISES]
    assert second.update["strength"] == 1
    assert second.update["report"].vacuous


@pytest.mark.bwrap
async def test_files_of_a_mutant_are_not_visible_to_the_next(bwrap: SandboxBackend) -> None:
    code = (
        "def save(text):\n    if len(text) > 0:\n        with open('out.txt', 'w') as f:\n            f.write(text)\n"
    )
    template = "# <candidate>\n\n\ndef test_a():\n    save('hello')\n    assert open('out.txt').read() == 'hello'\n"
    step, killed = await check_mutants(template, code, bwrap)
    assert {kind for kind, was_killed in killed.items() if not was_killed} == {"off_by_one"}
    assert step.update["strength"] == pytest.approx(2 / 3)


@pytest.mark.bwrap
async def test_a_mutant_that_never_ends_is_killed_by_the_timeout(bwrap: SandboxBackend) -> None:
    code = "def f(n):\n    while True:\n        n = n - 1\n        if n <= 0:\n            return n\n"
    template = "# <candidate>\n\n\ndef test_a():\n    assert f(3) == 0\n"
    async with open_tools(bwrap, PipelineConfig(mutant_timeout=0.5)) as tools:
        await CheckValidity()(await execute_once(template, code, tools), tools)
        runs = {run.mutant.kind: run for run in tools.history.history.mutants if run.mutant}
    assert runs["dropped_branch"].report.status is Status.TIMEOUT
    assert runs["dropped_branch"].killed


class ScriptedRuns:
    """A language whose program passes on the snippet, and whose mutants have outcomes that depend on their text."""

    def __init__(self, **outcomes: object) -> None:
        self.outcomes = outcomes
        self.first = True

    def __call__(self, job: SandboxJob) -> RunResult:
        if self.first:
            self.first = False
            return pass_all(job)
        outcome = next((outcome for text, outcome in self.outcomes.items() if text in job.program), pass_all)
        return outcome(job)  # type: ignore[operator, no-any-return]


async def test_strength_is_the_share_of_killed_mutants() -> None:
    sandbox = ScriptedSandbox(ScriptedRuns(RuntimeError=fail_all, title=pass_all))
    async with open_tools(sandbox, PipelineConfig(mutants=4)) as tools:
        state = await execute_once(TEMPLATE, SLUG, tools)
        state["weakness"] = "an earlier one was vacuous"
        step = await CheckValidity()(state, tools)
        kinds = [run.mutant.kind for run in tools.history.history.mutants if run.mutant]
    assert kinds[:3] == [RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT, RAISES]
    assert step.update["strength"] == 1 / 4


async def test_a_vacuous_program_is_rewritten_once_and_then_reported() -> None:
    first = await check(TEMPLATE, SLUG, ScriptedSandbox(pass_all))
    assert (first.outcome, first.update["strength"]) == ("vacuous", None)
    assert first.update["report"].vacuous  # in case there is no other program
    second = await check(TEMPLATE, SLUG, ScriptedSandbox(pass_all), weakness=first.update["weakness"])
    assert second.outcome == "checked"
    assert second.update["strength"] == 0
    assert second.update["report"].status is Status.PASSED
    assert second.update["report"].vacuous
    assert first.update["weakness"] in second.update["report"].message


@pytest.mark.parametrize(("run", "mutants"), [(fail_all, 12), (pass_all, 0)])
async def test_mutants_run_only_if_the_program_passed_and_the_setting_allows_them(run: Any, mutants: int) -> None:
    sandbox = ScriptedSandbox(run)
    async with open_tools(sandbox, PipelineConfig(mutants=mutants)) as tools:
        step = await CheckValidity()(await execute_once(TEMPLATE, SLUG, tools), tools)
    assert (step, len(sandbox.jobs)) == (Step("checked", {"strength": None}), 1)


async def test_mutants_run_in_the_snippets_environment_and_in_separate_sandboxes() -> None:
    sandbox = ScriptedSandbox(pass_all)
    async with open_tools(sandbox) as tools:
        state = await execute_once(TEMPLATE, SLUG, tools)
        state["environment"] = environment(["numpy"])
        await CheckValidity()(state, tools)
        assert {job.environment for job in sandbox.jobs[1:]} == {"knumpy"}
        assert sandbox.acquired == len(sandbox.jobs) + 1 == 14  # including the sentinel run
        await tools.sandbox.run(sandbox.jobs[0])  # a later program does not share the last mutant's sandbox
    assert sandbox.acquired == 15


async def test_universal_mocks_run_only_if_a_crash_may_have_been_a_check() -> None:
    for outcome, kinds in ((fail_all, 0), (pass_all, 0), (raise_everywhere, 2)):
        sandbox = ScriptedSandbox(ScriptedRuns(**{"_UniversalMock": pass_all, "def slug": outcome}))
        await check(TEMPLATE, SLUG, sandbox)
        assert len([job for job in sandbox.jobs if "class _UniversalMock" in job.program]) == kinds


async def test_mutants_have_a_short_timeout_but_enough_for_the_snippet() -> None:
    sandbox = ScriptedSandbox(pass_all)
    async with open_tools(sandbox, PipelineConfig(mutants=1, test_timeout=10, mutant_timeout=2)) as tools:
        state = await execute_once(TEMPLATE, SLUG, tools)
        for seconds in (0.1, 1.5, 9.0):
            state["result"] = RunResult(seconds=seconds)
            await CheckValidity()(state, tools)
    assert [job.timeout for job in sandbox.jobs[1:]] == [2, 4.5, 10]


def raise_everywhere(job: SandboxJob) -> RunResult:
    """Return a run in which every case raised an error."""
    frames = (Frame("program.py", 99, "test"),)
    lines = [
        (ReportLine("start", name), ReportLine("case", name, "error", "TypeError", "no", frames)) for name in job.cases
    ]
    return RunResult((*(record for records in lines for record in records), ReportLine("end")))


P, F, E, T = Status.PASSED, Status.FAILED, Status.ERROR, Status.TIMEOUT


@pytest.mark.parametrize(
    ("statuses", "vacuous"),
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
def test_detecting_only_crashes_is_vacuous(statuses: dict[str, Status], vacuous: bool | None) -> None:
    assert is_vacuous([MutantResult(kind, status) for kind, status in statuses.items()]) is vacuous


def test_the_weakness_names_kinds_of_mutants() -> None:
    text = describe_weakness([MutantResult(RETURNS_NOTHING, P), MutantResult("off_by_one", P), MutantResult("x", F)])
    assert "returns nothing" in text
    assert "off by one" in text
