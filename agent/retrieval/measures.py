"""Computes metrics for rankings. If snippets tie, a metric is averaged over all possible orders of the tied snippets.

A ranking maps snippets to scores. A query has `R` relevant snippets (grade 1 or more) and `N` snippets judged not
relevant. Snippets with equal scores form a *group* of `n` snippets, `r` of which are relevant. `a` snippets rank above
the group, and `t` of the group's ranks are among the first k. All n! orders of a group are equally likely. Precision,
recall, success, reciprocal rank, average precision and nDCG use the closed forms from McSherry and Najork: Computing
information retrieval performance measures efficiently in the presence of tied scores (ECIR 2008). The docstrings of the
other metrics derive their expected values. Without ties, each metric has its usual value.

A snippet that is not in the ranking was not retrieved and has no rank. A query without relevant snippets scores 0 in
every metric except Judged@k. Metrics that are not defined here are computed by ir-measures if it supports them (see
`get_metric`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from math import comb, log2
from typing import Any

from agent.datasets.benchmark import Grades
from agent.errors import ConfigError, needs_extra
from agent.retrieval.rankings import encode_id

# The metrics that are computed by default.
DEFAULT_METRICS = ("nDCG@10", "RR", "AP", "MMRR", "R@10", "R@100", "Success@1", "Success@5", "Success@10", "Judged@10")


@dataclass(frozen=True)
class TieGroup:
    """A group of snippets with equal scores.

    `above` is the number of snippets above the group. `size` is the number of snippets in it. `judged` and `relevant`
    are the numbers of judged and relevant snippets in it. `gain` is the sum of the grades of the relevant snippets.
    """

    above: int
    size: int
    judged: int
    relevant: int
    gain: int

    def ranks_within(self, k: int | None = None) -> range:
        """Return the group's ranks that are among the first k. Without `k`, return all ranks of the group."""
        last = self.above + self.size
        return range(self.above + 1, (last if k is None else min(k, last)) + 1)


@dataclass(frozen=True)
class QueryRanking:
    """The scores and grades for one query, keyed by code id."""

    scores: Mapping[str, float]
    grades: Grades

    @cached_property
    def groups(self) -> tuple[TieGroup, ...]:
        """The groups that contain judged snippets, best first."""
        grades: defaultdict[float, list[int]] = defaultdict(list)
        for code, grade in self.grades.items():
            if code in self.scores:
                grades[self.scores[code]].append(grade)
        ascending = sorted(self.scores.values())
        groups = []
        for score in sorted(grades, reverse=True):
            above = len(ascending) - bisect_right(ascending, score)
            gains = [grade for grade in grades[score] if grade > 0]
            size = len(ascending) - above - bisect_left(ascending, score)
            groups.append(TieGroup(above, size, len(grades[score]), len(gains), sum(gains)))
        return tuple(groups)

    @cached_property
    def hits(self) -> tuple[TieGroup, ...]:
        """The groups that contain relevant snippets, best first."""
        return tuple(group for group in self.groups if group.relevant)

    @cached_property
    def relevant(self) -> int:
        """R, the number of relevant snippets, retrieved or not."""
        return sum(grade > 0 for grade in self.grades.values())


def ndcg(ranking: QueryRanking, k: int | None = None) -> float:
    """Compute nDCG@k (normalised discounted cumulative gain): DCG@k divided by the DCG@k of the ideal ranking.

    DCG@k is the sum of grade_i / log2(i + 1) over the ranks i ≤ k, where grade_i is the grade of the snippet at rank i.
    Source: Järvelin and Kekäläinen 2002. The gain is linear and the discount is log2, which matches trec_eval's
    `ndcg_cut` (or `ndcg` without a cut-off). If snippets tie, each of their ranks has the mean of their gains.
    """
    gain = sum(group.gain / group.size * sum(1 / log2(i + 1) for i in group.ranks_within(k)) for group in ranking.hits)
    best = sorted((grade for grade in ranking.grades.values() if grade > 0), reverse=True)
    return gain / sum(grade / log2(i + 1) for i, grade in enumerate(best[:k], 1))


def precision(ranking: QueryRanking, k: int) -> float:
    """Compute P@k (precision): the number of relevant snippets among the first k, divided by k.

    The divisor is k even if fewer snippets are retrieved. With ties, the expected value is the sum of r · t / n over
    the groups of tied snippets, divided by k. A group has n snippets, of which r are relevant, and t of its ranks are
    among the first k.
    """
    return sum(group.relevant * len(group.ranks_within(k)) / group.size for group in ranking.hits) / k


def recall(ranking: QueryRanking, k: int) -> float:
    """Compute R@k (recall): the share of all relevant snippets that are among the first k."""
    return precision(ranking, k) * k / ranking.relevant


