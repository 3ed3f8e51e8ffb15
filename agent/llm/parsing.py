"""Parsing of model replies: JSON objects, programs and commands in fenced blocks.

Every parser takes the text of a reply and returns a value, or raises `UnreadableReply` with a message for the model.
Ambiguous replies are rejected, so a label is never guessed.
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
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from agent.text import replace_surrogates
from agent.types import Choice

MAX_REPLY = 200_000
MAX_COMMANDS = 20
_MAX_BROKEN_OBJECTS = 100
SHELLS = frozenset({"bash", "sh", "shell", "console", "zsh", "terminal"})
INVISIBLE = " \t\r\n\f\v\0\u00a0\u200b\u2060\ufeff"
_THINKING = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_OPEN_THINKING = re.compile(r"\s*<think(?:ing)?>")
_TAG = re.compile(r"<(?P<closing>/?)think(?:ing)?>")
_QUOTED_KEY = re.compile(r"""\{\s*["']""")
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}]', re.DOTALL)
_MARKDOWN = MarkdownIt("zero").enable("fence")  # blocks inside lists and quotes are ignored
_MARKDOWN.core.ruler.enableOnly(["normalize", "block"])


class UnreadableReply(ValueError):
    """Raised for a reply that is not in the required format. The message tells the model what to correct."""


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
    if type(value) is not int:  # True == 1 and 1.0 == 1, but neither is a valid label
        raise ValueError("must be the number 0 or 1")
    return value


_Text = Annotated[str, BeforeValidator(_clean_text)]
_Reason = Annotated[str, BeforeValidator(_clean_reason)]


class _Reply(BaseModel):
    """Base class of parsed replies. Additional keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class IntentReply(_Reply):
    """Whether a query searches for code."""

    reason: _Reason = ""
    intent: Annotated[Literal["yes", "no"], BeforeValidator(_normalise_word)]


class ScreenReply(_Reply):
    """The screener's verdict."""

    reason: _Reason = ""
    verdict: Annotated[Literal["match", "non_match", "unclear"], BeforeValidator(_normalise_word)]


class LabelReply(_Reply):
    """The label from the judge or the arbiter."""

    reason: _Reason = ""
    label: Annotated[Literal[0, 1], BeforeValidator(_validate_label)]


class SimulationReply(_Reply):
    """The predicted outcome of a program."""

    reason: _Reason = ""
    status: Annotated[Literal["passed", "failed", "error"], BeforeValidator(_normalise_word)]


class PreferenceReply(_Reply):
    """Which of two snippets is better."""

    reason: _Reason = ""
    better: Annotated[Choice, BeforeValidator(_normalise_word)]


class ProgramReply(_Reply):
    """A test program with its marker line, its declared stand-ins and the reading of the query that it tests."""

    template: str
    stand_ins: tuple[_Text, ...]
    reading: _Reason = ""


_Model = TypeVar("_Model", bound=_Reply)


@cache
def build_schema(model: type[BaseModel]) -> Mapping[str, Any]:
    """Return the JSON Schema for a reply, for servers that enforce one."""
    schema = model.model_json_schema()
    schema.pop("description", None)  # for readers of this file, not for models
    return schema


def parse_intent(text: str) -> IntentReply:
    """Parse whether a query searches for code.

    Raises:
        UnreadableReply: the answer is missing or ambiguous.
    """
    return _validate(IntentReply, find_json_object(text, "intent"))


def parse_screen(text: str) -> ScreenReply:
    """Parse the screener's reply.

    Raises:
        UnreadableReply: the verdict is missing or ambiguous.
    """
    return _validate(ScreenReply, find_json_object(text, "verdict"))


def parse_label(text: str) -> LabelReply:
    """Parse the arbiter's or the judge's reply.

    Raises:
        UnreadableReply: the label is missing or ambiguous.
    """
    return _validate(LabelReply, find_json_object(text, "label"))


def parse_simulation(text: str) -> SimulationReply:
    return _validate(SimulationReply, find_json_object(text, "status"))


def parse_preference(text: str) -> PreferenceReply:
    return _validate(PreferenceReply, find_json_object(text, "better"))


def parse_program(text: str, fence: str) -> ProgramReply:
    """Parse a reply with one ```json block and one ```{fence} block.

    If no block has the language `fence`, the only other block is the program.

    Raises:
        UnreadableReply: a block is missing, duplicated, empty or unclosed, or the JSON is malformed.
    """
    blocks = find_fenced_blocks(text)
    json_blocks = [block for block in blocks if block.language == "json"]
    other_blocks = [block for block in blocks if block.language != "json"]
    programs = [block for block in other_blocks if block.language == fence.lower()] or other_blocks
    for language, group in (("json", json_blocks), (fence, programs)):
        if len(group) != 1:
            raise UnreadableReply(f"the reply must contain exactly one ```{language} block, but contains {len(group)}")
    if not programs[0].content.strip(INVISIBLE):
        raise UnreadableReply(f"the ```{fence} block is empty")
    values = find_json_object(json_blocks[0].content, "stand_ins")
    return _validate(ProgramReply, {**values, "template": programs[0].content})


def parse_code(text: str, fence: str) -> str:
    """Parse a reply with one ```{fence} block, or with one block in total. Raises an `UnreadableReply` otherwise."""
    blocks = find_fenced_blocks(text)
    blocks = [block for block in blocks if block.language == fence.lower()] or blocks
    if len(blocks) != 1 or not blocks[0].content.strip(INVISIBLE):
        raise UnreadableReply(f"the reply must contain exactly one ```{fence} block, with code in it")
    return f"{blocks[0].content}\n"


