"""Reads replies of models: JSON objects, programs and commands in fenced blocks.

Every function takes a reply's text and returns a value or raises `Unparsable`, whose message is told to the model. What
could be read in two ways is not read at all: a label is never guessed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

MAX_REPLY = 200_000
MAX_COMMANDS = 20
_MAX_BROKEN_OBJECTS = 100

_THINKING = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_OPEN_THINKING = re.compile(r"\s*<think(?:ing)?>")
_INVISIBLE = " \t\r\n\f\v\0\u00a0\u200b\u2060\ufeff"
_QUOTED_KEY = re.compile(r"""\{\s*["']""")
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}]', re.DOTALL)
_OPENING = re.compile(r"(?P<indent> {0,3})(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_SHELLS = frozenset({"bash", "sh", "shell", "console", "zsh", "terminal"})


class Unparsable(ValueError):
    """A reply breaks its format; the message says how, in words that a model can act on."""


def sound(text: str) -> str:
    """Return the text fit for UTF-8: halves of a surrogate pair are joined, lone ones become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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


def parse_screen(text: str) -> ScreenReply:
    """Read the screener's reply.

    Raises:
        Unparsable: it holds no verdict, or several that differ.
    """
    return _validated(ScreenReply, _object(text, "verdict"))


def parse_label(text: str) -> LabelReply:
    """Read the arbiter's or the judge's reply.

    Raises:
        Unparsable: it holds no label, or several that differ.
    """
    return _validated(LabelReply, _object(text, "label"))


def parse_simulation(text: str) -> SimulationReply:
    """Read a predicted outcome.

    Raises:
        Unparsable: it holds no status, or several that differ.
    """
    return _validated(SimulationReply, _object(text, "status"))


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
    if not programs[0].content.strip(_INVISIBLE):
        raise Unparsable(f"the ```{fence} block is empty")
    values = _object(described[0].content, "stand_ins")
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


def blank(text: str) -> bool:
    """Say whether a reply has no visible text (thinking does not count)."""
    thinking = _THINKING.match(text)
    return not text[0 if thinking is None else thinking.end() :].strip(_INVISIBLE)


def without_thinking(text: str) -> str:
    """Return the reply after its leading `<think>` part.

    Raises:
        Unparsable: the reply is too long, or ends while still thinking.
    """
    if len(text) > MAX_REPLY:
        raise Unparsable(f"the reply has {len(text):,} characters; at most {MAX_REPLY:,} are read")
    found = _THINKING.match(text)
    if found is not None:
        return text[found.end() :]
    if _OPEN_THINKING.match(text):
        raise Unparsable("the reply ends within its <think> part: there is no answer after it")
    return text


@dataclass(frozen=True)
class Block:
    """A fenced block: `language` is the first word of its info string in lower case, `content` its text."""

    language: str
    content: str


def fenced_blocks(text: str) -> list[Block]:
    """Return a reply's fenced blocks (CommonMark: backticks or tildes, closed by a fence at least as long).

    Raises:
        Unparsable: the last block is not closed (the reply was cut off), or the reply has no readable text.
    """
    blocks: list[Block] = []
    opened: re.Match[str] | None = None
    content: list[str] = []
    for line in sound(without_thinking(text)).replace("\r\n", "\n").split("\n"):
        if opened is None:
            opened, content = _OPENING.fullmatch(line), []
        elif _closes(line, opened["fence"]):
            blocks.append(Block(_language(opened["info"]), "\n".join(content)))
            opened = None
        else:
            content.append(_outdented(line, len(opened["indent"])))
    if opened is not None:
        raise Unparsable(f"the last block ({opened['fence']}{opened['info'].rstrip()}) is not closed: was it cut off?")
    return blocks


def _closes(line: str, fence: str) -> bool:
    mark = line.rstrip(" \t")
    bare = mark.lstrip(" ")
    return len(mark) - len(bare) <= 3 and len(bare) >= len(fence) and not bare.strip(fence[0])


def _outdented(line: str, indent: int) -> str:
    spaces = len(line) - len(line.lstrip(" "))
    return line[min(indent, spaces) :]


def _language(info: str) -> str:
    words = info.replace("{", " ").replace("}", " ").replace(",", " ").split()
    return words[0].lstrip(".").lower() if words else ""


def _object(text: str, key: str) -> dict[str, Any]:
    """Return the one object of the text that has `key`; several must agree on it."""
    found = _objects(without_thinking(text), key)
    if not found:
        raise Unparsable(f'the reply holds no JSON object with the key "{key}"')
    if not _agree([value[key] for value in found]):
        raise Unparsable(f'the reply holds several JSON objects that disagree on "{key}"; give one')
    return found[-1]


def _agree(values: list[Any]) -> bool:
    try:
        return all(value == values[0] for value in values)
    except RecursionError:  # nested ever so deeply
        return False


def _objects(text: str, key: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder(object_pairs_hook=_unambiguous, strict=False)  # models write newlines into strings
    found: list[dict[str, Any]] = []
    broken = 0
    position = text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            # An object that does not parse but speaks of the key may be the answer: what stands inside it, or
            # elsewhere, must not be taken in its place. Other braces are prose or code.
            end = _extent(text, position) if _QUOTED_KEY.match(text, position) else position + 1
            if key in text[position:end]:
                _refuse_object(error)
            broken += 1
            if broken > _MAX_BROKEN_OBJECTS:
                raise Unparsable("the reply holds too many braces that are no JSON; give one JSON object") from error
        else:
            if key in value:
                found.append(_sound_values(value))
        position = text.find("{", end)
    return found


def _refuse_object(error: Exception) -> NoReturn:
    cause = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
    raise Unparsable(f"the JSON object is malformed: {cause}") from error


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values and values[key] != value:
            raise ValueError(f'the key "{sound(key)[:80]}" appears twice with different values')
        values[key] = value
    return values


def _extent(text: str, start: int) -> int:
    """Return where the brace at `start` is closed, braces within double-quoted strings aside; else the text's end."""
    depth = 0
    for token in _STRING_OR_BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0 and token[0] == "}":
            return token.end()
    return len(text)


def _sound_values(value: dict[str, Any]) -> dict[str, Any]:
    """Join or replace surrogates that came in as JSON escapes, in the values that replies are read for."""

    def cleaned(item: Any) -> Any:
        if isinstance(item, str):
            return sound(item)
        return [cleaned(part) if isinstance(part, str) else part for part in item] if isinstance(item, list) else item

    return {key: cleaned(item) for key, item in value.items()}


def _validated(model: type[_Model], values: dict[str, Any]) -> _Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Unparsable(f'"{place}": {first["msg"]}') from error