def success(ranking: QueryRanking, k: int) -> float:
    """Compute Success@k: 1 if a relevant snippet is among the first k, otherwise 0.

    Answered@k in Neural Code Search is the number of queries for which Success@k is 1. With ties, the expected value is
    1 − C(n − r, t) / C(n, t) for the first group of tied snippets that contains a relevant snippet. The group has n
    snippets, of which r are relevant, and t of its ranks are among the first k. The fraction is the probability that
    none of these t ranks has a relevant snippet.
    """
    if not ranking.hits:
        return 0.0
    first = ranking.hits[0]
    ranks = len(first.ranks_within(k))
    return 1 - comb(first.size - first.relevant, ranks) / comb(first.size, ranks)


def reciprocal_rank(ranking: QueryRanking, k: int | None = None) -> float:
    """Compute RR (reciprocal rank): 1 divided by the rank of the first relevant snippet.

    RR is 0 if no relevant snippet is retrieved. RR@k considers only the first k snippets. With ties, the expected value
    is the sum of C(n − i, r − 1) / C(n, r) / (a + i) over the positions i in the first group of tied snippets that
    contains a relevant snippet. The group has n snippets, of which r are relevant, and `a` snippets rank above it.
    """
    if not ranking.hits:
        return 0.0
    first = ranking.hits[0]
    others = first.size - first.relevant
    total, probability = 0.0, first.relevant / first.size
    for j, rank in enumerate(first.ranks_within(k)[: others + 1]):
        total += probability / rank
        probability *= (others - j) / max(first.size - 1 - j, 1)
    return total


def compute_first_rank(ranking: QueryRanking) -> float | None:
    """Compute FRank: the rank of the first relevant snippet. Returns None if no relevant snippet is retrieved.

    Source: Neural Code Search's score sheet. With ties, the expected value is a + (n + 1) / (r + 1) for the first group
    of tied snippets that contains a relevant snippet. The group has n snippets, of which r are relevant, and `a`
    snippets rank above it. Without ties, the reciprocal of FRank equals RR (reciprocal rank). With ties, the reciprocal
    of FRank is at most RR.
    """
    if not ranking.hits:
        return None
    first = ranking.hits[0]
    return first.above + (first.size + 1) / (first.relevant + 1)


def average_precision(ranking: QueryRanking, k: int | None = None, divisor: str = "all") -> float:
    """Compute AP (average precision): the sum of P@i over the ranks i of relevant snippets, divided by R.

    P@i is the precision of the first i snippets. R is the number of all relevant snippets, retrieved or not. AP is
    `map` in trec_eval. AP@k uses only the ranks i ≤ k. AP_min@k divides by min(R, k), so a ranking with k relevant
    snippets at the top scores 1. AP_hits divides by the number of relevant snippets that are retrieved, and AP_hits@k
    by the number among the first k. For example, AP_hits is 1 if one of ten relevant snippets is retrieved, at rank 1.

    Suppose that the cut-off k splits a group of n tied snippets, of which r are relevant. The first t ranks of the
    group contain h relevant snippets with probability C(r, h) C(n − r, t − h) / C(n, t). Each of these t ranks then has
    a relevant snippet with probability h/t. Above the group are `a` snippets, of which H are relevant. If position i of
    the group has a relevant snippet, the mean of P@(a + i) is (H + 1 + (i − 1)(h − 1)/(t − 1)) / (a + i).
    """
    total, above, mean = 0.0, 0, 0.0
    for group in ranking.hits:
        ranks = len(group.ranks_within(k))
        others = group.size - group.relevant
        mean = 0.0
        for hits in range(max(ranks - others, 0), min(ranks, group.relevant) + 1):
            probability = comb(group.relevant, hits) * comb(others, ranks - hits) / comb(group.size, ranks)
            slope = (hits - 1) / (ranks - 1) if ranks > 1 else 0.0
            precisions = sum((above + 1 + i * slope) / (group.above + 1 + i) for i in range(ranks)) * hits
            retrieved = above + hits
            denominator = {
                "all": ranking.relevant,
                "min": min(ranking.relevant, k or ranking.relevant),
                "hits": retrieved,
            }[divisor]
            mean += probability * (total + precisions / max(ranks, 1)) / max(denominator, 1)
        if ranks < group.size:
            break
        total, above = total + precisions / ranks, retrieved
    return mean


def multi_choice_reciprocal_rank(ranking: QueryRanking, *, adjusted: bool = True) -> float:
    """Compute MMRR (mean multi-choice reciprocal rank): the mean of 1 / (rank_i − (i − 1)) over the relevant snippets.

    rank_i is the rank of the i-th relevant snippet. Snippets that are not retrieved contribute 0. MMRR_unadjusted (if
    `adjusted` is false) is the mean of 1 / rank_i. Source: version 1 of the CoSQA+ paper, section 4.3 and appendix B.
    The term rank_i − (i − 1) is 1 plus the number of non-relevant snippets above the i-th relevant snippet. Suppose
    that n snippets tie, of which r are relevant. The number of tied non-relevant snippets above a tied relevant snippet
    is then uniformly distributed on 0, 1, …, n − r. For MMRR_unadjusted, each of the n ranks is equally likely.
    """
    total, above = 0.0, 0
    for group in ranking.hits:
        start, others = (
            (group.above - above, group.size - group.relevant) if adjusted else (group.above, group.size - 1)
        )
        total += group.relevant / (others + 1) * sum(1 / (1 + start + j) for j in range(others + 1))
        above += group.relevant
    return total / ranking.relevant


