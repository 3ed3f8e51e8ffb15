"""Flakiness: a program whose outcome depends on time, chance or order says nothing of the snippet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from agent.nodes.execute import build_job, run_program
from agent.sandbox.base import HASH_SEED
from agent.state import Node, State, Step, Tools
from agent.types import CaseOutcome, CaseResult, Cause, Status, TestReport

_PATIENCE = 2
"""How many times as long as the first a further run may take."""


class CheckFlakiness(Node):
    """Run a program again; the runs must agree case by case.

    `flakiness_runs` in all, each in a fresh sandbox (what an earlier one wrote is no flakiness) and with another seed
    of hashes, which decides the order of sets. A program that took all its time is not run again; the others have more
    of it than the first time, so that a busy machine makes no test flaky.
    """

    name = "check_flakiness"
    requires = frozenset({"program", "report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"steady": frozenset(), "flaky": frozenset({"report"})}
    bypass = "steady"
    uses_sandbox = True
    settings = frozenset({"flakiness_runs", "test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return `flaky` with a report of cause `flaky` when two runs ended differently."""
        if state["report"].status is Status.TIMEOUT or state["report"].cause is Cause.PROGRAM:
            return Step("steady", {})
        again = [await self._run_again(state, tools, seed) for seed in range(1, tools.config.flakiness_runs)]
        reports = [state["report"], *again]
        await tools.sandbox.renew()
        if all(_summarise(report) == _summarise(reports[0]) for report in reports):
            return Step("steady", {})
        return Step("flaky", {"report": _mark_flaky(reports)})

    async def _run_again(self, state: State, tools: Tools, seed: int) -> TestReport:
        program, environment = state["program"], state.get("environment")
        job = build_job(program, environment, tools)
        await tools.sandbox.renew()
        # with a seed of its own it is another job, so that no remembered run stands for two of these
        again = replace(job, options={**job.options, HASH_SEED: str(seed)}, timeout=_PATIENCE * job.timeout)
        return (await run_program(program, again, environment, tools, purpose="repeat"))[1]


def _summarise(report: TestReport) -> tuple[object, ...]:
    return report.status, report.cause, tuple((case.name, _simplify_outcome(case)) for case in report.cases)


def _simplify_outcome(case: CaseResult) -> CaseOutcome:
    """Return how a case ended; whether it ran the snippet was looked at once."""
    return CaseOutcome.PASSED if case.outcome is CaseOutcome.NOT_EXERCISED else case.outcome


def _mark_flaky(reports: Sequence[TestReport]) -> TestReport:
    """Return the first report with what the others contradict marked as flaky."""
    cases = []
    for case in reports[0].cases:
        outcomes = [_simplify_outcome(each) for report in reports for each in report.cases if each.name == case.name]
        if len(set(outcomes)) > 1:
            message = f"ended differently each time: {', '.join(outcome.value for outcome in outcomes)}"
            case = CaseResult(name=case.name, outcome=CaseOutcome.ERROR, message=message, cause=Cause.FLAKY)
        cases.append(case)
    different = [case.name for case in cases if case.cause is Cause.FLAKY]
    ended = ", ".join(report.status.value for report in reports)
    message = f"the same program was run {len(reports)} times and ended differently ({ended})"
    if different:
        message += f"; cases that differ: {', '.join(different)}"
    return reports[0].model_copy(
        update={"status": Status.ERROR, "cause": Cause.FLAKY, "cases": tuple(cases), "message": message}
    )
