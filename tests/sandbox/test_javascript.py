"""Programs in JavaScript and TypeScript have their verdicts in both sandboxes."""

from __future__ import annotations

import secrets

import pytest

from agent.languages.base import MalformedProgram
from agent.languages.javascript.language import JavaScriptLanguage, TypeScriptLanguage
from agent.pipeline.nodes.execute import mark_unexercised
from agent.sandbox.base import SandboxBackend
from agent.types import CaseOutcome, Cause, Status
from tests.languages.javascript.programs import ASSERT, ESM, MARKER, PROGRAMS, TYPED, TYPESCRIPT_PROGRAMS, T
from tests.sandbox.conftest import run_once
from tests.sandbox.stores import run_in_store

pytestmark = pytest.mark.node
JAVASCRIPT, TYPESCRIPT = JavaScriptLanguage(), TypeScriptLanguage()
LAZY = f"{ASSERT}{MARKER}async function test_a() {{ await import('@a/b'); assert.equal(f(2), 3); }}\n"


@pytest.fixture(scope="module", autouse=True)
async def _node(backend: SandboxBackend) -> None:
    await backend.require_toolchain(TYPESCRIPT.toolchain)


async def judge(
    backend: SandboxBackend, template: str, code: str, timeout: float, language: JavaScriptLanguage = JAVASCRIPT
) -> str:
    """Return the status and the cause of a program, followed by its introspection."""
    snippet = language.inspect(code)
    if snippet.problem is not None:
        return f"refused {snippet.cause}"
    try:
        program = language.insert(template, snippet)
    except MalformedProgram:
        return "refused"
    assert code in program.source
    result = await run_once(backend, language.job(program, environment=None, timeout=timeout))
    report = language.report(program, result)
    sentinel = language.sentinel_job(program, environment=None, timeout=timeout)
    if report.status is Status.PASSED and sentinel is not None:
        assert result.stderr == ""  # where Node announces its inspector
        report = mark_unexercised(report, language.report(program, await run_once(backend, sentinel)))
    if all(case.outcome is CaseOutcome.NOT_EXERCISED for case in report.cases):
        return "not_exercised"
    return " ".join([report.status, *([report.cause] if report.cause else []), *report.introspection])


@pytest.mark.parametrize(
    ("template", "code", "expected"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
async def test_the_programs_have_their_verdicts(
    backend: SandboxBackend, template: str, code: str, expected: str
) -> None:
    assert await judge(backend, template, code, 3 if "timeout" in expected else 20) == expected


@pytest.mark.parametrize(("code", "expected"), TYPESCRIPT_PROGRAMS)
async def test_node_removes_types(backend: SandboxBackend, code: str, expected: str) -> None:
    assert await judge(backend, TYPED, code, 20, TYPESCRIPT) == expected


@pytest.mark.parametrize(
    ("template", "load"), [(T, "require('@a/b')"), (ESM, "require('@a/b')"), (ESM, "await import('@a/b')"), (LAZY, "0")]
)
async def test_programs_import_packages_of_their_environment(backend: SandboxBackend, template: str, load: str) -> None:
    folder = f"node-{secrets.token_hex(4)}/node_modules/@a/b"
    await run_in_store(backend, f"mkdir -p {folder} && echo exports.one = 1 > {folder}/index.js")
    code = f"const {{ one = 1 }} = {load};\nfunction f(x) {{ return x + one; }}"
    program = JAVASCRIPT.insert(template, JAVASCRIPT.inspect(code))
    assert program.imports == ("@a/b",)
    job = JAVASCRIPT.job(program, environment=None, timeout=20)
    result = await run_once(backend, job)
    assert JAVASCRIPT.report(program, result).cause is Cause.DEPENDENCY
    assert JAVASCRIPT.missing(program, result) == ("@a/b",)
    result = await run_once(backend, job, folder.partition("/")[0])
    assert JAVASCRIPT.report(program, result).status is Status.PASSED
