"""Test Executor (paper, section IV-C c): runs the program in the pair's own sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent.history import Execution, Mutant, Program, Purpose
from agent.sandbox.base import Environment, Job, RunResult
from agent.state import Node, State, Step, Tools
from agent.types import Cause, TestReport


class Execute(Node):
    """Run the program once; what it shows of the snippet is evidence, what it shows of itself is broken.

    A sandbox is not kept for what comes after: a model may be asked, and a repaired program is to find what it finds
    when it is run again alone, which is what the commands made and not what the broken one left.
    """

    name = "execute"
    requires = frozenset({"program"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "evidence": frozenset({"report", "result"}),
        "broken": frozenset({"report", "result"}),
    }
    uses_sandbox = True
    settings = frozenset({"test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the execution report."""
        program, environment = state["program"], state.get("environment")
        if environment is None:
            environment = await tools.sandbox.first_environment()
        result, report = await run_program(program, job_for(program, environment, tools), environment, tools)
        await tools.sandbox.renew()
        broken = report.cause in (Cause.PROGRAM, Cause.DEPENDENCY)
        update: State = {"report": report, "result": result}
        if environment is not None:
            update["environment"] = environment
        return Step("broken" if broken else "evidence", update)


async def run_program(
    program: Program,
    job: Job,
    environment: Environment | None,
    tools: Tools,
    *,
    purpose: Purpose = "test",
    mutant: tuple[Mutant, Program] | None = None,
) -> tuple[RunResult, TestReport]:
    """Run a program, or what it is with a mutant in the snippet's place, and take down what came of it.

    Raises:
        SandboxError: every sandbox tried broke.
    """
    result = await tools.sandbox.run(job)
    report = tools.language.report(program if mutant is None else mutant[1], result)
    outcome = report if mutant is None else TestReport(status=report.status, cause=report.cause)
    tools.history.add(
        Execution(
            program=tools.history.number_of(program),
            purpose=purpose,
            mutant=None if mutant is None else mutant[0],
            report=outcome,
            environment=job.environment,
            installed=() if environment is None else environment.installed,
            exit_code=result.exit_code,
            signal=result.signal,
            timed_out=result.timed_out,
            stdout=result.stdout if mutant is None else "",
            stderr=result.stderr if mutant is None else "",
            seconds=result.seconds,
            shared=result.shared,
        )
    )
    return result, report


def job_for(program: Program, environment: Environment | None, tools: Tools) -> Job:
    """Return what a sandbox runs for a program in an environment."""
    return tools.language.job(
        program, environment=None if environment is None else environment.key, timeout=tools.config.test_timeout
    )
