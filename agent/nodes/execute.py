"""Test Executor (paper, section IV-C c): runs the program in the pair's own sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent.evidence import Execution
from agent.languages.base import Program
from agent.sandbox.base import Environment, Job
from agent.state import State, Step, Tools
from agent.types import Cause


class Execute:
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
    bypass = None
    uses_sandbox = True
    settings = frozenset({"test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the execution report."""
        program, environment = state["program"], state.get("environment")
        if environment is None:
            environment = await tools.sandbox.first_environment()
        job = job_for(program, environment, tools)
        result = await tools.sandbox.run(job)
        await tools.sandbox.renew()
        report = tools.language.report(program, result)
        execution = Execution(
            source=program.source,
            layout=program.layout(),
            exchanges_before=len(tools.asker.exchanges),
            commands_before=len(state.get("commands", ())),
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
        broken = report.cause in (Cause.PROGRAM, Cause.DEPENDENCY)
        update: State = {"report": report, "result": result, "executions": (*state.get("executions", ()), execution)}
        if environment is not None:
            update["environment"] = environment
        return Step("broken" if broken else "evidence", update)


def job_for(program: Program, environment: Environment | None, tools: Tools) -> Job:
    """Return what a sandbox runs for a program in an environment."""
    return tools.language.job(
        program, environment=None if environment is None else environment.key, timeout=tools.config.test_timeout
    )
