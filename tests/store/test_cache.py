"""The reply cache: replies come back, processes share it, damage is told."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import RunFolderError
from agent.llm.base import Reply
from agent.store import SqliteReplyCache
from agent.types import Usage

REPLY = Reply(
    text="def f():\ud800\x00\n",
    usage=Usage(calls=2, input_tokens=7, output_tokens=3, cost_usd=0.25),
    model="m-2026",
    fingerprint="fp",
    finish_reason="stop",
    reasoning="because",
    raw={"choices": [{"text": "x" * 1000}], "n": 2**70},
)


def test_a_reply_comes_back_with_the_usage_it_was_paid_with(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "cache.sqlite"
    with SqliteReplyCache(path) as cache:
        cache.put("k", REPLY)
        assert cache.get("k") == REPLY
        assert cache.get("other") is None
    with SqliteReplyCache(path) as cache:
        assert cache.get("k") == REPLY


def test_the_first_reply_of_a_key_stays_until_it_is_forgotten(tmp_path: Path) -> None:
    later = Reply(text="", usage=Usage(cost_usd=None))
    with SqliteReplyCache(tmp_path / "c") as cache:
        for reply in (REPLY, later):
            cache.put("k", reply)
            assert cache.get("k") == REPLY
        for _ in range(2):
            cache.forget("k")
            assert cache.get("k") is None
        cache.put("k", later)
        assert cache.get("k") == later


WRITERS = """
import os, sys
from pathlib import Path
from agent.llm.base import Reply
from agent.store import SqliteReplyCache
children = []
for writer in range(4):
    pid = os.fork()
    if pid == 0:
        with SqliteReplyCache(Path(sys.argv[1])) as cache:
            for number in range(100):
                cache.put(f"own-{writer}-{number}", Reply(text=f"{writer} {number}"))
                cache.put(f"shared-{number}", Reply(text=str(number)))
                assert cache.get(f"shared-{number}").text == str(number)
        os._exit(0)
    children.append(pid)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
"""


@pytest.mark.long
def test_processes_create_and_fill_it_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    done = subprocess.run([sys.executable, "-c", WRITERS, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with SqliteReplyCache(path) as cache:
        for number in range(100):
            replies = [cache.get(f"own-{writer}-{number}") for writer in range(4)]
            assert [reply and reply.text for reply in replies] == [f"{writer} {number}" for writer in range(4)]


def read_all(path: Path) -> list[Reply | None]:
    with SqliteReplyCache(path) as cache:
        return [cache.get(f"{number}") for number in range(200)]


@pytest.mark.parametrize("damage", ["all of it", "a page in the middle"])
def test_a_damaged_file_is_told_with_the_remedy(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cache.sqlite"
    with SqliteReplyCache(path) as cache:
        for number in range(200):
            cache.put(f"{number}", Reply(text=f"{number}" * 500))
    content = bytearray(path.read_bytes())
    start = 0 if damage == "all of it" else 4096
    content[start:] = b"\xee" * (len(content) - start)
    path.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"damaged.*Delete it.*--cache"):
        read_all(path)


def test_an_unreadable_reply_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with SqliteReplyCache(path) as cache:
        cache.put("k", REPLY)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE replies SET reply = x'00'")
    connection.close()
    with SqliteReplyCache(path) as cache, pytest.raises(RunFolderError, match="unreadable reply"):
        cache.get("k")
