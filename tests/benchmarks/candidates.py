"""Measures time and peak memory of `agent corpus candidates` with stored random vectors.

Memory is the peak resident memory of a process without the texts. Exits with 1 if it exceeds the limit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from agent.corpus.candidates import CandidateRules, Item, propose_codes, write_pairs
from agent.corpus.output import open_output
from agent.retrieval.searchers.dense import DenseSearcher, EmbeddingFile


def make_embedder(name: str) -> Any:
    """Return an embedder whose vectors are all stored."""
    return SimpleNamespace(name=name, about="", concurrency=1, settings={"random": True}, embed=None)


def make_texts(kind: str, count: int) -> list[str]:
    """Return texts of different lengths, because vectors are stored in the order of length."""
    return [f"{kind} {number} " + "pass " * (number % 97) for number in range(count)]


def store_vectors(folder: Path, searchers: list[Any], dimensions: int, **sizes: int) -> None:
    """Write random vectors to the files that `DenseSearcher` reads."""
    rng = np.random.default_rng(0)
    for searcher, (kind, count) in product(searchers, sizes.items()):
        texts = sorted(make_texts(kind, count), key=len, reverse=True)
        with EmbeddingFile(folder, {"name": searcher.name, "kind": kind, **searcher.settings}, texts) as file:
            while rows := min(8_192, count - file.rows):
                file.append(rng.standard_normal((rows, dimensions), np.float32), {})


def read_memory(field: str) -> float:
    """Return a field of /proc/self/status in MB: VmRSS (now) or VmHWM (peak)."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1024


def measure(folder: Path, searchers: list[Any], combine: Any, **sizes: int) -> tuple[float, float, float, float]:
    """Propose and write pairs. Return the duration and the CPU time in seconds, and the memory and the texts in MB."""
    before, texts = read_memory("VmRSS"), [make_texts(kind, count) for kind, count in sizes.items()]
    size, start, cpu = read_memory("VmRSS") - before, time.perf_counter(), time.process_time()
    rules, dense = CandidateRules(combine), [DenseSearcher(embedder, folder) for embedder in searchers]
    proposals, _ = propose_codes(dense, *texts, rules, lambda *_: None)  # type: ignore[misc]
    items = [[Item(str(number), text, "python", {}) for number, text in enumerate(part)] for part in texts]
    with open_output(folder / "pairs.jsonl") as writer:
        write_pairs(writer, *items, proposals, rules)
    return time.perf_counter() - start, time.process_time() - cpu, read_memory("VmHWM") - size, size


def main() -> None:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.candidates", description=__doc__)
    for name, default in {"codes": 20_000, "queries": 500, "searchers": 3, "dimensions": 768, "max-mb": 1_000}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    sizes, searchers = {"query": a.queries, "code": a.codes}, [make_embedder(f"m{n}") for n in range(a.searchers)]
    with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        store_vectors(Path(folder), searchers, a.dimensions, **sizes)
        for combine in ("mean", "repository"):
            seconds, cpu, peak, texts = pool.apply(measure, (Path(folder), searchers, combine), sizes)
            speed = f"{seconds:.1f} s, {cpu:.1f} s CPU, {a.codes * a.queries / seconds / 1e6:.1f} million pairs/s"
            print(f"{combine}: {speed}, {peak:.0f} MB besides {texts:.0f} MB of texts", flush=True)
            if peak > a.max_mb:
                sys.exit(f"exceeded the limit of {a.max_mb} MB")


if __name__ == "__main__":
    main()
