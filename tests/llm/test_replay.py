"""Replies from a file: by pair, role and turn; a file with faults is refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InputError, ModelError
from agent.llm.base import LLM, Call
from agent.llm.replay import ReplayModel
from agent.types import Message


def call(pair: str = "p1", role: str = "screen", turn: int = 0) -> Call:
    return Call(role=role, messages=(Message("user", "?"),), pair_id=pair, turn=turn)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(*lines: Any) -> Path:
        file = tmp_path / "replies.jsonl"
        file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
        return file

    return write


async def test_a_reply_is_found_by_pair_and_role(write: Any) -> None:
    model = ReplayModel(
        write({"pair": "p1", "role": "screen", "reply": "a"}, {"pair": "p2", "role": "screen", "reply": "b"})
    )
    assert (await model.reply(call("p2"))).text == "b"
    assert (await model.reply(call("p1"))).text == "a"


async def test_turns_count_in_the_order_of_the_file(write: Any) -> None:
    model = ReplayModel(
        write(
            {"pair": "p1", "role": "repair", "reply": "first"},
            {"pair": "p1", "role": "screen", "reply": "other"},
            {"pair": "p1", "role": "repair", "reply": "second"},
        )
    )
    assert [(await model.reply(call(role="repair", turn=turn))).text for turn in (1, 0)] == ["second", "first"]


async def test_a_turn_may_be_named(write: Any) -> None:
    model = ReplayModel(write({"pair": "p1", "role": "screen", "turn": 2, "reply": "third"}))
    assert (await model.reply(call(turn=2))).text == "third"


async def test_comments_blank_lines_and_a_byte_order_mark_are_skipped(write: Any) -> None:
    file = write({"about": "written for the example"}, "", {"pair": "p1", "role": "screen", "reply": "a"})
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert (await ReplayModel(file).reply(call())).text == "a"


async def test_usage_is_given_as_recorded(write: Any) -> None:
    model = ReplayModel(write({"pair": "p1", "role": "screen", "reply": "a", "usage": {"calls": 1, "input_tokens": 7}}))
    usage = (await model.reply(call())).usage
    assert (usage.calls, usage.input_tokens) == (1, 7)


@pytest.mark.parametrize("asked", [call("p9"), call(role="judge"), call(turn=1)])
async def test_a_reply_that_is_not_there_is_an_error_that_names_the_call(write: Any, asked: Call) -> None:
    model = ReplayModel(write({"pair": "p1", "role": "screen", "reply": "a"}))
    with pytest.raises(ModelError) as caught:
        await model.reply(asked)
    assert f"pair {asked.pair_id!r}, role {asked.role!r}, turn {asked.turn}" in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "{not json",
        "[1]",
        "3",
        {"pair": "p2", "role": "screen"},
        {"pair": 3, "role": "screen", "reply": "a"},
        {"pair": "p2", "role": "screen", "reply": None},
        {"pair": "p2", "role": "screen", "reply": "a", "turn": -1},
        {"pair": "p2", "role": "screen", "reply": "a", "usage": {"tokens": 3}},
        {"pair": "p2", "role": "screen", "reply": "a", "label": 1},
        {"pair": "p1", "role": "screen", "turn": 0, "reply": "again"},
        "[" * 100_000,
    ],
)
def test_a_malformed_line_is_refused_with_file_and_line(write: Any, line: Any) -> None:
    file = write({"pair": "p1", "role": "screen", "reply": "a"}, line)
    with pytest.raises(InputError, match=r"replies\.jsonl:2: "):
        ReplayModel(file)


def test_a_missing_file_and_an_empty_one_are_refused(tmp_path: Path, write: Any) -> None:
    with pytest.raises(InputError, match="nowhere"):
        ReplayModel(tmp_path / "nowhere.jsonl")
    with pytest.raises(InputError, match="no replies"):
        ReplayModel(write({"about": "nothing"}))


def test_the_identity_is_the_content_not_the_place(write: Any, tmp_path: Path) -> None:
    file = write({"pair": "p1", "role": "screen", "reply": "a"})
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(file.read_bytes())
    first = ReplayModel(file).identity()
    assert ReplayModel(copy).identity() == first
    copy.write_bytes(file.read_bytes() + b"\n")
    assert ReplayModel(copy).identity() != first


def test_it_is_a_language_model(write: Any) -> None:
    assert isinstance(ReplayModel(write({"pair": "p1", "role": "screen", "reply": "a"})), LLM)
