"""Replies from a file, by pair, role and turn; errors name file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InputError, ModelError
from agent.llm.base import LLM, Call
from agent.llm.replay import ReplayModel
from agent.types import Message

LINE = {"pair": "p1", "role": "screen", "reply": "a"}


def call(pair: str = "p1", role: str = "screen", turn: int = 0) -> Call:
    return Call(role=role, messages=(Message("user", "?"),), pair_id=pair, turn=turn)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(*lines: Any) -> Path:
        file = tmp_path / "replies.jsonl"
        file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
        return file

    return write


async def test_a_reply_is_found_by_pair_role_and_turn(write: Any) -> None:
    lines = [LINE, {**LINE, "pair": "p2", "reply": "b"}]
    lines += [{"pair": "p1", "role": "repair", "reply": "first"}, {"pair": "p1", "role": "repair", "reply": "second"}]
    lines += [{**LINE, "pair": "p3", "turn": 2, "reply": "third"}]
    model = ReplayModel(write(*lines))
    calls = [call("p2"), call("p1"), call(role="repair", turn=1), call(role="repair"), call("p3", turn=2)]
    assert [(await model.reply(item)).text for item in calls] == ["b", "a", "second", "first", "third"]
    assert isinstance(model, LLM)


async def test_comments_blank_lines_and_a_byte_order_mark_are_skipped(write: Any) -> None:
    file = write({"about": "written for the example"}, "", LINE)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert (await ReplayModel(file).reply(call())).text == "a"


async def test_usage_is_replayed(write: Any) -> None:
    usage = (await ReplayModel(write({**LINE, "usage": {"calls": 1, "input_tokens": 7}})).reply(call())).usage
    assert (usage.calls, usage.input_tokens) == (1, 7)


@pytest.mark.parametrize("missing", [call("p9"), call(role="judge"), call(turn=1)])
async def test_a_missing_reply_is_an_error_that_names_the_call(write: Any, missing: Call) -> None:
    with pytest.raises(ModelError) as caught:
        await ReplayModel(write(LINE)).reply(missing)
    assert f"pair {missing.pair_id!r}, role {missing.role!r}, turn {missing.turn}" in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "{not json",
        "[1]",
        {**LINE, "pair": 3},
        {**LINE, "pair": "p2", "turn": -1},
        {**LINE, "pair": "p2", "label": 1},
        {**LINE, "turn": 0, "reply": "again"},
    ],
)
def test_a_malformed_line_is_named_with_its_file(write: Any, line: Any) -> None:
    file = write(LINE, line)
    with pytest.raises(InputError, match=r"replies\.jsonl:2: "):
        ReplayModel(file)


def test_a_missing_file_and_an_empty_one_are_refused(tmp_path: Path, write: Any) -> None:
    with pytest.raises(InputError, match="nowhere"):
        ReplayModel(tmp_path / "nowhere.jsonl")
    with pytest.raises(InputError, match=r"replies\.jsonl"):
        ReplayModel(write({"about": "nothing"}))


def test_the_identity_depends_on_the_content_and_not_on_the_path(write: Any, tmp_path: Path) -> None:
    file, copy = write(LINE), tmp_path / "copy.jsonl"
    copy.write_bytes(file.read_bytes())
    first = ReplayModel(file).identity()
    assert ReplayModel(copy).identity() == first
    copy.write_bytes(file.read_bytes() + b"\n")
    assert ReplayModel(copy).identity() != first
