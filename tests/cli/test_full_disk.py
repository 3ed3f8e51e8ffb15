"""A full disk stops a run with a message, loses no finished pair, and the run resumes with more space."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.runs.store.run_view import load_run
from tests.cli.commands import Commands, pairs, read_annotations, reply
from tests.disks import remount, tiny_disk
from tests.llm.server import ChatServer
from tests.scripts import label

PAIRS = 40
noise = random.Random(3)


@pytest.fixture
def tiny(agent: Commands) -> Iterator[Path]:
    """A file system of half a megabyte in the command's folder."""
    with tiny_disk(agent.folder / "tiny") as folder:
        yield folder


@pytest.mark.long
@pytest.mark.parametrize("cache", ["cache.sqlite", "tiny/cache.sqlite"])
def test_full_disk_stops_the_run_and_more_space_resumes_it(agent: Commands, tiny: Path, cache: str) -> None:
    file = agent.write("p.jsonl", pairs(PAIRS))
    with ChatServer(lambda _: reply(label(1, noise.randbytes(12_000).hex()))) as server:
        command = ("annotate", file, "--variant", "single_llm", "--model", "m", "--base-url", server.url)
        command = (*command, "-o", "tiny/run", "--cache", cache, "--concurrency", "4")
        stopped = agent(*command)
        assert (stopped.code, stopped.out) == (3, "")
        assert "disk" in stopped.err
        assert "Traceback" not in stopped.err
        before = read_annotations(tiny / "run")
        assert 0 < len(before) < PAIRS
        assert all(annotation["error"] is None for annotation in before)
        assert f"\n{len(before)} pairs " in stopped.err
        assert "\n  agent annotate" in stopped.err

        remount(tiny, "size=64m")
        done = agent(*command, "--json")
    assert (done.code, done.json["annotated_now"]) == (0, PAIRS - len(before))
    rows = read_annotations(tiny / "run")
    assert rows[: len(before)] == before
    assert Counter(a["id"] for a in rows) == {f"p{number}": 1 for number in range(PAIRS)}
    with load_run(tiny / "run") as view:
        assert all(view.evidence(annotation["id"]) is not None for annotation in rows)


def test_unwritable_run_is_reported(agent: Commands, tiny: Path) -> None:
    (tiny / "filler").write_bytes(b"x" * (508 * 1024))
    result = agent("annotate", agent.write("p.jsonl", pairs(1)), "--model", "heuristic", "-o", "tiny/run")
    assert (result.code, result.out) == (3, "")
    assert "disk" in result.err
    assert "Traceback" not in result.err
