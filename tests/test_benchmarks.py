"""The benchmarks of `make bench` run and print their measurements."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[1]


def run(line: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *line.split()]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.bwrap
@pytest.mark.node
def test_the_sandbox_benchmark_prints_a_table_and_writes_all_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = run(f"tests.benchmarks --pairs 3 --cycles 2 --json {figures}")
    assert done.returncode == 0, done.stderr
    assert "cycles/s" in done.stdout
    document = json.loads(figures.read_text())
    assert document["latency"]["bare process"]["n"] == 3
    for name in (f"{backend} sandbox" for backend in document["backends"]):
        for series in (name, f"{name}, JavaScript"):
            assert 0 < document["latency"][series]["median_ms"] <= document["latency"][series]["p90_ms"]
            assert set(document["cycles_per_second"][series]) == {"1", "4", "8", "16"}
            assert document["cpu_ms_per_cycle"][series] > 0
        assert document["environment"][name]["added_ms"] >= 0


@pytest.mark.chromium
def test_the_report_benchmark_writes_and_opens_a_report() -> None:
    done = run("tests.benchmarks.reports --pairs 30 --times 2")
    assert done.returncode == 0, done.stderr
    assert "30 pairs" in done.stdout
    assert re.search(r"first chart\D+2\D+[1-9]\d*\D+[1-9]", done.stdout)


def test_the_call_benchmark_prints_the_overhead_of_a_pair() -> None:
    done = run("tests.benchmarks.calls --calls 20 --in-flight 4 --times 1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"pair.*[+-]\d+\.\d\d ms", done.stdout)


def test_the_throughput_benchmark_fails_below_its_minimum(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = run(f"tests.benchmarks.throughput --pairs 60 --in-flight 12 --delay 0.2 --min-gain 1000 --json {figures}")
    assert done.returncode == 1
    assert re.fullmatch(r"[^\n]*\bRay\b.*\d+\.\d\d.*\b1000\b.*\n", done.stderr)
    document = json.loads(figures.read_text())
    assert document["server_ms"] >= 0  # whole clock ticks, and few requests
    assert len(document["setups"]) == 3
    assert all(setup["ideal"] == 1.0 <= setup["ratio"] for setup in document["setups"].values())


def test_the_memory_benchmark_prints_the_growth() -> None:
    done = run("tests.benchmarks.memory --pairs 20")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\b200\b.*\d MB", done.stdout)
    assert re.search(r"\d\.\d\d ×", done.stdout)


@pytest.mark.parametrize(("limit", "code"), [("1000", 0), ("1", 1)])
def test_the_candidates_benchmark_limits_the_memory(limit: str, code: int) -> None:
    done = run(f"tests.benchmarks.candidates --codes 200 --queries 10 --dimensions 8 --max-mb {limit}")
    assert done.returncode == code, done.stderr
    assert re.search(r"^mean: .* \d+ MB\b", done.stdout)
