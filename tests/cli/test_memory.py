"""The memory of a run does not grow with the number of pairs."""

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


def measure_peak(folder: Path, number: int) -> int:
    """Annotate `number` pairs in a process and return the peak size of its objects in bytes."""
    folder.mkdir()
    pairs = folder / "pairs.jsonl"
    write_pairs(pairs, number)
    command = [sys.executable, "-c", PEAK, "annotate", pairs, "-o", folder / "run", "--model", "heuristic"]
    done = subprocess.run(
        [*command, "--variant", "ps_fa", "--cache", folder / "cache.sqlite", "--concurrency", "16", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    summary, _, peak_bytes = done.stdout.strip().rpartition("\n")
    assert json.loads(summary)["pairs"] == number
    return int(peak_bytes)


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_pairs(tmp_path: Path) -> None:
    few, many = measure_peak(tmp_path / "few", 1_000), measure_peak(tmp_path / "many", 4_000)
    assert many - few < 3_000 * 300  # one pair takes 1,000 bytes
