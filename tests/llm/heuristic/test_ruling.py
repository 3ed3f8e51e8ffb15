from __future__ import annotations

from typing import Any

import pytest

from agent.llm.heuristic.repairing import repair_reply
from agent.llm.heuristic.ruling import arbitrate_reply, simulate_reply
from agent.llm.parsing import parse_commands, parse_label, parse_simulation
from agent.types import CaseOutcome, CaseResult, Cause, Simulated, Status, TestReport
from tests.llm.heuristic.running import variables

CLOSE = ("sum of a list", "def sum_of_list(items): return sum(items)")
VAGUE = ("sum of a list", "def tally(items):\n    '''Add up a list.'''\n    return sum(items)")
FAR = ("sum of a list", "def area(radius): return radius")


def report(status: str, cause: str | None = None, **cases: str) -> TestReport:
    results = tuple(CaseResult(name=name, outcome=CaseOutcome(end)) for name, end in cases.items())
    return TestReport(status=Status(status), cause=None if cause is None else Cause(cause), cases=results)


def label(pair: tuple[str, str], outcome: TestReport | None, **more: Any) -> int:
    known = {"program": None, "output": None, "simulated": None, "stand_ins": (), "installed": (), "problem": None}
    return parse_label(arbitrate_reply(variables(*pair, report=outcome, **{**known, **more}))).label


def test_without_a_report_the_overlap_decides() -> None:
    assert label(CLOSE, None) == 1
    assert label(FAR, None) == 0


@pytest.mark.parametrize("cause", ["program", "dependency", "sandbox", "flaky"])
def test_a_report_that_does_not_speak_of_the_snippet_is_not_held_against_it(cause: str) -> None:
    assert label(CLOSE, report("error", cause, test_oracle_x="not_run")) == 1
    assert label(FAR, report("error", cause, test_oracle_x="not_run")) == 0


def test_a_failed_case_is_0_however_close_the_words() -> None:
    assert label(CLOSE, report("failed", "snippet", test_oracle_x="failed")) == 0
    assert label(CLOSE, report("failed", "snippet", test_smoke_x="failed")) == 0


def test_the_answers_of_the_query_outweigh_a_moderate_overlap() -> None:
    assert label(VAGUE, report("passed", test_oracle_x="passed", test_smoke_x="passed")) == 1
    assert label(FAR, report("passed", test_oracle_x="passed")) == 0


def test_running_alone_proves_nothing() -> None:
    far = ("sum of a list of prices", "def total(x):\n    return sum(x)")
    assert label(far, report("passed", test_smoke_x="passed")) == 0
    assert label(CLOSE, report("passed", test_smoke_x="passed")) == 1


def test_cases_of_another_author_count_as_answers() -> None:
    assert label(VAGUE, report("passed", test_adds_numbers="passed")) == 1


def test_a_crash_on_guessed_arguments_needs_a_strong_overlap() -> None:
    crash = report("error", "snippet", test_smoke_x="error")
    assert label(CLOSE, crash) == 1
    assert label(("sum of a list of prices", CLOSE[1]), crash) == 0


def test_a_crash_on_the_querys_own_arguments_is_0() -> None:
    assert label(CLOSE, report("error", "snippet", test_oracle_x="error", test_smoke_x="passed")) == 0


def test_a_predicted_failure_is_believed() -> None:
    assert label(CLOSE, None, simulated=Simulated(status="failed")) == 0
    assert label(CLOSE, None, simulated=Simulated(status="passed")) == 1


def test_the_reason_names_rule_and_evidence() -> None:
    failed = variables(*CLOSE, report=report("failed", "snippet", test_oracle_sum_1="failed"), simulated=None)
    reason = parse_label(arbitrate_reply(failed)).reason
    assert reason.startswith("rule: what the query asks for failed (test_oracle_sum_1); word overlap 1.00")


def test_the_simulation_goes_by_overlap() -> None:
    assert parse_simulation(simulate_reply(variables(*CLOSE, program=""))).status == "passed"
    assert parse_simulation(simulate_reply(variables(*FAR, program=""))).status == "failed"


def commands(outcome: TestReport, **more: Any) -> tuple[str, ...]:
    known: dict[str, Any] = {"program": "", "output": None, "installed": (), "round": 1, "history": ()}
    reply = repair_reply(variables(*CLOSE, report=outcome, **{**known, **more}))
    return tuple(parse_commands(reply))


def lacking(*modules: str) -> TestReport:
    message = "; ".join(f"ModuleNotFoundError: No module named '{module}'" for module in modules)
    return TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY, message=message)


def test_modules_with_a_well_known_distribution_are_installed_together() -> None:
    assert commands(lacking("cv2", "yaml.nodes", "cv2")) == ("pip install opencv-python-headless pyyaml",)


def test_the_output_is_read_too() -> None:
    assert commands(lacking(), output="ImportError: No module named bs4") == ("pip install beautifulsoup4",)


def test_unknown_modules_and_other_causes_give_no_command() -> None:
    assert commands(lacking("leftpad_internal")) == ()
    assert commands(report("error", "program", test_x="error")) == ()


def test_what_was_tried_is_not_tried_again() -> None:
    history = ({"command": "pip install pyyaml", "outcome": "failed", "output": ""},)
    assert commands(lacking("yaml"), history=history) == ()
    assert commands(lacking("yaml", "six"), history=history) == ("pip install six",)
