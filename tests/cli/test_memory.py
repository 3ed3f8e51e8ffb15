"""A run takes as much memory for many pairs as for few: what grows with them lies on the disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.memory import write_pairs

PEAK = """
import atexit, sys, tracemalloc
tracemalloc.start()
atexit.register(lambda: print(tracemalloc.get_traced_memory()[1]))
from agent.cli import main
sys.exit(main())
"""


def peak(folder: Path, number: int) -> int:
    """Annotate so many pairs in a process, and return the most bytes that its objects took at any time."""
    folder.mkdir()
    pairs = folder / "pairs.jsonl"
    write_pairs(pairs, number)
    command = [sys.executable, "-c", PEAK, "annotate", pairs, "-o", folder / "run", "--model", "heuristic"]
    done = subprocess.run(
        [*command, "--variant", "ps_fa", "--cache", folder / "cache.sqlite", "--concurrency", "16", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    summary, _, found = done.stdout.strip().rpartition("\n")
    assert json.loads(summary)["pairs"] == number
    return int(found)


@pytest.mark.long
def test_four_times_as_many_pairs_take_the_same_from_start_to_summary(tmp_path: Path) -> None:
    few, many = peak(tmp_path / "few", 1_000), peak(tmp_path / "many", 4_000)
    assert many - few < 3_000 * 300  # the pair alone would take 1,000 bytes
