"""Replies are read into values or refused with a cause; a label is never guessed."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.llm import parsing
from agent.llm.parsing import Unparsable


@pytest.mark.parametrize(
    "text",
    [
        '{"reason": "r", "label": 1}',
        '```json\n{"reason": "r", "label": 1}\n```',
        'Let me see.\n\n{"reason": "r", "label": "1"}\n',
        '<think>{"label": 0} perhaps</think>{"reason": "r", "label": 1, "more": [1]}',
    ],
)
def test_a_label_is_read(text: str) -> None:
    assert parsing.parse_label(text).label == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "the label is 1",
        '{"reason": "r"}',
        '{"label": true}',
        '{"label": 1.0}',
        '{"label": 2}',
        '{"label": null}',
        '{"label": 1, "label": 0}',
        '{"reason": "a", "label": 1}\n{"reason": "b", "label": 0}',
        '{"reason": "cut off", "lab',
    ],
)
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(Unparsable) as refused:
        parsing.parse_label(text)
    assert str(refused.value)


@pytest.mark.parametrize("written", ["non_match", "non-match", "Non Match", "NON_MATCH", "no match"])
def test_a_verdict_may_be_spelled_in_several_ways(written: str) -> None:
    assert parsing.parse_screen(json.dumps({"reason": "", "verdict": written})).verdict == "non_match"


def test_a_program_is_read_with_its_stand_ins() -> None:
    text = '```json\n{"reading": "a sum", "stand_ins": ["Thing"]}\n```\n```python\nx = "```"\n```\n'
    reply = parsing.parse_program(text, "python")
    assert (reply.template.strip(), reply.stand_ins, reply.reading) == ('x = "```"', ("Thing",), "a sum")


@pytest.mark.parametrize(
    "text",
    [
        "no block",
        "```python\nx = 1",
        "```python\nx = 1\n```\n```python\ny = 2\n```",
        "```python\n```",
    ],
)
def test_what_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(Unparsable):
        parsing.parse_program(text, "python")


def test_commands_are_lines_of_one_block() -> None:
    assert parsing.parse_commands("Try:\n```bash\npip install a\n\nmkdir b\n```") == ("pip install a", "mkdir b")


def test_an_empty_block_is_no_command() -> None:
    assert parsing.parse_commands("Nothing helps.\n```bash\n```") == ()


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parsing.parse_screen, parsing.parse_label, parsing.parse_simulation, parsing.parse_commands):
        with suppress(Unparsable):
            parse(text)
    with suppress(Unparsable):
        parsing.parse_program(text, "python")


@given(st.integers(), st.text(), st.text(alphabet="abc {}\n"))
def test_a_written_label_comes_back_or_is_refused(label: int, reason: str, around: str) -> None:
    with suppress(Unparsable):
        assert (
            parsing.parse_label(around.replace("{", "") + json.dumps({"reason": reason, "label": label})).label == label
        )


@pytest.mark.parametrize("role", ["screen", "judge", "arbitrate", "simulate"])
def test_a_json_role_has_a_schema(role: str) -> None:
    schema = parsing.schema_of(role)
    assert schema is not None
    assert "reason" in schema["properties"]


@pytest.mark.parametrize("role", ["generate_test", "repair"])
def test_a_text_role_has_none(role: str) -> None:
    assert parsing.schema_of(role) is None
