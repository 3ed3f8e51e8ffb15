"""Flakiness: a program whose outcome depends on time, chance or order provides no evidence about the snippet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from agent.pipeline.nodes.execute import build_job, run_program
from agent.pipeline.state import Node, State, Step, Tools
from agent.sandbox.base import HASH_SEED
from agent.types import CaseOutcome, CaseResult, Cause, Status, TestReport

_PATIENCE = 2
"""Timeout of a repeat, as a multiple of the first run's timeout."""


class CheckFlakiness(Node):
    """Run a program repeatedly, and require that all runs agree on every case.

    There are `flakiness_runs` runs in total. Each run uses a fresh sandbox, so that files from an earlier run cannot
    affect it. Each run uses a different hash seed, which determines the order of sets. A program that timed out is not
    repeated. Repeats have a longer timeout than the first run, so that a busy machine does not make a test flaky.
    """

    name = "check_flakiness"
    requires = frozenset({"program", "report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"steady": frozenset(), "flaky": frozenset({"report"})}
    bypass = "steady"
    uses_sandbox = True
    settings = frozenset({"flakiness_runs", "test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return `flaky` with a report whose cause is `flaky` if two runs disagree."""
        if state["report"].status is Status.TIMEOUT or state["report"].cause is Cause.PROGRAM:
            return Step("steady", {})
        repeats = [await self._run_again(state, tools, seed) for seed in range(1, tools.config.flakiness_runs)]
        reports = [state["report"], *repeats]
        await tools.sandbox.renew()
        if all(_summarise(report) == _summarise(reports[0]) for report in reports):
            return Step("steady", {})
        return Step("flaky", {"report": _mark_flaky(reports)})

    async def _run_again(self, state: State, tools: Tools, seed: int) -> TestReport:
        program, environment = state["program"], state.get("environment")
        job = build_job(program, environment, tools)
        await tools.sandbox.renew()
        # the seed makes each repeat a distinct job, so that two repeats never reuse the same stored run
        repeat = replace(job, options={**job.options, HASH_SEED: str(seed)}, timeout=_PATIENCE * job.timeout)
        return (await run_program(program, repeat, environment, tools, purpose="repeat"))[1]


def _summarise(report: TestReport) -> tuple[object, ...]:
    return report.status, report.cause, tuple((case.name, _simplify_outcome(case)) for case in report.cases)


def _simplify_outcome(case: CaseResult) -> CaseOutcome:
    """Return a case's outcome. `not_exercised` counts as passed, because repeats do not check for it."""
    return CaseOutcome.PASSED if case.outcome is CaseOutcome.NOT_EXERCISED else case.outcome


def _mark_flaky(reports: Sequence[TestReport]) -> TestReport:
    """Return the first report, with each case marked as flaky if another report contradicts its outcome."""
    cases = []
    for case in reports[0].cases:
        outcomes = [_simplify_outcome(other) for report in reports for other in report.cases if other.name == case.name]
        if len(set(outcomes)) > 1:
            message = f"outcomes differ between runs: {', '.join(outcome.value for outcome in outcomes)}"
            case = CaseResult(name=case.name, outcome=CaseOutcome.ERROR, message=message, cause=Cause.FLAKY)
        cases.append(case)
    flaky_names = [case.name for case in cases if case.cause is Cause.FLAKY]
    statuses = ", ".join(report.status.value for report in reports)
    message = f"the program was run {len(reports)} times with different outcomes ({statuses})"
    if flaky_names:
        message += f"; cases with different outcomes: {', '.join(flaky_names)}"
    return reports[0].model_copy(
        update={"status": Status.ERROR, "cause": Cause.FLAKY, "cases": tuple(cases), "message": message}
    )