def parse_commands(text: str) -> tuple[str, ...]:
    """Parse the commands in a reply's shell blocks, one per line, without comments, blank lines or `$ ` prompts.

    Raises:
        UnreadableReply: there is no shell block, a block is not closed, or there are more than `MAX_COMMANDS` commands.
    """
    blocks = find_fenced_blocks(text)
    shells = [block for block in blocks if block.language in SHELLS] or [
        block for block in blocks if not block.language
    ]
    if not shells:
        raise UnreadableReply("the reply must contain one ```bash block (an empty one if no command can help)")
    lines = (line.strip().removeprefix("$ ").strip() for block in shells for line in block.content.split("\n"))
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if len(commands) > MAX_COMMANDS:
        raise UnreadableReply(f"the reply contains {len(commands)} commands; the limit is {MAX_COMMANDS}")
    return commands


def _validate(model: type[_Model], values: dict[str, Any]) -> _Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UnreadableReply(f'"{place}": {first["msg"]}') from error


def is_blank(text: str) -> bool:
    """Return whether a reply is blank apart from its thinking part."""
    return not text[_measure_thinking(text) :].strip(INVISIBLE)


def strip_thinking(text: str) -> str:
    """Remove the leading `<think>` part of a reply. The opening tag may be in the prompt instead.

    Raises:
        UnreadableReply: the reply is too long, or ends inside its thinking part.
    """
    start = _measure_thinking(text)
    if start == 0 and _OPEN_THINKING.match(text):
        raise UnreadableReply("the reply ends inside its <think> part, so it contains no answer")
    answer = text[start:]
    if len(answer) > MAX_REPLY:
        raise UnreadableReply(f"the reply has {len(answer):,} characters; the limit is {MAX_REPLY:,}")
    return answer


def _measure_thinking(text: str) -> int:
    """Return the length of a reply's thinking part in characters.

    Some chat templates put the opening tag into the prompt, so the reply contains only the closing tag.
    """
    if (thinking := _THINKING.match(text)) is not None:
        return thinking.end()
    tags = list(islice(_TAG.finditer(text), 2))
    return tags[0].end() if len(tags) == 1 and tags[0]["closing"] and not _is_content(tags[0]) else 0


def _is_content(tag: re.Match[str]) -> bool:
    """Return whether a tag is part of the answer: in quotes, a fenced block or a JSON object."""
    text, start, end = tag.string, tag.start(), tag.end()
    if text[start - 1 : start] in ("`", "'", '"') and text[start - 1 : start] == text[end : end + 1]:
        return True
    line = text[:start].replace("\r\n", "\n").replace("\r", "\n").count("\n")
    return any(block.first < line < block.end for block in _parse_blocks(text)) or _is_in_object(text, start)


def _is_in_object(text: str, start: int) -> bool:
    position = text.find("{", 0, start)
    while position >= 0:
        end = _find_end(text, position) if _QUOTED_KEY.match(text, position) else position + 1
        if end > start:
            return True
        position = text.find("{", end, start)
    return False


@dataclass(frozen=True)
class FencedBlock:
    """A fenced block: the first word of its info string in lower case, its text, and its range of lines."""

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
        UnreadableReply: the last block is not closed, so the reply was cut off; see also `strip_thinking`.
    """
    blocks = _parse_blocks(replace_surrogates(strip_thinking(text)))
    if blocks and not blocks[-1].closed:
        raise UnreadableReply(
            f"the last block ({blocks[-1].fence.rstrip()}) is not closed; the reply may have been cut off"
        )
    return blocks


def find_json_object(text: str, key: str) -> dict[str, Any]:
    """Find the JSON object that contains `key` in a reply. Ignores prose around the object.

    Raises:
        UnreadableReply: no object contains `key`, an object is malformed or repeats a key, or objects differ in the
            value of `key`.
    """
    objects = _find_objects(strip_thinking(text), key)
    if not objects:
        raise UnreadableReply(f'the reply contains no JSON object with the key "{key}"')
    if not _agree([value[key] for value in objects]):
        raise UnreadableReply(
            f'the reply contains JSON objects with different values for "{key}"; write only one object'
        )
    return objects[-1]


def _agree(values: list[Any]) -> bool:
    try:
        return all(value == values[0] for value in values)
    except RecursionError:  # nested too deeply to compare
        return False


def _find_objects(text: str, key: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder(object_pairs_hook=_reject_conflicts, strict=False)  # models put newlines into strings
    objects: list[dict[str, Any]] = []
    broken = 0
    position = text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            # A malformed object that mentions the key may be the answer, so no object inside it or elsewhere is used
            # instead. Other braces are prose or code.
            end = _find_end(text, position) if _QUOTED_KEY.match(text, position) else position + 1
            if key in text[position:end]:
                cause = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
                raise UnreadableReply(f"the JSON object is malformed: {cause}") from error
            broken += 1
            if broken > _MAX_BROKEN_OBJECTS:
                raise UnreadableReply(
                    "the reply contains too many braces that are not JSON; write one JSON object"
                ) from error
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
    """Return the end of the object at `start`, or the end of the text if the object is not closed.

    Ignores braces in double-quoted strings.
    """
    depth = 0
    for token in _STRING_OR_BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0 and token[0] == "}":
            return token.end()
    return len(text)
