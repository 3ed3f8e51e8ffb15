"""Test Executor (CoSQA+ paper, section IV-C c): runs the program in the pair's own sandbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from agent.languages.canonical import canonicalise
from agent.pipeline.history import Command, Execution, Program, Purpose
from agent.pipeline.state import Node, State, Step, Tools
from agent.sandbox.base import Environment, RunResult, SandboxJob
from agent.types import CaseOutcome, CaseResult, Cause, Status, TestReport

_PASSES_ANYWAY = "it still passes when the snippet's functions raise"
_FAILS_ANYWAY = "it also fails when the snippet's functions raise"
_NOT_IMPORTED = "the snippet's module cannot be imported if its functions raise, so it may not run the snippet"
_PROGRAM_FAILS = "a case fails without running the snippet"
_NO_CASE = "no case exercised the snippet: every case still passes when the snippet's functions raise"
_WEAKNESS = (
    "The test cases did not run the code under test: it was replaced, or nothing called it. Call the code itself. Do "
    "not define, import, patch or replace the code or any of its methods anywhere in the program."
)


class Execute(Node):
    """Run the program.

    The outcome is `evidence` if the snippet caused the result, or `broken` if the program or a dependency did.

    A program that passed is run again with a snippet whose functions only raise an exception. A case that passes again
    never ran the snippet and provides no evidence. In the snippet's module, the same applies to cases that fail. If no
    case ran the snippet, or if the program replaced it, the program is rewritten once. `weakness` states the reason.

    The sandbox is released before the next step, which may be a model call. A repaired program therefore starts
    under the same conditions as in a separate run: the results of the repair commands are present, but files from the
    broken program are not.
    """

    name = "execute"
    requires = frozenset({"program"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "evidence": frozenset({"report", "result"}),
        "broken": frozenset({"report", "result"}),
        "not_exercised": frozenset({"report", "result", "weakness"}),
    }
    uses_sandbox = True
    settings = frozenset({"test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the execution report."""
        program, environment = state["program"], state.get("environment")
        if environment is None:
            environment = await tools.sandbox.build_initial_environment()
        job = build_job(program, environment, tools)
        result, report = await run_program(program, job, environment, tools)
        # a module can call other code in place of the snippet, so that its failures prove nothing either
        if report.status is Status.PASSED or (report.status is Status.FAILED and "module" in state):
            await tools.sandbox.refresh()
            sentinel = tools.language.sentinel_job(program, environment=job.environment, timeout=job.timeout)
            if sentinel is not None:
                report = mark_unexercised(
                    report, (await run_program(program, sentinel, environment, tools, purpose="sentinel"))[1]
                )
        await tools.sandbox.renew()
        update: State = {"report": report, "result": result}
        if environment is not None:
            update["environment"] = environment
        if _is_not_exercised(report):
            is_first = "weakness" not in state
            weakness = _WEAKNESS if "module" not in state else _WEAKNESS.replace("import, ", "")
            return Step("not_exercised", {**update, "weakness": weakness}) if is_first else Step("evidence", update)
        return Step("broken" if report.cause in (Cause.PROGRAM, Cause.DEPENDENCY) else "evidence", update)


async def run_program(
    program: Program,
    job: SandboxJob,
    environment: Environment | None,
    tools: Tools,
    *,
    purpose: Purpose = "test",
) -> tuple[RunResult, TestReport]:
    """Run a program and record the outcome.

    Raises:
        SandboxError: every sandbox attempt failed.
    """
    result = await tools.sandbox.run(job)
    report = tools.language.report(program, result)
    tools.history.add(
        Execution(
            program=tools.history.number_program(program),
            purpose=purpose,
            report=report,
            environment=job.environment,
            installed=() if environment is None else environment.installed,
            exit_code=result.exit_code,
            signal=result.signal,
            timed_out=result.timed_out,
            stdout=result.stdout,
            stderr=result.stderr,
            seconds=result.seconds,
            shared=result.shared,
        )
    )
    return result, report


def build_job(program: Program, environment: Environment | None, tools: Tools) -> SandboxJob:
    """Return the sandbox job for a program in an environment."""
    return tools.language.job(
        program, environment=None if environment is None else environment.key, timeout=tools.config.test_timeout
    )


def mark_unexercised(report: TestReport, sentinel: TestReport) -> TestReport:
    """In the report of a passed or failed test, mark the cases that ended in the same way in the sentinel run.

    In the sentinel run, the snippet's functions only raise an exception. Cases that did not enter the snippet in that
    run are marked as well, if the language records entries. All cases are marked if the snippet's module could not be
    imported in that run. If all cases, or all failed cases, are marked, the status of the report becomes `error`,
    because the program is at fault.
    """
    outcomes = {case.name: case.outcome for case in sentinel.cases}
    messages = {CaseOutcome.PASSED: _PASSES_ANYWAY, CaseOutcome.FAILED: _FAILS_ANYWAY}
    is_imported = sentinel.cause is not Cause.CONTEXT

    def mark(case: CaseResult) -> CaseResult:
        is_same = not is_imported or outcomes.get(case.name) in (case.outcome, CaseOutcome.NOT_EXERCISED)
        if not is_same or case.outcome not in messages:
            return case
        message = messages[case.outcome] if is_imported else _NOT_IMPORTED
        return CaseResult(name=case.name, outcome=CaseOutcome.NOT_EXERCISED, message=message)

    marked = report.model_copy(update={"cases": tuple(map(mark, report.cases))})
    if _is_not_exercised(marked):
        return marked.model_copy(update={"status": Status.ERROR, "cause": Cause.PROGRAM, "message": _NO_CASE})
    if report.failed and not marked.failed:
        return marked.model_copy(update={"status": Status.ERROR, "cause": Cause.PROGRAM, "message": _PROGRAM_FAILS})
    return marked


def explain_dependency(report: TestReport, commands: Iterable[Command]) -> TestReport:
    """Add the failed installations to the message of a report. Changes only reports with the cause `dependency`."""
    failures = [
        f"{step.command} failed: {step.output}"
        for step in commands
        if step.outcome == "failed" and step.command.startswith(("pip install", "npm install"))
    ]
    if report.cause is not Cause.DEPENDENCY or not failures:
        return report
    return report.model_copy(update={"message": canonicalise("\n".join([report.message, *failures]).strip())})


def _is_not_exercised(report: TestReport) -> bool:
    return bool(report.cases) and all(case.outcome is CaseOutcome.NOT_EXERCISED for case in report.cases)
