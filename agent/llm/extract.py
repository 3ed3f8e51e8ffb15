"""Finds the readable parts of a reply: its fenced blocks and its JSON object."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

from agent.prompt_text import sound

MAX_REPLY = 200_000
_MAX_BROKEN_OBJECTS = 100

_THINKING = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_OPEN_THINKING = re.compile(r"\s*<think(?:ing)?>")
_TAG = re.compile(r"<(?P<closing>/?)think(?:ing)?>")
INVISIBLE = " \t\r\n\f\v\0\u00a0\u200b\u2060\ufeff"
_QUOTED_KEY = re.compile(r"""\{\s*["']""")
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}]', re.DOTALL)
_OPENING = re.compile(r"(?P<indent> {0,3})(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")


class Unparsable(ValueError):
    """A reply breaks its format; the message says how, in words that a model can act on."""


def blank(text: str) -> bool:
    """Say whether a reply has no visible text (thinking does not count)."""
    return not text[_thought(text) :].strip(INVISIBLE)


def without_thinking(text: str) -> str:
    """Return the reply after its leading `<think>` part, which may have been opened in the prompt.

    Raises:
        Unparsable: the reply is too long, or ends while still thinking.
    """
    start = _thought(text)
    if start == 0 and _OPEN_THINKING.match(text):
        raise Unparsable("the reply ends within its <think> part: there is no answer after it")
    answer = text[start:]
    if len(answer) > MAX_REPLY:
        raise Unparsable(f"the reply has {len(answer):,} characters; at most {MAX_REPLY:,} are read")
    return answer


def _thought(text: str) -> int:
    """Return how many characters of a reply are thinking.

    Some chat templates open it in the prompt, so that replies hold only its end.
    """
    found = _THINKING.match(text)
    if found is not None:
        return found.end()
    tags = list(islice(_TAG.finditer(text), 2))
    return tags[0].end() if len(tags) == 1 and tags[0]["closing"] and not _is_content(tags[0]) else 0


def _is_content(tag: re.Match[str]) -> bool:
    """Say whether a tag stands in quotes, in a fenced block or in a JSON object: part of an answer."""
    text, start, end = tag.string, tag.start(), tag.end()
    if text[start - 1 : start] in ("`", "'", '"') and text[start - 1 : start] == text[end : end + 1]:
        return True
    opened: re.Match[str] | None = None
    for line in text[:start].replace("\r\n", "\n").split("\n")[:-1]:
        if opened is None:
            opened = _OPENING.fullmatch(line)
        elif _closes(line, opened["fence"]):
            opened = None
    return opened is not None or _in_object(text, start)


def _in_object(text: str, place: int) -> bool:
    position = text.find("{", 0, place)
    while position >= 0:
        end = _extent(text, position) if _QUOTED_KEY.match(text, position) else position + 1
        if end > place:
            return True
        position = text.find("{", end, place)
    return False


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


def json_object(text: str, key: str) -> dict[str, Any]:
    """Return the object of a reply that has `key`, prose around it aside.

    Raises:
        Unparsable: there is none, one is malformed or says `key` twice, or several disagree on it.
    """
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
