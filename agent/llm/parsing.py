"""Reads replies of models: JSON objects, programs and commands in fenced blocks.

Every function takes a reply's text and returns a value or raises `Unparsable`, whose message is told to the model. What
could be read in two ways is not read at all: a label is never guessed.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from agent.llm.extract import INVISIBLE, fenced_blocks, json_object
from agent.llm.extract import Unparsable as Unparsable
from agent.llm.extract import blank as blank

MAX_COMMANDS = 20
_SHELLS = frozenset({"bash", "sh", "shell", "console", "zsh", "terminal"})


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


_Reason = Annotated[str, BeforeValidator(_reason)]


class _Reply(BaseModel):
    """Fields as the model wrote them; keys it added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ScreenReply(_Reply):
    """What the screener says."""

    reason: _Reason = ""
    verdict: Annotated[Literal["match", "non_match", "unclear"], BeforeValidator(_verdict)]


class LabelReply(_Reply):
    """What the arbiter or the judge says."""

    reason: _Reason = ""
    label: Annotated[Literal[0, 1], BeforeValidator(_label)]


class SimulationReply(_Reply):
    """What a program is predicted to do."""

    reason: _Reason = ""
    status: Annotated[Literal["passed", "failed", "error"], BeforeValidator(_status)]


class ProgramReply(_Reply):
    """A test program with its marker line, the stand-ins it declares and the reading of the query that it tests."""

    template: str
    stand_ins: tuple[str, ...]
    reading: _Reason = ""


_Model = TypeVar("_Model", bound=_Reply)


_JSON_REPLIES: dict[str, type[_Reply]] = {
    "screen": ScreenReply,
    "judge": LabelReply,
    "arbitrate": LabelReply,
    "simulate": SimulationReply,
}


def schema_of(role: str) -> dict[str, Any] | None:
    """Return the JSON Schema of a role's reply, None where it is text; for servers that hold replies to one."""
    model = _JSON_REPLIES.get(role)
    return None if model is None else model.model_json_schema()


def parse_screen(text: str) -> ScreenReply:
    """Read the screener's reply.

    Raises:
        Unparsable: it holds no verdict, or several that differ.
    """
    return _validated(ScreenReply, json_object(text, "verdict"))


def parse_label(text: str) -> LabelReply:
    """Read the arbiter's or the judge's reply.

    Raises:
        Unparsable: it holds no label, or several that differ.
    """
    return _validated(LabelReply, json_object(text, "label"))


def parse_simulation(text: str) -> SimulationReply:
    """Read a predicted outcome.

    Raises:
        Unparsable: it holds no status, or several that differ.
    """
    return _validated(SimulationReply, json_object(text, "status"))


def parse_program(text: str, fence: str) -> ProgramReply:
    """Read a reply of one ```json block and one ```{fence} block.

    A single other block stands for the program where none is named `fence`.

    Raises:
        Unparsable: a block is missing, doubled, empty or not closed, or the JSON is malformed.
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
    values = json_object(described[0].content, "stand_ins")
    return _validated(ProgramReply, {**values, "template": programs[0].content})


def parse_commands(text: str) -> tuple[str, ...]:
    """Read the commands of a reply's shell blocks, one a line; comments, blank lines and `$ ` prompts are dropped.

    Raises:
        Unparsable: there is no shell block, one is not closed, or there are more than `MAX_COMMANDS` commands.
    """
    blocks = fenced_blocks(text)
    shells = [block for block in blocks if block.language in _SHELLS]
    if not shells:
        shells = [block for block in blocks if not block.language]
    if not shells:
        raise Unparsable("the reply must hold one ```bash block (an empty one when no command can help)")
    lines = (line.strip().removeprefix("$ ").strip() for block in shells for line in block.content.split("\n"))
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if len(commands) > MAX_COMMANDS:
        raise Unparsable(f"the reply holds {len(commands)} commands; give at most {MAX_COMMANDS}")
    return commands


def _validated(model: type[_Model], values: dict[str, Any]) -> _Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Unparsable(f'"{place}": {first["msg"]}') from error
