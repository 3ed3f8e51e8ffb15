"""Programs in JavaScript have their verdicts in both sandboxes."""

from __future__ import annotations

import pytest

from agent.languages.base import MalformedProgram
from agent.languages.javascript.language import JavaScriptLanguage
from agent.pipeline.nodes.execute import mark_unexercised
from agent.sandbox.base import SandboxBackend
from agent.types import CaseOutcome, Status
from tests.languages.javascript.programs import PROGRAMS
from tests.sandbox.conftest import run_once

pytestmark = pytest.mark.node
JAVASCRIPT = JavaScriptLanguage()


async def judge(backend: SandboxBackend, template: str, code: str, timeout: float) -> str:
    """Return the status and the cause of a program, followed by its introspection."""
    snippet = JAVASCRIPT.inspect(code)
    if snippet.problem is not None:
        return f"refused {snippet.cause}"
    try:
        program = JAVASCRIPT.insert(template, snippet)
    except MalformedProgram:
        return "refused"
    assert code in program.source
    job = JAVASCRIPT.job(program, environment=None, timeout=timeout)
    report = JAVASCRIPT.report(program, await run_once(backend, job))
    sentinel = JAVASCRIPT.sentinel_job(program, environment=None, timeout=timeout)
    if report.status is Status.PASSED and sentinel is not None:
        report = mark_unexercised(report, JAVASCRIPT.report(program, await run_once(backend, sentinel)))
    if all(case.outcome is CaseOutcome.NOT_EXERCISED for case in report.cases):
        return "not_exercised"
    return " ".join([report.status, *([report.cause] if report.cause else []), *report.introspection])


@pytest.mark.parametrize(
    ("template", "code", "expected"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
async def test_the_programs_have_their_verdicts(
    backend: SandboxBackend, template: str, code: str, expected: str
) -> None:
    await backend.require_toolchain(JAVASCRIPT.toolchain)
    assert await judge(backend, template, code, 3 if "timeout" in expected else 20) == expected
