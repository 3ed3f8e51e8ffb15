"""The reply cache: replies round-trip, processes share it, damage is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import RunFolderError
from agent.llm.base import Reply
from agent.runs.store.cache import SqliteReplyCache
from agent.types import Usage
from tests.runs.store.samples import execute_sql

REPLY = Reply(
    text="def f():\ud800\x00\n",
    usage=Usage(calls=2, input_tokens=7, output_tokens=3, cost_usd=0.25),
    model="m-2026",
    fingerprint="fp",
    finish_reason="stop",
    reasoning="because",
    raw={"choices": [{"text": "x" * 1000}], "n": 2**70},
)


def test_replies_round_trip_with_their_original_usage(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "cache.sqlite"
    with SqliteReplyCache(path) as cache:
        cache.put("k", REPLY)
        assert cache.get("k") == REPLY
        assert cache.get("other") is None
    with SqliteReplyCache(path) as cache:
        assert cache.get("k") == REPLY


def test_the_first_reply_for_a_key_is_kept_until_it_is_removed(tmp_path: Path) -> None:
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
from agent.runs.store.cache import SqliteReplyCache
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
def test_processes_create_and_fill_the_cache_concurrently(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    writers = subprocess.run([sys.executable, "-c", WRITERS, path], capture_output=True, text=True, timeout=60)
    assert writers.returncode == 0, writers.stderr
    with SqliteReplyCache(path) as cache:
        for number in range(100):
            replies = [cache.get(f"own-{writer}-{number}") for writer in range(4)]
            assert [reply and reply.text for reply in replies] == [f"{writer} {number}" for writer in range(4)]


def read_all(path: Path) -> list[Reply | None]:
    with SqliteReplyCache(path) as cache:
        return [cache.get(f"{number}") for number in range(200)]


@pytest.mark.parametrize("start", [0, 4096])
def test_a_damaged_file_is_reported_with_a_remedy(tmp_path: Path, start: int) -> None:
    path = tmp_path / "cache.sqlite"
    with SqliteReplyCache(path) as cache:
        for number in range(200):
            cache.put(f"{number}", Reply(text=f"{number}" * 500))
    content = bytearray(path.read_bytes())
    content[start:] = b"\xee" * (len(content) - start)
    path.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"cache\.sqlite: .*damaged.*--cache"):
        read_all(path)


def test_an_unreadable_reply_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with SqliteReplyCache(path) as cache:
        cache.put("k", REPLY)
    execute_sql(path, "UPDATE replies SET reply = x'00'")
    with SqliteReplyCache(path) as cache, pytest.raises(RunFolderError, match="unreadable"):
        cache.get("k")
