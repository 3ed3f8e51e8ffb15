"""Replies are parsed or rejected with a cause; a label is never guessed."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from agent.llm import parsing
from agent.llm.parsing import UnreadableReply, is_blank, strip_thinking


@pytest.mark.parametrize(
    "text",
    [
        '{"reason": "r", "label": 1}',
        'Let me see.\n\n{"reason": "r", "label": "1"}\n',
        '<think>{"label": 0} perhaps</think>{"reason": "r", "label": 1, "more": [1]}',
        'as\n```json\n{"label": 0}\n```\nor so\n</thinking>\n\n{"reason": "r", "label": 1}',
        '{"reason": "it takes </think> out", "label": 1}',
        '```json\n{"reason": "it takes </think>{\\"label\\": 0} out", "label": 1}\n```',
    ],
)
def test_a_label_is_parsed(text: str) -> None:
    assert parsing.parse_label(text).label == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the label is 1",
        '{"label": true}',
        '{"label": null}',
        '{"label": "undecided"}',
        '{"label": 2}',
        '{"label": 1, "label": 0}',
        '{"reason": "a", "label": 1}\n{"reason": "b", "label": 0}',
        '{"reason": "cut off", "lab',
        '{"reason": "it is "good" at </think>", "label": 0}',
        'perhaps {"label": 1}</think>',
        '{"label": 1}</think>{"label": 0}</think>',
    ],
)
def test_anything_but_a_label_is_rejected(text: str) -> None:
    with pytest.raises(UnreadableReply) as error:
        parsing.parse_label(text)
    assert str(error.value)


@pytest.mark.parametrize("written", ["non_match", "non-match", "Non Match", "NON_MATCH", "no match"])
def test_spellings_of_a_verdict_are_normalised(written: str) -> None:
    assert parsing.parse_screen(json.dumps({"reason": "", "verdict": written})).verdict == "non_match"


def test_a_program_is_parsed_with_its_stand_ins() -> None:
    text = '```json\n{"reading": "a sum", "stand_ins": ["Thing\\ud800"]}\n```\n```python\nx = "```"\n```\n'
    reply = parsing.parse_program(text, "python")
    assert (reply.template.strip(), reply.stand_ins, reply.reading) == ('x = "```"', ("Thing\ufffd",), "a sum")


@pytest.mark.parametrize(
    "text", ["no block", "```python\nx = 1", "```python\nx = 1\n```\n```python\ny = 2\n```", "```python\n```"]
)
def test_anything_but_a_program_is_rejected(text: str) -> None:
    with pytest.raises(UnreadableReply):
        parsing.parse_program(text, "python")


def test_commands_are_the_nonblank_lines_of_a_block() -> None:
    assert parsing.parse_commands("Try:\n```bash\npip install a\n\nmkdir b\n```") == ("pip install a", "mkdir b")
    assert parsing.parse_commands("Nothing helps.\n```bash\n```") == ()


@given(st.text())
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    every = (parsing.parse_screen, parsing.parse_label, parsing.parse_simulation)
    for parse in (*every, parsing.parse_commands):
        with suppress(UnreadableReply):
            parse(text)
    with suppress(UnreadableReply):
        parsing.parse_program(text, "python")


_PIECES = st.lists(
    st.sampled_from(
        ['{"label": 1}', "{", '"', "}", "```json\n", "```\n", "<think>", "<thinking>", "think>", "</", "`", "\n"]
    )
).map("".join)


@given(_PIECES.filter(lambda text: not text.lstrip().startswith("<think")))
def test_text_without_a_closing_tag_is_returned_unchanged(text: str) -> None:
    assume("</think>" not in text)
    assert strip_thinking(text) == text


@given(st.text(), st.sampled_from(["</think>", "</thinking>"]), st.text())
def test_closing_tags_inside_the_answer_are_not_removed(before: str, tag: str, after: str) -> None:
    reason = before + tag + after
    assert parsing.parse_label(json.dumps({"reason": reason, "label": 1})).label == 1
    for source in (f'"{tag}"', f"x = 1\n# {tag} of it\n"):
        program = f'```json\n{{"reading": "r", "stand_ins": []}}\n```\n```python\n{source}\n```\n'
        assert parsing.parse_program(program, "python").template == source


@given(st.text(alphabet="abc <>/.'\n"), st.sampled_from(["</think>", "</thinking>"]))
def test_thinking_that_was_opened_in_the_prompt_is_removed(thought: str, tag: str) -> None:
    answer = '{"reason": "r", "label": 1}'
    assert strip_thinking(thought + tag + answer) == answer
    assert is_blank(thought + tag + " \n")


JSON_REPLIES = [parsing.ScreenReply, parsing.LabelReply, parsing.SimulationReply]


@pytest.mark.parametrize("model", JSON_REPLIES)
def test_a_schema_has_fields_but_no_description(model: type[BaseModel]) -> None:
    schema = parsing.build_schema(model)
    assert "reason" in schema["properties"]
    assert "description" not in schema
