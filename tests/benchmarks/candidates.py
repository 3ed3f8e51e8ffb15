"""Measures time and peak memory of `agent corpus candidates` with stored random vectors.

Each rule is measured in a process of its own. Memory is the peak resident memory without the texts. Exits with 1 if it
exceeds the limit. The vectors need 4 bytes × codes × searchers × dimensions of disk space in TMPDIR.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from agent.corpus.candidates import CandidateRules, Item, propose_codes, write_pairs
from agent.corpus.output import open_output
from agent.retrieval.searchers.dense import DenseSearcher, EmbeddingFile


@dataclass
class StoredEmbedder:
    """An embedder whose vectors are all stored."""

    name: str
    about, concurrency, settings, embed = "", 1, {"random": True}, None


def make_texts(kind: str, count: int) -> list[str]:
    # vectors are stored by length, which is not the order of the texts
    return [f"{kind} {number} " + "pass " * (number % 97) for number in range(count)]


def store_vectors(folder: Path, sizes: dict[str, int], searchers: Sequence[str], dimensions: int) -> None:
    """Write random vectors to the files that `DenseSearcher` reads."""
    rng = np.random.default_rng(0)
    for embedder in map(StoredEmbedder, searchers):
        for kind, count in sizes.items():
            texts = sorted(make_texts(kind, count), key=len, reverse=True)
            with EmbeddingFile(folder, {"name": embedder.name, "kind": kind, **embedder.settings}, texts) as file:
                while rows := min(8_192, count - file.rows):
                    file.append(rng.standard_normal((rows, dimensions), np.float32), {})


def read_memory(field: str) -> float:
    """Return a field of /proc/self/status in MB: VmRSS (now) or VmHWM (peak)."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1024


def measure(
    folder: Path, sizes: dict[str, int], searchers: Sequence[str], combine: Any
) -> tuple[float, float, float, float]:
    """Propose and write pairs. Return the duration and the CPU time in seconds, and the memory and the texts in MB."""
    before, rules = read_memory("VmRSS"), CandidateRules(combine=combine)
    queries, codes = (make_texts(kind, count) for kind, count in sizes.items())
    size, start, cpu = read_memory("VmRSS") - before, time.perf_counter(), time.process_time()
    dense: list[Any] = [DenseSearcher(StoredEmbedder(name), folder) for name in searchers]  # type: ignore[arg-type]
    proposals, _ = propose_codes(dense, queries, codes, rules, lambda *_: None)
    items = [[Item(str(number), text, "python", {}) for number, text in enumerate(part)] for part in (queries, codes)]
    with open_output(folder / "pairs.jsonl") as writer:
        write_pairs(writer, *items, proposals, rules)
    return time.perf_counter() - start, time.process_time() - cpu, read_memory("VmHWM") - size, size


def main() -> None:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.candidates", description=__doc__)
    for name, default in {"codes": 20_000, "queries": 500, "searchers": 3, "dimensions": 768, "max-mb": 1_000}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    sizes, searchers = {"query": a.queries, "code": a.codes}, [f"m{number}" for number in range(a.searchers)]
    with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        store_vectors(Path(folder), sizes, searchers, a.dimensions)
        for combine in ("mean", "repository"):
            seconds, cpu, peak, texts = pool.apply(measure, (Path(folder), sizes, searchers, combine))
            speed = f"{seconds:.1f} s, {cpu:.1f} s CPU, {a.codes * a.queries / seconds / 1e6:.1f} million pairs/s"
            print(f"{combine}: {speed}, {peak:.0f} MB besides {texts:.0f} MB of texts", flush=True)
            if peak > a.max_mb:
                sys.exit(f"exceeded the limit of {a.max_mb} MB")


if __name__ == "__main__":
    main()