def bpref(ranking: QueryRanking) -> float:
    """Compute Bpref: the sum of 1 − min(R, j) / min(R, N) over the retrieved relevant snippets, divided by R.

    R is the number of relevant snippets, and N is the number of snippets judged not relevant. j is the number of
    snippets judged not relevant that rank above the relevant snippet. Source: Buckley and Voorhees 2004, in the version
    that trec_eval implements. If m snippets judged not relevant tie with a relevant snippet, the number of them that
    rank above the relevant snippet is uniformly distributed on 0, 1, …, m.
    """
    denominator = min(ranking.relevant, sum(grade <= 0 for grade in ranking.grades.values()))
    total, above = 0.0, 0
    for group in ranking.groups:
        others = group.judged - group.relevant
        if group.relevant:
            penalty = sum(min(ranking.relevant, above + j) / denominator for j in range(others + 1) if above + j)
            total += group.relevant * (1 - penalty / (others + 1))
        above += others
    return total / ranking.relevant


def judged_share(ranking: QueryRanking, k: int) -> float:
    """Compute Judged@k: the share of the first k retrieved snippets that have a grade, or 0 if nothing is retrieved."""
    judged_codes = sum(group.judged * len(group.ranks_within(k)) / group.size for group in ranking.groups)
    return judged_codes / min(k, len(ranking.scores)) if ranking.scores else 0.0


@dataclass(frozen=True)
class Metric:
    """A metric with its conventional name.

    If `by_sort_order` is set, the metric is computed by ir-measures, which breaks ties by sorting.
    """

    name: str
    compute: Callable[[QueryRanking], float]
    by_sort_order: bool = False


_METRICS: Mapping[str, Callable[..., float]] = {
    "nDCG": ndcg,
    "RR": reciprocal_rank,
    "AP": average_precision,
    "AP_min": partial(average_precision, divisor="min"),
    "AP_hits": partial(average_precision, divisor="hits"),
    "MMRR": multi_choice_reciprocal_rank,
    "MMRR_unadjusted": partial(multi_choice_reciprocal_rank, adjusted=False),
    "R": recall,
    "P": precision,
    "Success": success,
    "Judged": judged_share,
    "Bpref": bpref,
}
_ONLY_AT_K = {"AP_min", "R", "P", "Success", "Judged"}
_NEVER_AT_K = {"MMRR", "MMRR_unadjusted", "Bpref"}
_ALIASES = {"mrr": "RR", "map": "AP", "recall": "R", "precision": "P", "answered": "Success"}
_BY_NAME = {**{name.lower(): name for name in _METRICS}, **_ALIASES}
_NAME = re.compile(r"(\w+)(?:@([1-9][0-9]{0,6}))?")
_MAX_CUTOFF = 10**7 - 1


def get_metric(name: str) -> Metric:
    """Return the metric with this name (such as `nDCG@10`) or alias (such as `MRR`). Case is ignored.

    Raises:
        ConfigError: the metric is unknown or cannot be computed.
        ExtraMissing: the metric needs ir-measures, which is not installed.
    """
    match = _NAME.fullmatch(name)
    base = _BY_NAME.get(match[1].lower(), "") if match else ""
    k = int(match[2] or 0) if match else 0
    if base in _ONLY_AT_K and not k:
        raise ConfigError(f"metric {name}: {base} needs a cut-off, such as {base}@10")
    if not base or (k and base in _NEVER_AT_K):
        return _get_ir_measures_metric(name)

    def compute(ranking: QueryRanking) -> float:
        if not ranking.relevant and base != "Judged":
            return 0.0
        return _METRICS[base](ranking, k) if k else _METRICS[base](ranking)

    return Metric(f"{base}@{k}" if k else base, compute)


def _get_ir_measures_metric(name: str) -> Metric:
    with needs_extra("retrieval"):
        import ir_measures

    def compute(ranking: QueryRanking) -> float:
        # ids are encoded because some providers write them to files in which white space separates fields
        grades = {encode_id(code): grade for code, grade in ranking.grades.items()}
        scores = {encode_id(code): score for code, score in ranking.scores.items()}
        results = list(ir_measures.iter_calc([measure], {"1": grades}, {"1": scores}))
        return float(results[0].value) if results else 0.0

    try:
        measure: Any = ir_measures.parse_measure(name)
        measure.validate_params()
        if not 0 < measure.params.get("cutoff", 1) <= _MAX_CUTOFF:
            raise ValueError(f"the cut-off must be between 1 and {_MAX_CUTOFF}")  # trec_eval would abort the process
        compute(QueryRanking({"a": 1.0}, {"a": 1}))
    except Exception as error:  # each provider raises different errors
        names = ", ".join(f"{base}@k" if base in _ONLY_AT_K else base for base in _METRICS)
        raise ConfigError(
            f"cannot compute metric {name}: {error}. Use {names}, or a metric from ir-measures."
        ) from error
    return Metric(str(measure), compute, by_sort_order=True)
