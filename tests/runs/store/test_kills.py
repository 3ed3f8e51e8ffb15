"""A killed writer loses at most the pair that it was about to commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.runs.store.run_view import load_run
from tests.runs.store.samples import open_folder

ROOT = Path(__file__).parents[3]
KILLS = 20

# Forks writers one after the other and kills each a random time after its first commit. Every writer opens the folder
# of the previous one and sometimes closes it, so some writers are killed while they compact the annotations. The
# kernel writes lines of 30 KB in several steps, so some lines are truncated.
KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from tests.runs.store.samples import make_annotation, make_error, make_evidence, open_folder

path, kills = Path(sys.argv[1]), int(sys.argv[2])
moments = random.Random(20)

def write(ready):
    while True:
        with open_folder(path) as folder:
            os.write(ready, b".")
            number = len(set(folder.index.iterate_keys()))
            for pair_id in map(str, range(number, number + moments.randint(1, 20))):
                folder.commit(make_error(pair_id), make_evidence(pair_id))
                annotation = make_annotation(pair_id, label=1, reason="x" * moments.choice((10, 30_000)))
                folder.commit(annotation, make_evidence(pair_id))

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
        sys.exit("a writer could not open the folder of the previous one")
    os.close(started)
    time.sleep(moments.uniform(0, 0.1))
    os.kill(child, signal.SIGKILL)
    if os.waitpid(child, 0)[1] != signal.SIGKILL:
        sys.exit("a writer failed")
"""


@pytest.mark.long
def test_after_twenty_kills_every_record_is_complete_and_every_id_occurs_once(tmp_path: Path) -> None:
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
    # A killed writer may have committed only the first annotation of a pair, which is an error.
    assert sum(label is None for label in labels.values()) <= KILLS
    assert [entry for entry in path.iterdir() if entry.name.endswith(".tmp")] == []
    with load_run(path) as run:
        assert all(run.evidence(pair_id) is not None for pair_id in labels)
