"""Simulates reviews of runs with known errors, and checks what certificates and calibrations guarantee."""

from __future__ import annotations

import argparse
from collections import defaultdict
from functools import cache
from itertools import accumulate
from typing import Any
from unittest.mock import patch

import numpy as np

from agent.evaluation import certificate
from agent.evaluation.certificate import ALPHA, Calibration, Outcome, ReviewedStrata, calibrate, certify
from agent.evaluation.statistics import bound_errors

LEVEL = 0.05
PAIRS = 200_000
# strata in the order of their evidence: share of the pairs, and share of label 1 in the stratum
SHARES = (0.16, 0.08, 0.03, 0.52, 0.05, 0.06, 0.06, 0.04)
ONES = (0.0, 1.0, 0.5, 0.0, 1.0, 0.3, 0.1, 0.9)
# error rates of the strata, or of label 0 and label 1 in all strata (with 8% ones)
SHAPES = {
    "even": (0.04,) * 8,
    "uneven": (0.003, 0.01, 0.02, 0.03, 0.06, 0.08, 0.12, 0.25),
    "rare": (0.008,) * 8,
    "ones": (0.002, 0.45),
}
REVIEWS = (200, 600)


def make_shape(name: str) -> Any:
    """Return the number of pairs by stratum, label, and right or wrong."""
    rates = np.array(SHAPES[name])
    rates = np.tile(rates, (8, 1)) if len(rates) == 2 else np.stack([rates, rates], axis=1)
    ones = np.full(8, 0.08) if name == "ones" else np.array(ONES)
    sizes = PAIRS * np.array(SHARES)[:, None] * np.stack([1 - ones, ones], axis=1)
    wrong = np.rint(sizes * rates)
    return np.stack([np.rint(sizes) - wrong, wrong], axis=2).astype(int)


def simulate(name: str, reviews: int, runs: int, seed: int = 1) -> dict[str, float]:
    """Simulate the reviews of `runs` runs. Return shares of the runs and means."""
    shape, totals = make_shape(name), defaultdict[str, Any](float)
    random = np.random.default_rng(seed)
    draws = random.multivariate_hypergeometric(shape.ravel(), reviews, size=runs, method="marginals")
    with patch.object(certificate, "bound_errors", cache(bound_errors)):
        for draw in draws:
            cells = random.permutation(np.repeat(np.arange(draw.size), draw))
            outcomes = [Outcome(int(cell) // 4, int(cell) // 2 % 2, bool(cell % 2)) for cell in cells]  # type: ignore[arg-type]
            reviewed = ReviewedStrata(tuple(map(tuple, shape.sum(axis=2).tolist())), tuple(outcomes))
            _add_certificates(totals, shape, reviewed, reviews)
            _add_calibration(totals, shape, calibrate(reviewed))
    # a value for each prefix becomes the largest one
    return {figure: float(np.max(value)) / runs for figure, value in totals.items()}


def _add_certificates(totals: dict[str, Any], shape: Any, reviewed: ReviewedStrata, reviews: int) -> None:
    prefixes = [reviewed.select(range(number)) for number in range(1, len(shape) + 1)]
    wrong = list(accumulate(shape[:, :, 1].sum(axis=1).tolist()))
    passed = [certificate.bound_exactly(size, outcomes) <= LEVEL * size for size, outcomes in prefixes]
    totals["best"] += np.array(passed) * [size / PAIRS for size, _ in prefixes]
    capitals = [
        certificate.compute_capital(size, outcomes, k) for (size, outcomes), k in zip(prefixes, wrong, strict=True)
    ]
    anytime = np.array([capital.max(initial=1) >= 1 / ALPHA for capital in capitals])
    exact = np.array([certificate.bound_exactly(size, w) for size, w in prefixes]) < wrong
    totals["anytime"] += anytime
    totals["either"] += anytime | exact
    # the tight level is slightly below the error rate, so that certifying the whole run is always false
    tight = 0.98 * wrong[-1] / PAIRS
    for level, prefix in ((LEVEL, ""), (tight, "tight_")):
        result = certify(reviewed, reviews, level)
        truth = shape[: result.strata, :, 1].sum(axis=0)
        totals[f"{prefix}false"] += truth.sum() > level * result.total.size
        bounds = (result.total.bound, result.zeros.bound, result.ones.bound)
        totals[f"{prefix}bounds"] += bool(np.any(bounds < np.array([truth.sum(), *truth])))
        if level == LEVEL:
            totals["kept"] += result.total.size / PAIRS


def _add_calibration(totals: dict[str, Any], shape: Any, calibration: Calibration) -> None:
    sizes = shape.sum(axis=(1, 2))
    truth, weights = shape[:, :, 0].sum(axis=1) / sizes, sizes / sizes.sum()
    predicted = np.array([rate.p_correct for rate in calibration.strata])
    totals["p_low"] += all(rate.p_low <= share for rate, share in zip(calibration.strata, truth, strict=True))
    totals["rate_error"] += weights @ abs(predicted - truth)
    noise = weights @ (truth * (1 - truth))
    totals["brier"] += weights @ (predicted - truth) ** 2 + noise
    totals["pooled_brier"] += weights @ (calibration.pooled - truth) ** 2 + noise


def check(name: str, result: dict[str, float], slack: float = 0.0) -> list[str]:
    """Return the figures that miss a limit. `slack` is added to limits for the random error of few runs."""
    is_missed = {
        figure: result[figure] > ALPHA + slack
        for figure in ("false", "bounds", "tight_false", "tight_bounds", "anytime")
    }
    # two bounds of one sample
    is_missed["either"] = result["either"] > 2 * ALPHA + slack
    is_missed["p_low"] = result["p_low"] < 1 - ALPHA - slack
    is_missed["rate_error"] = result["rate_error"] > 0.025
    # if no prefix is likely to pass, chance decides which prefix is best
    is_missed["kept"] = result["best"] > 0.5 and result["kept"] < (0.9 - slack) * result["best"]
    is_missed["brier"] = name == "uneven" and result["brier"] >= result["pooled_brier"]
    return [figure for figure, missed in is_missed.items() if missed]


def main() -> None:
    """Parse the command line, simulate, print a table, and exit with status 1 if a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.guarantees", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="Simulated runs per cell.")
    runs, failed = parser.parse_args().runs, False
    for name in SHAPES:
        for reviews in REVIEWS:
            result = simulate(name, reviews, runs)
            missed = check(name, result)
            failed |= bool(missed)
            figures = "  ".join(f"{figure} {value:.4f}" for figure, value in result.items())
            print(f"{name:6} {reviews}  {figures}  missed: {', '.join(missed) or 'none'}", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
