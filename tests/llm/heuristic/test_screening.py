from __future__ import annotations

import pytest

from agent.llm.heuristic.screening import JUDGE_FROM, judge_reply, screen_reply
from agent.llm.parsing import parse_label, parse_screen
from tests.llm.heuristic.running import variables


def verdict(query: str, code: str) -> str:
    return parse_screen(screen_reply(variables(query, code))).verdict


def test_code_without_a_word_of_the_query_is_no_match() -> None:
    assert verdict("open serial port", "def area(radius): return 3.14 * radius ** 2") == "non_match"


def test_code_that_can_be_tested_is_left_to_a_test_however_well_it_sounds() -> None:
    assert verdict("flatten a list", "def flatten_list(lst): return sum(lst, [])") == "unclear"


def test_code_that_no_sandbox_can_test_matches_on_full_overlap() -> None:
    code = "def open_serial_port(port):\n    return serial.Serial(port)"
    assert verdict("open serial port", code) == "match"
    assert verdict("open serial port of the printer", code) == "unclear"


def test_the_reason_states_the_rule_and_what_is_missing() -> None:
    reply = parse_screen(screen_reply(variables("sort words by length", "def sort_words(words): return sorted(words)")))
    assert reply.reason.startswith("rule: word overlap ")
    assert "without len" in reply.reason


@pytest.mark.parametrize(("code", "label"), [("def sum_of_list(items): pass", 1), ("def mean(items): pass", 0)])
def test_the_judge_goes_by_overlap(code: str, label: int) -> None:
    assert parse_label(judge_reply(variables("sum of a list", code))).label == label


def test_the_wider_criterion_asks_for_less_overlap() -> None:
    assert JUDGE_FROM["half"] < JUDGE_FROM["exact"]
    query, code = (
        "read csv rows and email a blue histogram chart",
        "def read_rows(path): return list(csv.reader(open(path)))",
    )
    labels = [
        parse_label(judge_reply(variables(query, code, criterion=criterion))).label for criterion in ("exact", "half")
    ]
    assert labels == [0, 1]
