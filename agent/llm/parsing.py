"""Reads replies of models: JSON objects, programs and commands in fenced blocks.

Every function takes a reply's text and returns a value or raises `Unparsable`, whose message is told to the model. What
could be read in two ways is not read at all: a label is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.llm.extract import INVISIBLE, fenced_blocks, json_object
from agent.llm.extract import Unparsable as Unparsable
from agent.llm.extract import blank as blank
from agent.prompt_text import sound
from agent.types import QuerySpec, Reading

MAX_COMMANDS = 20
MAX_READINGS = 3
MAX_REQUIREMENTS = 8
_LONGEST_LINE = 400
SHELLS = frozenset({"bash", "sh", "shell", "console", "zsh", "terminal"})


def _reason(value: Any) -> Any:
    return "" if value is None else value


def _verdict(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    word = re.sub(r"[\s_-]+", "_", value.strip().strip(".").lower())
    return "non_match" if word in {"nonmatch", "no_match", "not_match"} else word


def _label(value: Any) -> Any:
    if isinstance(value, str) and value.strip() in {"0", "1"}:
        return int(value)
    if type(value) is not int:  # True == 1 and 1.0 == 1, yet neither is the label that was asked for
        raise ValueError("must be the number 0 or 1")
    return value


def _status(value: Any) -> Any:
    return value.strip().strip(".").lower() if isinstance(value, str) else value


def _line(value: Any) -> Any:
    return " ".join(sound(value).split()) if isinstance(value, str) else value


_Reason = Annotated[str, BeforeValidator(_reason)]
_Line = Annotated[str, BeforeValidator(_line), Field(min_length=1, max_length=_LONGEST_LINE)]


class _Reply(BaseModel):
    """Fields as the model wrote them; keys it added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _ReadingReply(_Reply):
    reading: _Line
    requirements: Annotated[tuple[_Line, ...], Field(min_length=1, max_length=MAX_REQUIREMENTS)]


class SpecReply(_Reply):
    """What a query may mean."""

    readings: Annotated[tuple[_ReadingReply, ...], Field(min_length=1, max_length=MAX_READINGS)]


class ScreenReply(_Reply):
    """What the screener says; `reading` is the number of the reading that it finds met."""

    reason: _Reason = ""
    reading: int | None = None
    verdict: Annotated[Literal["match", "non_match", "unclear"], BeforeValidator(_verdict)]


class LabelReply(_Reply):
    """What the arbiter or the judge says; `reading` is the number of the reading that it finds met.

    `label` None is an abstention, never a label that could not be read.
    """

    reason: _Reason = ""
    reading: int | None = None
    label: Annotated[Literal[0, 1], BeforeValidator(_label)] | None


class SimulationReply(_Reply):
    """What a program is predicted to do."""

    reason: _Reason = ""
    status: Annotated[Literal["passed", "failed", "error"], BeforeValidator(_status)]


class ProgramReply(_Reply):
    """A test program with its marker line, the stand-ins it declares and the reading of the query that it tests.

    `number` is the reading's, where the prompt numbered them; `reading` is then empty.
    """

    template: str
    stand_ins: tuple[str, ...]
    reading: _Reason = ""
    number: int | None = None


class RepairReply(_Reply):
    """Commands to give, and a program to take the place of the one that could not run."""

    commands: tuple[str, ...] = ()
    program: ProgramReply | None = None


_Model = TypeVar("_Model", bound=_Reply)
_Judged = TypeVar("_Judged", ScreenReply, LabelReply)

_JSON_REPLIES: dict[str, type[_Reply]] = {
    "specify_query": SpecReply,
    "screen": ScreenReply,
    "judge": LabelReply,
    "arbitrate": LabelReply,
    "simulate": SimulationReply,
}


@cache
def _schema(model: type[_Reply]) -> dict[str, Any]:
    # made for each call, it would take longer than the prompt
    return model.model_json_schema()


