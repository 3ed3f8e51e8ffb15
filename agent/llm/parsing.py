"""Reads replies of models: JSON objects, programs and commands in fenced blocks.

Every function takes a reply's text and returns a value, or raises `UnreadableReply` with a message for the model.
What could be read in two ways is not read at all: a label is never guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

from markdown_it import MarkdownIt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.prompt_text import replace_surrogates
from agent.types import QuerySpec, Reading

MAX_REPLY = 200_000
MAX_COMMANDS = 20
MAX_READINGS = 3
MAX_REQUIREMENTS = 8
_LONGEST_LINE = 400
_MAX_BROKEN_OBJECTS = 100
SHELLS = frozenset({"bash", "sh", "shell", "console", "zsh", "terminal"})
INVISIBLE = " \t\r\n\f\v\0\u00a0\u200b\u2060\ufeff"
_THINKING = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_OPEN_THINKING = re.compile(r"\s*<think(?:ing)?>")
_TAG = re.compile(r"<(?P<closing>/?)think(?:ing)?>")
_QUOTED_KEY = re.compile(r"""\{\s*["']""")
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}]', re.DOTALL)
_MARKDOWN = MarkdownIt("zero").enable("fence")  # neither lists nor quotes: a block within one is no block
_MARKDOWN.core.ruler.enableOnly(["normalize", "block"])


class UnreadableReply(ValueError):
    """A reply breaks its format; the message says how, in words that a model can act on."""


def _clean_text(value: Any) -> Any:
    return replace_surrogates(value) if isinstance(value, str) else value


def _clean_reason(value: Any) -> Any:
    return "" if value is None else _clean_text(value)


def _normalise_word(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    word = re.sub(r"[\s_-]+", "_", value.strip().strip(".").lower())
    return "non_match" if word in {"nonmatch", "no_match", "not_match"} else word


def _validate_label(value: Any) -> Any:
    if isinstance(value, str) and value.strip() in {"0", "1"}:
        return int(value)
    if type(value) is not int:  # True == 1 and 1.0 == 1, yet neither is the label that was asked for
        raise ValueError("must be the number 0 or 1")
    return value


def _join_lines(value: Any) -> Any:
    return " ".join(replace_surrogates(value).split()) if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_clean_text)]
_Reason = Annotated[str, BeforeValidator(_clean_reason)]
_Line = Annotated[str, BeforeValidator(_join_lines), Field(min_length=1, max_length=_LONGEST_LINE)]


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
    verdict: Annotated[Literal["match", "non_match", "unclear"], BeforeValidator(_normalise_word)]


class OpenLabelReply(_Reply):
    """What an arbiter says that may abstain: by the label None, never by one that could not be read.

    `reading` is the number of the reading that it finds met.
    """

    reason: _Reason = ""
    reading: int | None = None
    label: Annotated[Literal[0, 1], BeforeValidator(_validate_label)] | None


class LabelReply(OpenLabelReply):
    """What an arbiter or the judge says that may not."""

    label: Annotated[Literal[0, 1], BeforeValidator(_validate_label)]


class SimulationReply(_Reply):
    """What a program is predicted to do."""

    reason: _Reason = ""
    status: Annotated[Literal["passed", "failed", "error"], BeforeValidator(_normalise_word)]


class ProgramReply(_Reply):
    """A test program with its marker line, the stand-ins it declares and the reading of the query that it tests.

    `number` is the reading's, where the prompt numbered them; `reading` is then empty.
    """

    template: str
    stand_ins: tuple[_Text, ...]
    reading: _Reason = ""
    number: int | None = None


class RepairReply(_Reply):
    """Commands to give, and a program to take the place of the one that could not run."""

    commands: tuple[str, ...] = ()
    program: ProgramReply | None = None


_Model = TypeVar("_Model", bound=_Reply)
_Judged = TypeVar("_Judged", ScreenReply, OpenLabelReply)


