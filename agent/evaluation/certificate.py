"""Upper bounds for the number of wrong labels in a run, and calibrated probabilities that a label is right.

All functions use reviews of a simple random sample of the labelled pairs, drawn without replacement. Given the number
of reviews, the reviewed pairs of a stratum, or of a union of strata, are a simple random sample, too.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from operator import itemgetter
from typing import Any, Literal

from agent.evaluation.lazy_numpy import np
from agent.evaluation.statistics import LEVEL, bound_errors
from agent.runs.store.strata import Stratum
from agent.types import Frozen

ALPHA = 1 - LEVEL
# bets of `compute_capital`
_BETS = (0.2, 0.4, 0.6, 0.8, 1.0)
# prior strengths among which `calibrate` chooses, in pairs
_STRENGTHS = tuple(2.0**power for power in range(11))


@dataclass(frozen=True)
class Outcome:
    """A reviewed pair: the number of its stratum, its label, and whether the label is wrong."""

    stratum: int
    label: Literal[0, 1]
    wrong: bool


@dataclass(frozen=True)
class ReviewedStrata:
    """The sizes of strata and the reviews of a sample.

    `sizes` contains the number of pairs with label 0 and with label 1 in each stratum. `outcomes` is in the order of
    the sample.
    """

    sizes: tuple[tuple[int, int], ...]
    outcomes: tuple[Outcome, ...]

    def select(self, strata: range, label: int | None = None) -> tuple[int, list[bool]]:
        """Return the size of a union of strata, and whether each of its reviewed pairs is wrong.

        With `label`, only pairs with this label are counted.
        """
        size = sum(sum(self.sizes[number]) if label is None else self.sizes[number][label] for number in strata)
        return size, [
            outcome.wrong
            for outcome in self.outcomes
            if outcome.stratum in strata and (label is None or outcome.label == label)
        ]


def combine_reviews(strata: Sequence[Stratum], verdicts: Mapping[str, int | None]) -> ReviewedStrata:
    """Combine strata with the reviewers' verdicts, in the order of the sample.

    A verdict of None (undecided, tied or skipped) counts as wrong. Otherwise, a reviewer could improve a bound by
    skipping pairs.

    Raises:
        KeyError: a reviewed pair is in no stratum.
    """
    places = {pair_id: (number, label) for number, s in enumerate(strata) for pair_id, label in s.labels.items()}
    ones = [sum(stratum.labels.values()) for stratum in strata]
    return ReviewedStrata(
        sizes=tuple((len(stratum.labels) - n, n) for stratum, n in zip(strata, ones, strict=True)),
        outcomes=tuple(
            Outcome(*places[pair_id], wrong=verdict != places[pair_id][1]) for pair_id, verdict in verdicts.items()
        ),
    )


Bound = Callable[[int, Sequence[bool], float], int]
"""Computes an upper bound of the number of errors from the number of pairs, the reviewed pairs and alpha."""


def bound_exactly(size: int, wrong: Sequence[bool], alpha: float = ALPHA) -> int:
    """Compute the exact upper bound of the number of errors. It is valid only if the size of the sample was planned."""
    return bound_errors(size, len(wrong), sum(wrong), alpha)


def bound_anytime(size: int, wrong: Sequence[bool], alpha: float = ALPHA) -> int:
    """Compute an upper bound of the number of errors that is valid after each review.

    The probability that the bound is ever below the number of errors is at most `alpha`. The bound is the largest
    number of errors for which the capital has not reached `1 / alpha` (see `compute_capital`).
    """
    candidates = range(sum(wrong) + 1, size - len(wrong) + sum(wrong) + 1)
    rejected = bisect_left(candidates, True, key=lambda k: compute_capital(size, wrong, k).max(initial=1) >= 1 / alpha)
    return sum(wrong) + rejected


def compute_capital(size: int, wrong: Sequence[bool], errors: int) -> Any:
    """Compute the capital of a player after each review, starting with 1.

    The player bets that the next pair is right. The odds are fair if `size` pairs contain `errors` errors, so the
    capital is a nonnegative martingale. It grows with `errors`. The stake is divided equally among five constant bets.
    Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS-B 86 (2024), with
    the odds of sampling without replacement (section 5) and several bets at once (diversified Kelly betting).
    """
    outcomes = np.asarray(wrong, dtype=float)
    expected = (errors - np.cumsum(outcomes) + outcomes) / (size - np.arange(len(outcomes)))
    return np.mean([np.cumprod(1 + bet * (expected - outcomes)) for bet in _BETS], axis=0)


class ErrorBound(Frozen):
    """An upper bound of the number of wrong labels among `size` pairs, of which some were reviewed."""

    size: int
    reviewed: int
    wrong: int
    bound: int

    @property
    def share(self) -> float:
        """The bound as a share of the pairs."""
        return self.bound / self.size if self.size else 0.0


class Certificate(Frozen):
    """The result of `certify`.

    `strata` is the number of strata in the certified set, which is 0 if nothing is certified. `prefixes` contains the
    tested prefixes. The last one failed, unless all strata are certified.

    `total`, `zeros` and `ones` bound the errors among all labels, labels 0 and labels 1 of the certified set. These
    bounds hold simultaneously. `sizes` contains the number of labels 0 and 1 before pairs are dropped. `recall` is the
    estimated share of the matching pairs that have label 1, and `certified_recall` the share that also are certified.
    """

    level: float
    alpha: float
    planned: int
    prefixes: tuple[ErrorBound, ...]
    strata: int
    total: ErrorBound
    zeros: ErrorBound
    ones: ErrorBound
    sizes: tuple[int, int]
    recall: float | None
    certified_recall: float | None


def count_needed_reviews(level: float, alpha: float = ALPHA) -> int:
    """Return the number of reviews with which a large set passes in spite of one error (93 for 5% at 95%)."""
    return next(n for n in count(1) if (1 - level) ** n + n * level * (1 - level) ** (n - 1) < alpha)


def find_first_prefix(sizes: Sequence[int], planned: int, level: float, alpha: float = ALPHA) -> int | None:
    """Return the number of strata in the first prefix to test, or None if the planned sample is too small.

    The prefix is the shortest one with an expected number of reviews of at least `count_needed_reviews` and at least
    half of the sample. If the sample contains all pairs, half of them are enough. The prefix depends only on sizes, so
    reviews cannot influence it. If it were shorter, it would often fail by chance, and nothing would be certified.
    """
    # if all pairs are reviewed, there is no chance
    needed = max(0 if planned >= sum(sizes) else count_needed_reviews(level, alpha), planned / 2) * sum(sizes)
    return next((number for number, size in enumerate(accumulate(sizes), 1) if planned * size >= needed), None)


def certify(
    reviewed: ReviewedStrata, planned: int, level: float, alpha: float = ALPHA, bound: Bound = bound_exactly
) -> Certificate:
    """Certify the largest set of first strata of which at most a share of `level` is wrong.

    Prefixes of the strata are tested in order, and the first failure ends the test. The certified set is the last
    prefix that passed. The probability that more than `level` of it is wrong is at most `alpha`, because the first
    prefix with too many wrong labels passes with at most this probability.

    The simultaneous bounds use `alpha / 3` each. Reviews choose the set for which they are computed. In simulations, at
    least one of them was wrong in at most 3% of the runs (`tests.benchmarks.guarantees`).
    """
    everything, strata, prefixes = len(reviewed.sizes), 0, []
    first = find_first_prefix([sum(sizes) for sizes in reviewed.sizes], planned, level, alpha)
    for number in range(first or everything + 1, everything + 1):
        prefixes.append(bound_prefix(reviewed, number, None, alpha, bound))
        if prefixes[-1].bound > level * prefixes[-1].size:
            break
        strata = number
    total, zeros, ones = (bound_prefix(reviewed, strata, label, alpha / 3, bound) for label in (None, 0, 1))
    return Certificate(
        level=level,
        alpha=alpha,
        planned=planned,
        prefixes=tuple(prefixes),
        strata=strata,
        total=total,
        zeros=zeros,
        ones=ones,
        sizes=(sum(size for size, _ in reviewed.sizes), sum(size for _, size in reviewed.sizes)),
        recall=_estimate_recall(reviewed, everything),
        certified_recall=_estimate_recall(reviewed, strata),
    )


def bound_prefix(reviewed: ReviewedStrata, strata: int, label: int | None, alpha: float, bound: Bound) -> ErrorBound:
    """Compute the bound for the labels in the first strata, or for those of one label."""
    size, wrong = reviewed.select(range(strata), label)
    return ErrorBound(size=size, reviewed=len(wrong), wrong=sum(wrong), bound=bound(size, wrong, alpha))


def _estimate_recall(reviewed: ReviewedStrata, strata: int) -> float | None:
    """Estimate the share of the matching pairs with label 1 in the first strata. None if the sample has no match.

    A pair without a verdict counts as wrong here, too: with label 0, it is a missed match.
    """
    matches = [outcome for outcome in reviewed.outcomes if outcome.wrong != (outcome.label == 1)]
    found = sum(outcome.label == 1 and outcome.stratum < strata for outcome in matches)
    return found / len(matches) if matches else None


class StratumRate(Frozen):
    """The share of right labels in a stratum.

    `p_correct` is the probability that a label is right. `p_low` is a lower bound of the share of right labels. The
    lower bounds of all strata hold simultaneously.
    """

    size: int
    reviewed: int
    right: int
    p_correct: float
    p_low: float


class ProbabilityScore(Frozen):
    """How well probabilities predict the reviews. Lower values are better.

    `reliability` is the mean absolute difference between the predicted and the observed share of right labels, over
    strata weighted by reviews.
    """

    brier: float
    log_loss: float
    reliability: float


class Calibration(Frozen):
    """The result of `calibrate`. `strength` is the strength of the prior in pairs. Scores are None without reviews."""

    pooled: float
    strength: float
    strata: tuple[StratumRate, ...]
    by_stratum: ProbabilityScore | None
    by_pooled_rate: ProbabilityScore | None


def calibrate(reviewed: ReviewedStrata, alpha: float = ALPHA) -> Calibration:
    """Estimate the probability that a label is right, by stratum.

    The share of right labels in a stratum is shrunk to the pooled share (empirical Bayes). The prior is a beta
    distribution. Its mean is the pooled share, with half a right and half a wrong pair added. Its strength maximises
    the beta-binomial likelihood divided by the strength. Without the division, few reviews often hide differences
    between strata. The reviewed labels themselves are known. `p_low` is an exact bound at `alpha` divided by the number
    of strata.
    """
    selected = [reviewed.select(range(number, number + 1)) for number in range(len(reviewed.sizes))]
    counts = [(len(wrong), len(wrong) - sum(wrong)) for _, wrong in selected]
    total, right = sum(n for n, _ in counts), sum(k for _, k in counts)
    pooled = (right + 0.5) / (total + 1)
    strength = max(_STRENGTHS, key=lambda s: sum(_log_likelihood(n, k, pooled, s) for n, k in counts) - math.log(s))
    rates = tuple(
        StratumRate(
            size=size,
            reviewed=n,
            right=k,
            p_correct=(k + (size - n) * (k + strength * pooled) / (n + strength)) / size,
            p_low=1 - bound_errors(size, n, n - k, alpha / len(counts)) / size,
        )
        for (size, _), (n, k) in zip(selected, counts, strict=True)
    )
    return Calibration(
        pooled=pooled,
        strength=strength,
        strata=rates,
        by_stratum=_score([(n, k, k + strength * pooled, n + strength) for n, k in counts]),
        by_pooled_rate=_score([(n, k, right + 0.5, total + 1.0) for n, k in counts]),
    )


def _log_likelihood(n: int, right: int, mean: float, strength: float) -> float:
    """Compute the beta-binomial log-likelihood of a stratum, without the binomial coefficient."""
    a, b = mean * strength, (1 - mean) * strength
    after = math.lgamma(a + right) + math.lgamma(b + n - right) - math.lgamma(strength + n)
    return after - math.lgamma(a) - math.lgamma(b) + math.lgamma(strength)


def _score(rows: Sequence[tuple[int, int, float, float]]) -> ProbabilityScore | None:
    """Score rates of strata on the same reviews, leaving out each reviewed pair when its own rate is computed.

    A row contains the reviewed and right pairs of a stratum, and the numerator and denominator of its rate.
    """
    total = sum(n for n, *_ in rows)
    if not total:
        return None
    brier = log_loss = reliability = 0.0
    for n, right, numerator, denominator in filter(itemgetter(0), rows):
        if_right, if_wrong = (numerator - 1) / (denominator - 1), numerator / (denominator - 1)
        brier += right * (1 - if_right) ** 2 + (n - right) * if_wrong**2
        log_loss -= (right and right * math.log(if_right)) + (n > right and (n - right) * math.log(1 - if_wrong))
        reliability += abs(right * if_right + (n - right) * if_wrong - right)
    return ProbabilityScore(brier=brier / total, log_loss=log_loss / total, reliability=reliability / total)
