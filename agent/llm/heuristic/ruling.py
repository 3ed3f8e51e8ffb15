"""The arbiter's and the simulated executor's rules: what a test is worth, and what words say beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent.llm.heuristic.generation import EXAMPLE, ORACLE, SMOKE, TYPE
from agent.llm.heuristic.screening import judge_from, met, overlap_of, shown
from agent.types import CaseOutcome, Cause, Simulated, Status, TestReport

PASSED_ORACLE_FROM = 0.2
"""Overlap that is enough when the code gave the answers that the query asks for."""

PASSED_EXAMPLE_FROM = 0.5
"""Overlap that is enough when the code does what its docstring shows."""

CRASHED_FROM = 0.8
"""Overlap that outweighs a snippet that raised, hung or does not parse: arguments were guesses."""

CLOSE = 0.05
"""Distance from the threshold within which words alone do not decide, where the arbiter may abstain."""

_FAILED_WORTH = (ORACLE, TYPE)
_OWN = (ORACLE, EXAMPLE, TYPE, SMOKE)


def arbitrate_reply(variables: Mapping[str, Any]) -> str:
    """Answer `arbitrate`.

    Rule, in this order:

    1. No report, or one that speaks of program, dependency, sandbox or flakiness: the overlap alone, as for `judge`; a
       simulated outcome other than `passed` makes it 0.
    2. A case that states the query's answer or type failed, or any case failed: 0.
    3. The snippet raised, hung or does not parse: 0 when an oracle's case did; otherwise 1 from `CRASHED_FROM` on.
    4. Passed: with an oracle 1 from `PASSED_ORACLE_FROM` on; with docstring examples from `PASSED_EXAMPLE_FROM` on;
       with cases of another author likewise as an oracle; with smoke cases alone as for `judge`.

    Where it may abstain it does so in case 1, when nothing was predicted and the overlap is within `CLOSE`.
    """
    label, rule = _rule(variables)
    reason = f"rule: {rule}; {shown(overlap_of(variables))}"
    if variables.get("may_abstain") and not _spoken(variables) and _is_close(variables):
        return json.dumps({"reason": f"{reason}; too close to tell", **met(variables, False), "label": None})
    return json.dumps({"reason": reason, **met(variables, label == 1), "label": label})


def _spoken(variables: Mapping[str, Any]) -> bool:
    """Say whether a test, real or predicted, speaks of the code."""
    report: TestReport | None = variables.get("report")
    says_nothing = report is None or report.cause not in (None, Cause.SNIPPET)
    return not says_nothing or variables.get("simulated") is not None


def _is_close(variables: Mapping[str, Any]) -> bool:
    return abs(overlap_of(variables).score - judge_from(variables)) < CLOSE


def _rule(variables: Mapping[str, Any]) -> tuple[int, str]:
    report: TestReport | None = variables.get("report")
    score, least = overlap_of(variables).score, judge_from(variables)
    if report is None or report.cause in (Cause.PROGRAM, Cause.DEPENDENCY, Cause.SANDBOX, Cause.FLAKY):
        return _without_test(variables, score, least, report)
    if report.status is Status.FAILED:
        failed = [case.name for case in report.cases if case.outcome is CaseOutcome.FAILED]
        kind = "what the query asks for" if any(_is(name, _FAILED_WORTH) for name in failed) else "a case"
        return 0, f"{kind} failed ({', '.join(failed[:3])})"
    if report.status is Status.PASSED:
        return _passed(report, score, least)
    if any(_is(case.name, (ORACLE,)) and case.outcome is CaseOutcome.ERROR for case in report.cases):
        return 0, "the snippet did not take the arguments that the query implies"
    return int(score >= CRASHED_FROM), f"the snippet broke ({report.status.value}); 1 needs overlap {CRASHED_FROM}"


def _without_test(
    variables: Mapping[str, Any], score: float, least: float, report: TestReport | None
) -> tuple[int, str]:
    simulated: Simulated | None = variables.get("simulated")
    if simulated is not None and simulated.status != "passed":
        return 0, f"the predicted outcome is {simulated.status}"
    cause = None if report is None else report.cause
    why = "no test" if cause is None else f"the test says nothing, cause {cause.value}"
    return int(score >= least), f"{why}; 1 needs overlap {least}"


def _passed(report: TestReport, score: float, least: float) -> tuple[int, str]:
    names = [case.name for case in report.cases]
    if any(_is(name, (ORACLE,)) or not _is(name, _OWN) for name in names):
        return int(score >= PASSED_ORACLE_FROM), f"the query's answers came out; 1 needs overlap {PASSED_ORACLE_FROM}"
    if any(_is(name, (EXAMPLE,)) for name in names):
        return int(
            score >= PASSED_EXAMPLE_FROM
        ), f"the docstring's examples hold; 1 needs overlap {PASSED_EXAMPLE_FROM}"
    return int(score >= least), f"it runs, which says little; 1 needs overlap {least}"


def _is(name: str, beginnings: tuple[str, ...]) -> bool:
    return name.rpartition(".")[2].startswith(beginnings)


def simulate_reply(variables: Mapping[str, Any]) -> str:
    """Answer `simulate`: `passed` when the overlap is at least what `judge` asks for, else `failed`."""
    overlap, least = overlap_of(variables), judge_from(variables)
    status = "passed" if overlap.score >= least else "failed"
    return json.dumps({"reason": f"rule: {shown(overlap)}; passing needs {least}", "status": status})
