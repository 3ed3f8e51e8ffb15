"""The embedded model: its rules decide labels, and its programs run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ModelError
from agent.languages.python.language import PythonLanguage
from agent.llm.base import Call
from agent.llm.heuristic import BROKEN_FROM, HeuristicModel, compute_overlap
from agent.llm.parsing import parse_program
from agent.types import CaseOutcome, CaseResult, Cause, Simulated, Status, TestReport, Usage

LANGUAGE = PythonLanguage()
ROLES = ("screen", "judge", "arbitrate", "simulate", "generate_test", "repair")
SORT = """\
def sort_list(values):
    '''Sort a list.

    >>> sort_list([2, 1])
    [1, 2]
    '''
    return sorted(values)
"""
RUNNER = """\
import json, sys
names, outcomes = {"__name__": "program", "__file__": __file__}, {}
exec(sys.stdin.read(), names)
for name in [each for each in names if each.startswith("test_")]:
    try:
        names[name]()
        outcomes[name] = "passed"
    except BaseException as error:
        outcomes[name] = type(error).__name__
print(json.dumps(outcomes))
"""


async def get_reply(role: str, query: str, code: str, **more: Any) -> str:
    variables = {"query": query, "code": code, "language": "python", "fence": "python", "marker": LANGUAGE.marker}
    answer = await HeuristicModel().reply(Call(role=role, messages=(), variables={**variables, **more}))
    assert answer.usage == Usage()
    return answer.text


async def parse_answer(role: str, query: str, code: str, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(await get_reply(role, query, code, **more))
    return values


async def run_program(query: str, code: str) -> dict[str, str]:
    """Write a program for the pair, run it in a separate process and return the outcomes of its cases."""
    parsed = parse_program(await get_reply("generate_test", query, code), "python")
    program = LANGUAGE.insert(parsed.template, LANGUAGE.inspect(code))
    return run_source(program.source)


def run_source(source: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "runner.py")
        script.write_text(RUNNER)
        command = [sys.executable, "-I", str(script)]
        process = subprocess.run(command, input=source, capture_output=True, text=True, timeout=60, cwd=folder)
    assert process.returncode == 0, process.stderr
    outcomes: dict[str, str] = json.loads(process.stdout.splitlines()[-1])
    return outcomes


def make_report(status: Status, *names: str, cause: Cause | None = None) -> TestReport:
    outcome = CaseOutcome.PASSED if status is Status.PASSED else CaseOutcome.FAILED
    return TestReport(status=status, cause=cause, cases=tuple(CaseResult(name=name, outcome=outcome) for name in names))


def test_the_overlap_splits_identifiers_and_ignores_inflection_and_filler() -> None:
    assert compute_overlap("how to sort lists in python", "def sort_list(x): pass") == 1.0
    assert compute_overlap("parsing JSON files", "def parseJson(file): pass") == pytest.approx((1 + 1 + 0.8) / 3)
    assert compute_overlap("read a csv", "def f(x): return x") == 0.0
    assert compute_overlap("how to do it", "def f(x): return x") == 0.0


async def test_pairs_without_common_words_are_non_matches_and_others_unclear() -> None:
    assert (await parse_answer("screen", "sort a list", SORT))["verdict"] == "unclear"
    assert (await parse_answer("screen", "open a socket", SORT))["verdict"] == "non_match"


async def test_the_judge_decides_by_overlap_and_criterion() -> None:
    query = "sort a list backwards"
    assert (await parse_answer("judge", query, SORT))["label"] == 1
    assert (await parse_answer("judge", "sort a list backwards twice", SORT))["label"] == 0
    assert (await parse_answer("judge", "sort a list backwards twice", SORT, criterion="half"))["label"] == 1


async def test_the_arbiter_weighs_the_report() -> None:
    async def label(**more: Any) -> int:
        value: int = (await parse_answer("arbitrate", "sort a list backwards twice", SORT, **more))["label"]
        return value

    assert await label() == 0
    assert await label(report=make_report(Status.PASSED, "test_smoke_a")) == 0
    assert await label(report=make_report(Status.PASSED, "test_smoke_a", "test_example_1")) == 1
    assert await label(report=make_report(Status.FAILED, "test_example_1")) == 0
    assert compute_overlap("sort a list backwards", SORT) < BROKEN_FROM
    broken = make_report(Status.ERROR, "test_smoke_a", cause=Cause.SNIPPET)
    assert (await parse_answer("arbitrate", "sort a list backwards", SORT, report=broken))["label"] == 0
    assert (await parse_answer("arbitrate", "sort a list", SORT, report=broken))["label"] == 1
    failing = Simulated(status="failed")
    assert (await parse_answer("arbitrate", "sort a list", SORT, simulated=failing))["label"] == 0


async def test_docstring_examples_become_cases() -> None:
    assert await run_program("sort a list", SORT) == {
        "test_example_1": "passed",
        "test_smoke_takes_plausible_arguments": "passed",
    }
    wrong = await run_program("sort a list", SORT.replace("return sorted(values)", "return values"))
    assert wrong["test_example_1"] == "AssertionError"


@pytest.mark.parametrize(
    "code",
    [
        "def f(n: int, text: str): return text * n",
        "def f(path):\n    with open(path) as file: return file.read()",
        "def f(d, key='a'): return d[key]",
        "def f(self, x): return self.scale(x)",
        "@property\ndef size(self): return len(self.items)",
        "class Stack:\n    def __init__(self, items): self.items = list(items)",
        "def f(x): return unicode(x) + helper(x)",
        "def f(x):\n    try: return json.loads(x)\n    except ParseError: return None",
        "print('a script')",
    ],
)
async def test_a_plausible_call_is_found(code: str) -> None:
    outcomes = await run_program("", code)
    assert outcomes
    assert set(outcomes.values()) == {"passed"}


async def test_a_snippet_that_accepts_no_arguments_raises_its_own_error() -> None:
    assert await run_program("", "def f(x): raise LookupError(x)") == {
        "test_smoke_takes_plausible_arguments": "LookupError"
    }


async def test_a_role_without_a_rule_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="'poet'"):
        await get_reply("poet", "", "")


async def test_tests_in_other_languages_are_refused() -> None:
    with pytest.raises(ModelError, match="'sql'"):
        await get_reply("generate_test", "", "", language="sql")
    assert await get_reply("judge", "", "", language="sql")


@given(st.sampled_from(ROLES), st.text(), st.text())
async def test_the_rules_handle_any_text(role: str, query: str, code: str) -> None:
    assert await get_reply(role, query, code)
