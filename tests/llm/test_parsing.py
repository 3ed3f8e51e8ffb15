"""Replies are read into values or refused with a cause; a label is never guessed."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from agent.llm import parsing
from agent.llm.parsing import UnreadableReply, is_blank, strip_thinking
from agent.types import QuerySpec, Reading


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
def test_a_label_is_read(text: str) -> None:
    assert parsing.parse_label(text).label == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the label is 1",
        '{"label": true}',
        '{"label": 2}',
        '{"label": 1, "label": 0}',
        '{"reason": "a", "label": 1}\n{"reason": "b", "label": 0}',
        '{"reason": "cut off", "lab',
        '{"reason": "it is "good" at </think>", "label": 0}',
        'perhaps {"label": 1}</think>',
        '{"label": 1}</think>{"label": 0}</think>',
    ],
)
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(UnreadableReply) as refused:
        parsing.parse_label(text)
    assert str(refused.value)


@pytest.mark.parametrize("written", ["non_match", "non-match", "Non Match", "NON_MATCH", "no match"])
def test_a_verdict_may_be_spelled_in_several_ways(written: str) -> None:
    assert parsing.parse_screen(json.dumps({"reason": "", "verdict": written})).verdict == "non_match"


def test_a_program_is_read_with_its_stand_ins() -> None:
    text = '```json\n{"reading": "a sum", "stand_ins": ["Thing\\ud800"]}\n```\n```python\nx = "```"\n```\n'
    reply = parsing.parse_program(text, "python")
    assert (reply.template.strip(), reply.stand_ins, reply.reading) == ('x = "```"', ("Thing\ufffd",), "a sum")


@pytest.mark.parametrize(
    "text", ["no block", "```python\nx = 1", "```python\nx = 1\n```\n```python\ny = 2\n```", "```python\n```"]
)
def test_what_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(UnreadableReply):
        parsing.parse_program(text, "python")


def test_commands_are_lines_of_one_block_and_an_empty_one_is_no_command() -> None:
    assert parsing.parse_commands("Try:\n```bash\npip install a\n\nmkdir b\n```") == ("pip install a", "mkdir b")
    assert parsing.parse_commands("Nothing helps.\n```bash\n```") == ()


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    every = (parsing.parse_spec, parsing.parse_screen, parsing.parse_label, parsing.parse_simulation)
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
def test_a_reply_whose_thinking_has_no_end_in_it_is_its_own_answer(text: str) -> None:
    assume("</think>" not in text)
    assert strip_thinking(text) == text


@given(st.text(), st.sampled_from(["</think>", "</thinking>"]), st.text())
def test_an_answer_that_names_the_end_of_thinking_is_whole(before: str, tag: str, after: str) -> None:
    reason = before + tag + after
    assert parsing.parse_label(json.dumps({"reason": reason, "label": 1})).label == 1
    for source in (f'"{tag}"', f"x = 1\n# {tag} of it\n"):
        program = f'```json\n{{"reading": "r", "stand_ins": []}}\n```\n```python\n{source}\n```\n'
        assert parsing.parse_program(program, "python").template == source


@given(st.text(alphabet="abc <>/.'\n"), st.sampled_from(["</think>", "</thinking>"]))
def test_thinking_that_was_opened_in_the_prompt_is_no_part_of_the_answer(thought: str, tag: str) -> None:
    answer = '{"reason": "r", "label": 1}'
    assert strip_thinking(thought + tag + answer) == answer
    assert is_blank(thought + tag + " \n")


JSON_REPLIES = [parsing.ScreenReply, parsing.LabelReply, parsing.OpenLabelReply, parsing.SimulationReply]


@pytest.mark.parametrize("model", JSON_REPLIES)
def test_a_schema_says_what_is_asked_for_and_nothing_of_the_code(model: type[BaseModel]) -> None:
    schema = parsing.build_schema(model, {})
    assert "reason" in schema["properties"]
    assert "description" not in schema


@pytest.mark.parametrize("model", JSON_REPLIES[:3])
def test_a_schema_speaks_of_readings_where_the_prompt_does(model: type[BaseModel]) -> None:
    schemas = [parsing.build_schema(model, {"spec": spec}) for spec in (None, SPEC)]
    assert ["reading" in schema["properties"] for schema in schemas] == [False, True]


SPEC = QuerySpec(readings=(Reading(text="r", requirements=("q",)),))


def spec(*readings: object) -> str:
    return json.dumps({"readings": readings})


def reading(text: object = "r", requirements: object = ("q",)) -> dict[str, object]:
    return {"reading": text, "requirements": requirements}


def test_readings_are_read_in_their_order() -> None:
    found = parsing.parse_spec(spec(reading(" two \n lines ", ["a", "b"]), reading("other\ud800")))
    assert [(each.text, each.requirements) for each in found.readings] == [
        ("two lines", ("a", "b")), ("other\ufffd", ("q",))
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        spec(), spec(*[reading(str(n)) for n in range(4)]), spec(reading("")), spec(reading(" ")), spec(reading(7)),
        spec(reading("x" * 500)), spec(reading(requirements=[])), spec(reading(requirements=["q"] * 9)),
        spec(reading(requirements=[1])), spec(reading(requirements="q")), spec(reading("A"), reading("a ")),
        spec({"reading": "r"}), spec("r"), '{"readings": null}', '{"reading": "r"}',
    ],
)  # fmt: skip
def test_readings_that_are_not_as_asked_for_are_refused(text: str) -> None:
    with pytest.raises(UnreadableReply):
        parsing.parse_spec(text)


def test_label_1_says_which_reading_is_met() -> None:
    def told(label: int, reading: object, readings: int) -> int | None:
        return parsing.parse_label(json.dumps({"reason": "", "reading": reading, "label": label}), readings).reading

    assert [told(1, 2, 3), told(1, " 2 ", 3), told(0, None, 3), told(0, 3, 3)] == [2, 2, None, 3]
    assert told(1, None, 1) == 1, "where there is but one reading, it is that"
    assert told(1, 7, 0) is None, "a prompt without readings asks for none"
    assert told(1, None, 2) is None, "the query decides: what answers it may meet no listed reading"
    for label, named, readings in ((1, 0, 2), (0, 3, 2), (1, True, 2), (1, 1.0, 2), (0, "first", 2)):
        with pytest.raises(UnreadableReply, match="reading"):
            told(label, named, readings)


def test_a_match_says_which_reading_is_met() -> None:
    assert parsing.parse_screen('{"verdict": "match", "reading": 2}', 2).reading == 2
    assert parsing.parse_screen('{"verdict": "match"}', 1).reading == 1
    assert parsing.parse_screen('{"verdict": "match"}', 2).reading is None, "the query decides, not its readings"
    assert parsing.parse_screen('{"verdict": "unclear"}', 1).reading is None


def test_a_program_says_which_reading_it_tests() -> None:
    def told(head: str, readings: int) -> tuple[str, int | None]:
        reply = parsing.parse_program(f"```json\n{head}\n```\n```python\nx\n```\n", "python", readings)
        return reply.reading, reply.number

    assert told('{"stand_ins": [], "reading": 2}', 2) == ("", 2)
    assert told('{"stand_ins": []}', 1) == ("", 1)
    assert told('{"stand_ins": [], "reading": "in words"}', 0) == ("in words", None)
    for head in ('{"stand_ins": []}', '{"stand_ins": [], "reading": "in words"}', '{"stand_ins": [], "reading": 3}'):
        with pytest.raises(UnreadableReply, match="reading"):
            told(head, 2)