def build_schema(model: type[BaseModel], variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON Schema of a reply, for servers that hold replies to one.

    Where the prompt numbers no readings, it asks for none.
    """
    return _build_schema(model, numbered=bool(variables.get("spec")))


@cache
def _build_schema(model: type[BaseModel], *, numbered: bool) -> Mapping[str, Any]:
    schema = model.model_json_schema()
    schema.pop("description", None)  # it speaks to readers of this file
    if not numbered:
        schema["properties"].pop("reading", None)
    return schema


def parse_spec(text: str) -> QuerySpec:
    """Read the readings of a query: 1 to `MAX_READINGS`, each with 1 to `MAX_REQUIREMENTS` requirements.

    Raises:
        UnreadableReply: there are none or too many, one is empty or too long, or two are the same.
    """
    reply = _validate(SpecReply, find_json_object(text, "readings"))
    if len({each.reading.lower() for each in reply.readings}) < len(reply.readings):
        raise UnreadableReply('"readings": two of them are the same')
    return QuerySpec(readings=tuple(Reading(text=r.reading, requirements=r.requirements) for r in reply.readings))


def parse_screen(text: str, readings: int = 0) -> ScreenReply:
    """Read the screener's reply to a prompt that numbers so many readings.

    Raises:
        UnreadableReply: it holds no verdict, or several that differ; or it names no reading that there is.
    """
    return _parse_judgement(ScreenReply, text, "verdict", readings)


def parse_label(text: str, readings: int = 0, *, may_abstain: bool = False) -> OpenLabelReply:
    """Read the arbiter's or the judge's reply to a prompt that numbers so many readings.

    Where the prompt lets it abstain, `null` does, and nothing else.

    Raises:
        UnreadableReply: it holds no label, or several that differ; or it names no reading that there is.
    """
    return _parse_judgement(OpenLabelReply if may_abstain else LabelReply, text, "label", readings)


def _parse_judgement(model: type[_Judged], text: str, key: str, readings: int) -> _Judged:
    """Read a verdict or label with the reading that the code meets: where there is only one, a match meets that."""
    values = find_json_object(text, key)
    reply = _validate(model, {**values, "reading": _parse_reading_number(values, readings)})
    if readings == 1 and reply.reading is None and getattr(reply, key) in ("match", 1):
        return reply.model_copy(update={"reading": 1})
    return reply


def _parse_reading_number(values: Mapping[str, Any], readings: int) -> int | None:
    """Return the number of the reading that a reply names, None where the prompt numbers none."""
    number = values.get("reading") if readings else None
    if isinstance(number, str) and number.strip().isdecimal():
        number = int(number)
    if number is not None and (type(number) is not int or not 1 <= number <= readings):
        raise UnreadableReply(f'"reading": must be the number of a reading, 1 to {readings}, or null')
    return number


def parse_simulation(text: str) -> SimulationReply:
    """Read a predicted outcome."""
    return _validate(SimulationReply, find_json_object(text, "status"))


def parse_program(text: str, fence: str, readings: int = 0) -> ProgramReply:
    """Read a reply of one ```json block and one ```{fence} block to a prompt that numbers so many readings.

    A single other block stands for the program where none is named `fence`.

    Raises:
        UnreadableReply: a block is missing, doubled, empty or not closed, or the JSON is malformed or names no reading.
    """
    blocks = find_fenced_blocks(text)
    described = [block for block in blocks if block.language == "json"]
    others = [block for block in blocks if block.language != "json"]
    programs = [block for block in others if block.language == fence.lower()] or others
    for language, group in (("json", described), (fence, programs)):
        if len(group) != 1:
            raise UnreadableReply(f"the reply must hold exactly one ```{language} block, but holds {len(group)}")
    if not programs[0].content.strip(INVISIBLE):
        raise UnreadableReply(f"the ```{fence} block is empty")
    values = find_json_object(described[0].content, "stand_ins")
    number = _parse_reading_number(values, readings)
    if readings > 1 and number is None:
        raise UnreadableReply('"reading": say which reading is tested, by its number')
    tested = {"reading": "", "number": number or 1} if readings else {"number": None}
    return _validate(ProgramReply, {**values, **tested, "template": programs[0].content})


def parse_commands(text: str) -> tuple[str, ...]:
    """Read the commands of a reply's shell blocks, one a line; comments, blank lines and `$ ` prompts are dropped.

    Raises:
        UnreadableReply: there is no shell block, one is not closed, or there are more than `MAX_COMMANDS` commands.
    """
    blocks = find_fenced_blocks(text)
    shells = [block for block in blocks if block.language in SHELLS] or [each for each in blocks if not each.language]
    if not shells:
        raise UnreadableReply("the reply must hold one ```bash block (an empty one when no command can help)")
    lines = (line.strip().removeprefix("$ ").strip() for block in shells for line in block.content.split("\n"))
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if len(commands) > MAX_COMMANDS:
        raise UnreadableReply(f"the reply holds {len(commands)} commands; give at most {MAX_COMMANDS}")
    return commands


def parse_repair(text: str, fence: str) -> RepairReply:
    """Read commands, a corrected program, or both; the program stands in a ```{fence} block, with its ```json block.

    Raises:
        UnreadableReply: there is neither, or as `parse_commands` and `parse_program` raise.
    """
    languages = [block.language for block in find_fenced_blocks(text)]
    if fence.lower() not in languages:
        return RepairReply(commands=parse_commands(text))
    commands = parse_commands(text) if SHELLS & set(languages) else ()
    return RepairReply(commands=commands, program=parse_program(text, fence))


def _validate(model: type[_Model], values: dict[str, Any]) -> _Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UnreadableReply(f'"{place}": {first["msg"]}') from error


def is_blank(text: str) -> bool:
    """Say whether a reply has no visible text (thinking does not count)."""
    return not text[_measure_thinking(text) :].strip(INVISIBLE)


def strip_thinking(text: str) -> str:
    """Return the reply after its leading `<think>` part, which may have been opened in the prompt.

    Raises:
        UnreadableReply: the reply is too long, or ends while still thinking.
    """
    start = _measure_thinking(text)
    if start == 0 and _OPEN_THINKING.match(text):
        raise UnreadableReply("the reply ends within its <think> part: there is no answer after it")
    answer = text[start:]
    if len(answer) > MAX_REPLY:
        raise UnreadableReply(f"the reply has {len(answer):,} characters; at most {MAX_REPLY:,} are read")
    return answer


def _measure_thinking(text: str) -> int:
    """Return how many characters of a reply are thinking.

    Some chat templates open it in the prompt, so that replies hold only its end.
    """
    if (thinking := _THINKING.match(text)) is not None:
        return thinking.end()
    tags = list(islice(_TAG.finditer(text), 2))
    return tags[0].end() if len(tags) == 1 and tags[0]["closing"] and not _is_content(tags[0]) else 0


def _is_content(tag: re.Match[str]) -> bool:
    """Say whether a tag stands in quotes, in a fenced block or in a JSON object: part of an answer."""
    text, start, end = tag.string, tag.start(), tag.end()
    if text[start - 1 : start] in ("`", "'", '"') and text[start - 1 : start] == text[end : end + 1]:
        return True
    line = text[:start].replace("\r\n", "\n").replace("\r", "\n").count("\n")
    return any(block.first < line < block.end for block in _parse_blocks(text)) or _is_in_object(text, start)


def _is_in_object(text: str, place: int) -> bool:
    position = text.find("{", 0, place)
    while position >= 0:
        end = _find_end(text, position) if _QUOTED_KEY.match(text, position) else position + 1
        if end > place:
            return True
        position = text.find("{", end, place)
    return False


@dataclass(frozen=True)
class FencedBlock:
    """A fenced block: the first word of its info string in lower case, its text, and the lines that it takes."""

    language: str
    content: str
    fence: str
    first: int
    end: int
    closed: bool


def _parse_blocks(text: str) -> list[FencedBlock]:
    blocks = []
    for token in _MARKDOWN.parse(text):
        if token.type == "fence" and token.map is not None:
            first, end = token.map
            lines = token.content.count("\n") + (token.content[-1:] not in ("", "\n"))
            content = token.content.removesuffix("\n")
            fence = token.markup + token.info
            words = re.sub("[{},]", " ", token.info).split()
            language = words[0].lstrip(".").lower() if words else ""
            blocks.append(FencedBlock(language, content, fence, first, end, closed=end - first == lines + 2))
    return blocks


def find_fenced_blocks(text: str) -> list[FencedBlock]:
    """Return a reply's fenced blocks (CommonMark: backticks or tildes, closed by a fence at least as long).

    Raises:
        UnreadableReply: the last block is not closed (the reply was cut off), or the reply has no readable text.
    """
    blocks = _parse_blocks(replace_surrogates(strip_thinking(text)))
    if blocks and not blocks[-1].closed:
        raise UnreadableReply(f"the last block ({blocks[-1].fence.rstrip()}) is not closed: was it cut off?")
    return blocks


def find_json_object(text: str, key: str) -> dict[str, Any]:
    """Return the object of a reply that has `key`, prose around it aside.

    Raises:
        UnreadableReply: there is none, one is malformed or says `key` twice, or several disagree on it.
    """
    objects = _find_objects(strip_thinking(text), key)
    if not objects:
        raise UnreadableReply(f'the reply holds no JSON object with the key "{key}"')
    if not _agree([value[key] for value in objects]):
        raise UnreadableReply(f'the reply holds several JSON objects that disagree on "{key}"; give one')
    return objects[-1]


def _agree(values: list[Any]) -> bool:
    try:
        return all(value == values[0] for value in values)
    except RecursionError:  # nested ever so deeply
        return False


def _find_objects(text: str, key: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder(object_pairs_hook=_reject_conflicts, strict=False)  # models write newlines into strings
    objects: list[dict[str, Any]] = []
    broken = 0
    position = text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            # An object that does not parse but speaks of the key may be the answer: what stands inside it, or
            # elsewhere, must not be taken in its place. Other braces are prose or code.
            end = _find_end(text, position) if _QUOTED_KEY.match(text, position) else position + 1
            if key in text[position:end]:
                cause = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
                raise UnreadableReply(f"the JSON object is malformed: {cause}") from error
            broken += 1
            if broken > _MAX_BROKEN_OBJECTS:
                raise UnreadableReply("too many braces that are no JSON; give one JSON object") from error
        else:
            if key in value:
                objects.append(value)
        position = text.find("{", end)
    return objects


def _reject_conflicts(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values and values[key] != value:
            raise ValueError(f'the key "{replace_surrogates(key)[:80]}" appears twice with different values')
        values[key] = value
    return values


def _find_end(text: str, start: int) -> int:
    """Return where the brace at `start` is closed, braces within double-quoted strings aside; else the text's end."""
    depth = 0
    for token in _STRING_OR_BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0 and token[0] == "}":
            return token.end()
    return len(text)
