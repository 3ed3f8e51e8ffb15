"""The searcher `minilm` with the real model, on CoSQA's search task."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from agent.cli.exit_codes import DONE
from agent.retrieval.searchers.models import measure_bfloat16_speedup
from tests.cli.commands import Commands

pytestmark = [pytest.mark.embed, pytest.mark.long, pytest.mark.network, pytest.mark.real_data]
AGENT = "import agent.cli; agent.cli.main()"


def measure(agent: Commands, data: Path, model: Path, precision: str) -> tuple[float, float]:
    """Return nDCG@10, and the CPU seconds of a new process that embeds all snippets and queries."""
    benchmark = (data / "cosqa_search_dev_500.jsonl", "--codes", data / "cosqa_search_codes_6267.jsonl")
    options = ("--searcher", f"minilm:{model}", "--precision", precision, "-o", precision)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = agent.run_python(AGENT, "retrieval", "run", *benchmark, *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run.code == DONE, run.err
    rankings = json.loads((agent.folder / precision / "manifest.json").read_text())["rankings"]
    assert rankings["minilm"]["settings"].get("precision", "float32") == precision
    [scores] = agent("retrieval", "score", precision, "--metric", "nDCG@10", "--json").json["searchers"]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{precision}: nDCG@10 {scores['values']['nDCG@10']['mean']:.4f}, {seconds:.0f} CPU seconds")
    return scores["values"]["nDCG@10"]["mean"], seconds


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[float, float]]:
    """The measurements by precision, which both tests use."""
    return {}


def test_scores_on_cosqa_in_float32_and_bfloat16(
    agent: Commands, real_data: Path, minilm_folder: Path, measured: dict[str, tuple[float, float]]
) -> None:
    for precision in ("float32", "bfloat16"):
        measured[precision] = measure(agent, real_data, minilm_folder, precision)
    assert measured["float32"][0] == pytest.approx(0.60, abs=0.01)
    assert measured["bfloat16"][0] == pytest.approx(measured["float32"][0], abs=0.003)


def test_bfloat16_halves_the_cpu_seconds_where_the_cpu_is_fast_at_it(measured: dict[str, tuple[float, float]]) -> None:
    seconds = {precision: own for precision, (_, own) in measured.items()}
    if (speedup := measure_bfloat16_speedup()) < 2:
        pytest.xfail(f"this CPU multiplies {speedup:.1f} times as fast in bfloat16 as in float32: {seconds}")
    assert seconds["bfloat16"] <= seconds["float32"] / 2
