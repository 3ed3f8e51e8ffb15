"""A writer that is killed at any moment loses at most what it was about to commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.store import load_run
from tests.store.samples import open_folder

ROOT = Path(__file__).parents[2]
KILLS = 20

# Forks writers, one after the other, and kills each a random time after it began to commit. Every writer opens what
# the one before left, closes now and then, and tries again what is there, so that some are killed while they compact.
# Lines of 40 KB take the kernel several steps to write, so that some are torn.
KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from tests.store.samples import make_annotation, make_error, make_evidence, open_folder

path, kills = Path(sys.argv[1]), int(sys.argv[2])
moments = random.Random(20)

def write(ready):
    while True:
        with open_folder(path) as folder:
            os.write(ready, b".")
            number = len(set(folder.index.iterate_keys()))
            for each in range(number, number + moments.randint(1, 20)):
                folder.commit(make_error(str(each)), make_evidence(str(each)))
                annotation = make_annotation(str(each), label=1, reason="x" * moments.choice((10, 30_000)))
                folder.commit(annotation, make_evidence(str(each)))

for _ in range(kills):
    started, ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(ready)
        finally:
            os._exit(1)
    os.close(ready)
    if not os.read(started, 1):
        sys.exit("a writer could not open what the one before left")
    os.close(started)
    time.sleep(moments.uniform(0, 0.1))
    os.kill(child, signal.SIGKILL)
    if os.waitpid(child, 0)[1] != signal.SIGKILL:
        sys.exit("a writer failed")
"""


@pytest.mark.long
def test_after_twenty_kills_every_record_is_whole_and_every_id_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "-c", KILLER, str(path), str(KILLS)]
    killer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert killer.returncode == 0, killer.stderr

    open_folder(path).close()
    lines = (path / "annotations.jsonl").read_bytes().split(b"\n")
    assert lines.pop() == b""
    labels = {record["id"]: record["label"] for record in map(json.loads, lines)}
    assert len(labels) == len(lines) > KILLS
    assert set(labels) == {str(number) for number in range(len(lines))}
    # of a pair that a writer was killed at, the first try may be all there is
    assert sum(label is None for label in labels.values()) <= KILLS
    assert [entry for entry in path.iterdir() if entry.name.endswith(".tmp")] == []
    with load_run(path) as run:
        assert all(run.evidence(pair_id) is not None for pair_id in labels)
