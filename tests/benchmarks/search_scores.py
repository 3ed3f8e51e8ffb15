"""Simulates reviews of search results with known label errors, and measures the coverage of corrected scores."""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from agent.evaluation.corrected_means import CELLS, LabelSums, estimate_means
from agent.evaluation.statistics import BootstrapSettings

K = 10
LIMIT = 0.93
_RANKS = np.arange(K)
MEASURES = {"P@1": (_RANKS == 0) * 1.0, "P@10": np.full(K, 1 / K), "DCG@10": 1 / np.log2(_RANKS + 2)}
# share of label 1 by rank, and factors of this share in easy and hard queries (their mean is 1)
_SHARES, _FACTORS = np.linspace(0.65, 0.2, K), np.array([0.4, 1.0, 1.6])
NAMES = [f"{kind}{measure}" for kind in ("", "difference in ") for measure in MEASURES]


class Shape(NamedTuple):
    """A simulated benchmark. `wrong` is the label that may be wrong, and `rate` the share of its labels that are.

    `density` scales the share of label 1. If `clustered` is set, all errors are in a quarter of the queries.
    """

    reviewed: int
    wrong: int
    rate: float
    density: float = 1.0
    queries: int = 500
    clustered: bool = False


SHAPES = [
    Shape(reviewed, wrong, rate, density, clustered=clustered)
    for clustered, density, reviewed, wrong, rate in product(
        (False, True), (1.0, 0.25), (30, 100), (1, 0), (0.02, 0.04, 0.1)
    )
]


def make_sums(shape: Shape, random: Any) -> tuple[LabelSums, Any]:
    """Simulate two searchers. Return the sums of their labels, and the correct mean of each measure.

    The second searcher swaps neighbours of the first one's results, and replaces two fifths with less relevant ones.
    """
    size = (shape.queries, K)
    shares = shape.density * _SHARES * random.choice(_FACTORS, size=(shape.queries, 1), p=[0.3, 0.45, 0.25])
    labels = random.random((shape.queries, 2 * K)) < np.minimum(np.hstack([shares, 0.8 * shares]), 1)
    rates = shape.rate * (4 * (random.random((shape.queries, 1)) < 0.25) if shape.clustered else 1)
    wrong = (labels == shape.wrong) & (random.random(labels.shape) < rates)
    swapped, replaced = np.repeat(random.random((shape.queries, K // 2)) < 0.5, 2, axis=1), random.random(size) < 0.4
    weights = []
    for discounts in MEASURES.values():
        kept = np.where(replaced, 0, discounts)
        other = kept.reshape(-1, K // 2, 2)[:, :, ::-1].reshape(size)
        first = np.hstack([np.tile(discounts, (shape.queries, 1)), np.zeros(size)])
        weights.append((first, np.hstack([np.where(swapped, other, kept), discounts - kept]) - first))
    matrix = np.stack([pair[kind] for kind in (0, 1) for pair in weights], axis=1)
    cells = np.stack([np.maximum(sign * matrix, 0) * (labels == label)[:, None] for label, sign in CELLS], axis=2)
    sums = cells.sum(axis=3), (cells[: shape.reviewed] * wrong[: shape.reviewed, None, None]).sum(axis=3)
    return LabelSums((matrix * labels[:, None]).sum(axis=2), *sums), (matrix * (labels ^ wrong)[:, None]).sum(axis=2)


def simulate(shape: Shape, runs: int, resamples: int = 500, seed: int = 1) -> dict[str, float]:
    """Return the smaller coverage by measure: of the mean of these queries, or of the mean of all such queries."""
    random = np.random.default_rng(seed)
    many = [make_sums(shape._replace(queries=10_000, reviewed=0), random)[1].mean(axis=0) for _ in range(20)]
    truth = np.mean(many, axis=0)
    covered = Counter[tuple[str, bool]]()
    for run in range(runs):
        sums, correct = make_sums(shape, random)
        estimates = estimate_means(sums, BootstrapSettings(seed=run, resamples=resamples))
        for name, (*_, interval), *targets in zip(NAMES, estimates, correct.mean(axis=0), truth, strict=True):
            for kind, target in enumerate(targets):
                covered[name, bool(kind)] += interval.low <= target <= interval.high
    return {name: float(min(covered[name, False], covered[name, True])) / runs for name in NAMES}


def main() -> None:
    """Parse the command line, simulate, print a table, and exit with status 1 if a coverage is below the limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_scores", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="Simulated runs per shape.")
    parser.add_argument("--queries", type=int, default=500, help="Queries of a benchmark.")
    arguments, failed = parser.parse_args(), False
    for shape in SHAPES:
        result = simulate(shape._replace(queries=arguments.queries), arguments.runs)
        failed |= min(result.values()) < LIMIT
        where = ", ".join(f"{name} {value:g}" for name, value in shape._asdict().items())
        print(f"{where}:  {'  '.join(f'{name} {value:.3f}' for name, value in result.items())}", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
