"""A disk that fills up in mid-run: said so, nothing finished is lost, and the same command goes on in more room."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.store import load_run
from tests.cli.commands import Commands, annotations, pairs, reply
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
def test_a_full_disk_stops_the_run_and_more_room_lets_it_go_on(agent: Commands, tiny: Path, cache: str) -> None:
    file = agent.write("p.jsonl", pairs(PAIRS))
    with ChatServer(lambda _: reply(label(1, noise.randbytes(12_000).hex()))) as server:
        command = ("annotate", file, "--variant", "single_llm", "--model", "m", "--base-url", server.url)
        command = (*command, "-o", "tiny/run", "--cache", cache, "--concurrency", "4")
        stopped = agent(*command)
        assert (stopped.code, stopped.out) == (3, "")
        assert "the disk is full" in stopped.err
        assert "Traceback" not in stopped.err
        kept = annotations(tiny / "run")
        assert 0 < len(kept) < PAIRS
        assert all(annotation["error"] is None for annotation in kept)
        assert f"{len(kept)} pairs are finished and stored in tiny/run." in stopped.err
        assert "The same command goes on from there:" in stopped.err

        remount(tiny, "size=64m")
        done = agent(*command, "--json")
    assert (done.code, done.json["annotated_now"]) == (0, PAIRS - len(kept))
    found = annotations(tiny / "run")
    assert found[: len(kept)] == kept
    assert Counter(a["id"] for a in found) == {f"p{number}": 1 for number in range(PAIRS)}
    with load_run(tiny / "run") as view:
        assert all(view.evidence(annotation["id"]) is not None for annotation in found)


def test_a_run_that_cannot_be_written_at_all_is_told(agent: Commands, tiny: Path) -> None:
    (tiny / "filler").write_bytes(b"x" * (508 * 1024))
    ended = agent("annotate", agent.write("p.jsonl", pairs(1)), "--model", "heuristic", "-o", "tiny/run")
    assert (ended.code, ended.out) == (3, "")
    assert "the disk is full" in ended.err
    assert "Traceback" not in ended.err
