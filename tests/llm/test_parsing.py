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
def test_a_label_is_parsed(text: str) -> None:
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


JSON_REPLIES = [parsing.ScreenReply, parsing.LabelReply, parsing.OpenLabelReply, parsing.SimulationReply]


@pytest.mark.parametrize("model", JSON_REPLIES)
def test_a_schema_has_fields_but_no_description(model: type[BaseModel]) -> None:
    schema = parsing.build_schema(model, {})
    assert "reason" in schema["properties"]
    assert "description" not in schema


@pytest.mark.parametrize("model", JSON_REPLIES[:3])
def test_a_schema_has_a_reading_if_the_prompt_numbers_readings(model: type[BaseModel]) -> None:
    schemas = [parsing.build_schema(model, {"spec": spec}) for spec in (None, SPEC)]
    assert ["reading" in schema["properties"] for schema in schemas] == [False, True]


SPEC = QuerySpec(readings=(Reading(text="r", requirements=("q",)),))


def spec(*readings: object) -> str:
    return json.dumps({"readings": readings})


def reading(text: object = "r", requirements: object = ("q",)) -> dict[str, object]:
    return {"reading": text, "requirements": requirements}


def test_readings_are_parsed_in_order() -> None:
    spec_values = parsing.parse_spec(spec(reading(" two \n lines ", ["a", "b"]), reading("other\ud800")))
    assert [(item.text, item.requirements) for item in spec_values.readings] == [
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
def test_invalid_readings_are_rejected(text: str) -> None:
    with pytest.raises(UnreadableReply):
        parsing.parse_spec(text)


def test_label_1_names_the_reading_that_is_met() -> None:
    def parse(label: int, reading: object, readings: int) -> int | None:
        return parsing.parse_label(json.dumps({"reason": "", "reading": reading, "label": label}), readings).reading

    assert [parse(1, 2, 3), parse(1, " 2 ", 3), parse(0, None, 3), parse(0, 3, 3)] == [2, 2, None, 3]
    assert parse(1, None, 1) == 1, "the only reading is the default"
    assert parse(1, 7, 0) is None, "no reading without readings in the prompt"
    assert parse(1, None, 2) is None, "a match may meet no listed reading"
    for label, number, readings in ((1, 0, 2), (0, 3, 2), (1, True, 2), (1, 1.0, 2), (0, "first", 2)):
        with pytest.raises(UnreadableReply, match="reading"):
            parse(label, number, readings)


def test_a_match_names_the_reading_that_is_met() -> None:
    assert parsing.parse_screen('{"verdict": "match", "reading": 2}', 2).reading == 2
    assert parsing.parse_screen('{"verdict": "match"}', 1).reading == 1
    assert parsing.parse_screen('{"verdict": "match"}', 2).reading is None, "a match may meet no listed reading"
    assert parsing.parse_screen('{"verdict": "unclear"}', 1).reading is None


def test_a_program_names_the_reading_that_it_tests() -> None:
    def parse(head: str, readings: int) -> tuple[str, int | None]:
        reply = parsing.parse_program(f"```json\n{head}\n```\n```python\nx\n```\n", "python", readings)
        return reply.reading, reply.number

    assert parse('{"stand_ins": [], "reading": 2}', 2) == ("", 2)
    assert parse('{"stand_ins": []}', 1) == ("", 1)
    assert parse('{"stand_ins": [], "reading": "in words"}', 0) == ("in words", None)
    for head in ('{"stand_ins": []}', '{"stand_ins": [], "reading": "in words"}', '{"stand_ins": [], "reading": 3}'):
        with pytest.raises(UnreadableReply, match="reading"):
            parse(head, 2)