def schema_of(role: str, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the JSON Schema of a role's reply, None where it is text; for servers that hold replies to one.

    What the prompt's variables do not ask for is not in it.
    """
    model = _JSON_REPLIES.get(role)
    if model is None:
        return None
    schema = deepcopy(_schema(model))
    schema.pop("description", None)  # it speaks to readers of this file
    if not variables.get("spec"):
        schema["properties"].pop("reading", None)
    if model is LabelReply and not variables.get("may_abstain"):
        schema["properties"]["label"] = {"enum": [0, 1], "title": "Label", "type": "integer"}
    return schema


def parse_spec(text: str) -> QuerySpec:
    """Read the readings of a query: 1 to `MAX_READINGS`, each with 1 to `MAX_REQUIREMENTS` requirements.

    Raises:
        Unparsable: there are none or too many, one is empty or too long, or two are the same.
    """
    reply = _validated(SpecReply, json_object(text, "readings"))
    if len({each.reading.lower() for each in reply.readings}) < len(reply.readings):
        raise Unparsable('"readings": two of them are the same')
    return QuerySpec(readings=tuple(Reading(text=r.reading, requirements=r.requirements) for r in reply.readings))


def parse_screen(text: str, readings: int = 0) -> ScreenReply:
    """Read the screener's reply to a prompt that numbers so many readings.

    Raises:
        Unparsable: it holds no verdict, or several that differ; or a match does not say of which reading.
    """
    values = json_object(text, "verdict")
    return _met(_validated(ScreenReply, _numbered(values, readings)), readings, lambda reply: reply.verdict == "match")


def parse_label(text: str, readings: int = 0, *, may_abstain: bool = False) -> LabelReply:
    """Read the arbiter's or the judge's reply to a prompt that numbers so many readings.

    Where the prompt lets it abstain, `null` does, and nothing else.

    Raises:
        Unparsable: it holds no label, or several that differ; or label 1 does not say which reading is met.
    """
    values = json_object(text, "label")
    if values["label"] is None and not may_abstain:
        raise Unparsable('"label": must be the number 0 or 1')
    return _met(_validated(LabelReply, _numbered(values, readings)), readings, lambda reply: reply.label == 1)


def _numbered(values: dict[str, Any], readings: int) -> dict[str, Any]:
    """Return the values with a reading's number that is one, and without it where the prompt numbers none."""
    given = values.get("reading") if readings else None
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given)
    if given is not None and (type(given) is not int or not 1 <= given <= readings):
        raise Unparsable(f'"reading": must be the number of a reading, 1 to {readings}, or null')
    return {**values, "reading": given}


def _met(reply: _Judged, readings: int, positive: Callable[[_Judged], bool]) -> _Judged:
    """Return a reply whose reading is known wherever one is met: where there is but one, it is that."""
    if not positive(reply) or not readings or reply.reading is not None:
        return reply
    if readings > 1:
        raise Unparsable('"reading": say which reading is met, by its number')
    return reply.model_copy(update={"reading": 1})


def parse_simulation(text: str) -> SimulationReply:
    """Read a predicted outcome.

    Raises:
        Unparsable: it holds no status, or several that differ.
    """
    return _validated(SimulationReply, json_object(text, "status"))


def parse_program(text: str, fence: str, readings: int = 0) -> ProgramReply:
    """Read a reply of one ```json block and one ```{fence} block to a prompt that numbers so many readings.

    A single other block stands for the program where none is named `fence`.

    Raises:
        Unparsable: a block is missing, doubled, empty or not closed, or the JSON is malformed or names no reading.
    """
    blocks = fenced_blocks(text)
    described = [block for block in blocks if block.language == "json"]
    others = [block for block in blocks if block.language != "json"]
    programs = [block for block in others if block.language == fence.lower()] or others
    if len(described) != 1:
        raise Unparsable(f"the reply must hold exactly one ```json block, but holds {len(described)}")
    if len(programs) != 1:
        raise Unparsable(f"the reply must hold exactly one ```{fence} block, but holds {len(programs)}")
    if not programs[0].content.strip(INVISIBLE):
        raise Unparsable(f"the ```{fence} block is empty")
    values = {**json_object(described[0].content, "stand_ins"), "template": programs[0].content, "number": None}
    if readings:
        values = {**values, "reading": "", "number": _tested(values, readings)}
    return _validated(ProgramReply, values)


def _tested(values: dict[str, Any], readings: int) -> int:
    number = _numbered(values, readings)["reading"]
    if number is None and readings > 1:
        raise Unparsable('"reading": say which reading is tested, by its number')
    return number or 1


def parse_commands(text: str) -> tuple[str, ...]:
    """Read the commands of a reply's shell blocks, one a line; comments, blank lines and `$ ` prompts are dropped.

    Raises:
        Unparsable: there is no shell block, one is not closed, or there are more than `MAX_COMMANDS` commands.
    """
    blocks = fenced_blocks(text)
    shells = [block for block in blocks if block.language in SHELLS]
    if not shells:
        shells = [block for block in blocks if not block.language]
    if not shells:
        raise Unparsable("the reply must hold one ```bash block (an empty one when no command can help)")
    lines = (line.strip().removeprefix("$ ").strip() for block in shells for line in block.content.split("\n"))
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if len(commands) > MAX_COMMANDS:
        raise Unparsable(f"the reply holds {len(commands)} commands; give at most {MAX_COMMANDS}")
    return commands


def parse_repair(text: str, fence: str) -> RepairReply:
    """Read commands, a corrected program, or both; the program stands in a ```{fence} block, with its ```json block.

    Raises:
        Unparsable: there is neither, or as `parse_commands` and `parse_program` raise.
    """
    languages = [block.language for block in fenced_blocks(text)]
    if fence.lower() not in languages:
        return RepairReply(commands=parse_commands(text))
    commands = parse_commands(text) if SHELLS & set(languages) else ()
    return RepairReply(commands=commands, program=parse_program(text, fence))


def _validated(model: type[_Model], values: dict[str, Any]) -> _Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Unparsable(f'"{place}": {first["msg"]}') from error
