"""The committed programs have their verdicts when Node runs them directly."""

from __future__ import annotations

import pytest

from agent.languages.base import Language, MalformedProgram
from agent.languages.javascript.language import JavaScriptLanguage
from agent.types import CaseOutcome
from tests.languages.javascript.direct import run_program
from tests.languages.javascript.programs import PROGRAMS

pytestmark = pytest.mark.bwrap


def judge(language: Language, template: str, code: str, timeout: float) -> str:
    snippet = language.inspect(code)
    if snippet.problem is not None:
        return f"refused {snippet.cause}"
    try:
        program = language.insert(template, snippet)
    except MalformedProgram:
        return "refused"
    assert code in program.source
    _, report = run_program(language, program, timeout=timeout)
    if all(case.outcome is CaseOutcome.NOT_EXERCISED for case in report.cases):
        return "not_exercised"
    return " ".join([report.status, *([report.cause] if report.cause else []), *report.introspection])


@pytest.mark.parametrize(
    ("template", "code", "expected"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_the_programs_have_their_verdicts(template: str, code: str, expected: str) -> None:
    assert judge(JavaScriptLanguage(), template, code, 3 if "timeout" in expected else 20) == expected
