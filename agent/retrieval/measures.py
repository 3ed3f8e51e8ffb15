"""Metrics of a ranking, each as its expected value when codes of equal score stand in random order.

A ranking is scores of the codes found. Of a query, `R` codes are relevant (grade 1 or more), `N` were judged and are
not. Codes of equal score are a *group*: `a` codes stand above it, it has `n` codes, `r` of them relevant, `t` of its
ranks are among the first k, and each of the n! orders has the same chance. Precision, recall, success, reciprocal rank,
average precision and nDCG are the closed forms of McSherry and Najork, Computing information retrieval performance
measures efficiently in the presence of tied scores (ECIR 2008); the others are derived in their docstrings. Without
ties each is the usual value.

A code that is not in the ranking is not found, at no rank. A query without relevant codes is 0 in every metric but
Judged@k. `get` reads a metric's name; one that is not here and that ir-measures has is computed by it.
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
from agent.errors import ConfigError, ExtraMissing
from agent.retrieval.rankings import encode_id

# The metrics that are computed unless others are named.
DEFAULT_METRICS = ("nDCG@10", "RR", "AP", "MMRR", "R@10", "R@100", "Success@1", "Success@5", "Success@10", "Judged@10")


@dataclass(frozen=True)
class TieGroup:
    """Codes of one score: how many stand above, how many it has, of these the judged and the relevant ones.

    `gain` is the sum of the relevant ones' grades.
    """

    above: int
    size: int
    judged: int
    relevant: int
    gain: int

    def ranks_within(self, k: int | None = None) -> range:
        """Return the group's ranks, those among the first k."""
        last = self.above + self.size
        return range(self.above + 1, (last if k is None else min(k, last)) + 1)


@dataclass(frozen=True)
class QueryRanking:
    """What is known of one query's ranking: its scores by code, and the query's grades by code."""

    scores: Mapping[str, float]
    grades: Grades

    @cached_property
    def groups(self) -> tuple[TieGroup, ...]:
        """The groups with judged codes, best first."""
        judged: defaultdict[float, list[int]] = defaultdict(list)
        for code, grade in self.grades.items():
            if code in self.scores:
                judged[self.scores[code]].append(grade)
        rising = sorted(self.scores.values())
        groups = []
        for score in sorted(judged, reverse=True):
            above = len(rising) - bisect_right(rising, score)
            gains = [grade for grade in judged[score] if grade > 0]
            size = len(rising) - above - bisect_left(rising, score)
            groups.append(TieGroup(above, size, len(judged[score]), len(gains), sum(gains)))
        return tuple(groups)

    @cached_property
    def hits(self) -> tuple[TieGroup, ...]:
        """The groups with relevant codes, best first."""
        return tuple(group for group in self.groups if group.relevant)

    @cached_property
    def relevant(self) -> int:
        """R, how many codes are relevant, found or not."""
        return sum(grade > 0 for grade in self.grades.values())


def ndcg(ranking: QueryRanking, k: int | None = None) -> float:
    """nDCG@k: DCG@k = Σ over ranks i ≤ k of grade_i / log2(i + 1), divided by that of all judged codes in best order.

    Source: Järvelin and Kekäläinen 2002, with linear gain and log2 discount as trec_eval's `ndcg_cut` and, for nDCG
    without cut-off, `ndcg`. Expected: the codes of a group have its mean gain at each of its ranks.
    """
    gain = sum(group.gain / group.size * sum(1 / log2(i + 1) for i in group.ranks_within(k)) for group in ranking.hits)
    best = sorted((grade for grade in ranking.grades.values() if grade > 0), reverse=True)
    return gain / sum(grade / log2(i + 1) for i, grade in enumerate(best[:k], 1))


def precision(ranking: QueryRanking, k: int) -> float:
    """P@k: relevant codes among the first k, divided by k, also where fewer are found. Expected: Σ r · t / n, by k."""
    return sum(group.relevant * len(group.ranks_within(k)) / group.size for group in ranking.hits) / k


def recall(ranking: QueryRanking, k: int) -> float:
    """R@k: relevant codes among the first k, divided by R."""
    return precision(ranking, k) * k / ranking.relevant


def success(ranking: QueryRanking, k: int) -> float:
    """Success@k: 1 if a relevant code is among the first k, otherwise 0.

    Neural Code Search's Answered@k counts such queries; this is their share. Expected: 1 less the chance that none of
    the first group's r is on its t ranks there, C(n − r, t) / C(n, t).
    """
    if not ranking.hits:
        return 0.0
    first = ranking.hits[0]
    ranks = len(first.ranks_within(k))
    return 1 - comb(first.size - first.relevant, ranks) / comb(first.size, ranks)


def reciprocal_rank(ranking: QueryRanking, k: int | None = None) -> float:
    """RR: 1 / rank of the first relevant code, 0 when none is found (RR@k: among the first k).

    Expected: Σ over ranks i of the first group with relevant codes of C(n − i, r − 1) / C(n, r) / (a + i).
    """
    if not ranking.hits:
        return 0.0
    first = ranking.hits[0]
    others = first.size - first.relevant
    total, chance = 0.0, first.relevant / first.size
    for j, rank in enumerate(first.ranks_within(k)[: others + 1]):
        total += chance / rank
        chance *= (others - j) / max(first.size - 1 - j, 1)
    return total


def compute_first_rank(ranking: QueryRanking) -> float | None:
    """FRank: the rank of the first relevant code (Neural Code Search's score sheet), None when none is found.

    Expected: a + (n + 1) / (r + 1). Its reciprocal is RR where nothing ties, and at most RR where something does.
    """
    if not ranking.hits:
        return None
    first = ranking.hits[0]
    return first.above + (first.size + 1) / (first.relevant + 1)


def average_precision(ranking: QueryRanking, k: int | None = None, divisor: str = "all") -> float:
    """AP: the sum of P@i over the ranks i of relevant codes (AP@k: i ≤ k), divided by R, as trec_eval's `map`.

    AP_min@k divides by min(R, k), so that k relevant codes at the top are 1. AP_hits divides by the relevant codes that
    are found (among the first k): 1 of 10 found, at rank 1, is 1. Expected: of the group that k cuts, h relevant codes
    are on its t ranks above with the chance C(r, h) C(n − r, t − h) / C(n, t). Of t places with h relevant codes and H
    such above, i is relevant with the chance h/t, and then P@(a + i) is (H + 1 + (i − 1)(h − 1)/(t − 1)) / (a + i).
    """
    total, above, mean = 0.0, 0, 0.0
    for group in ranking.hits:
        places = len(group.ranks_within(k))
        others = group.size - group.relevant
        mean = 0.0
        for hits in range(max(places - others, 0), min(places, group.relevant) + 1):
            chance = comb(group.relevant, hits) * comb(others, places - hits) / comb(group.size, places)
            slope = (hits - 1) / (places - 1) if places > 1 else 0.0
            here = sum((above + 1 + i * slope) / (group.above + 1 + i) for i in range(places)) * hits
            so_far = above + hits
            by = {"all": ranking.relevant, "min": min(ranking.relevant, k or ranking.relevant), "hits": so_far}[divisor]
            mean += chance * (total + here / max(places, 1)) / max(by, 1)
        if places < group.size:
            break
        total, above = total + here / places, so_far
    return mean


def multi_choice_reciprocal_rank(ranking: QueryRanking, *, adjusted: bool = True) -> float:
    """MMRR: 1/R · Σ over the relevant codes, i-th at rank_i, of 1 / (rank_i − (i − 1)), 0 for one that is not found.

    Source: CoSQA+ v1, section 4.3 and appendix B; not `adjusted` (MMRR_unadjusted): of 1 / rank_i. Expected: rank_i −
    (i − 1) is one plus the codes above that are not relevant. Of those in the group, n − r, each relevant code has j
    above it with the chance 1 / (n − r + 1), for j from 0 on; unadjusted, its rank is any of the n with equal chance.
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
    """Bpref: 1/R · Σ over relevant codes found of 1 − min(R, judged others above it) / min(R, N).

    Source: Buckley and Voorhees 2004, as in trec_eval. Expected: of a group's judged others, m, each relevant code has
    j above it with the chance 1 / (m + 1), for j from 0 on.
    """
    most = min(ranking.relevant, sum(grade <= 0 for grade in ranking.grades.values()))
    total, above = 0.0, 0
    for group in ranking.groups:
        others = group.judged - group.relevant
        if group.relevant:
            lost = sum(min(ranking.relevant, above + j) / most for j in range(others + 1) if above + j)
            total += group.relevant * (1 - lost / (others + 1))
        above += others
    return total / ranking.relevant


def judged_share(ranking: QueryRanking, k: int) -> float:
    """Judged@k: the share of the first k found that were judged, whatever the grade; 0 where nothing is found."""
    judged_codes = sum(group.judged * len(group.ranks_within(k)) / group.size for group in ranking.groups)
    return judged_codes / min(k, len(ranking.scores)) if ranking.scores else 0.0


@dataclass(frozen=True)
class Metric:
    """A metric by its conventional name; `by_sort_order`: ir-measures computes it, which breaks ties by sorting."""

    name: str
    of: Callable[[QueryRanking], float]
    by_sort_order: bool = False


_OURS: Mapping[str, Callable[..., float]] = {
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
_BY_NAME = {**{name.lower(): name for name in _OURS}, **_ALIASES}
_NAME = re.compile(r"(\w+)(?:@([1-9][0-9]{0,6}))?")
_MOST = 10**7 - 1


def get_metric(name: str) -> Metric:
    """Return a metric by its name, such as `nDCG@10`, in any case, or by what else it is called, such as `MRR`.

    Raises:
        ConfigError: there is none of that name, or it cannot be computed here.
        ExtraMissing: it is none of ours, and ir-measures is not installed.
    """
    match = _NAME.fullmatch(name)
    base = _BY_NAME.get(match[1].lower(), "") if match else ""
    k = int(match[2] or 0) if match else 0
    if base in _ONLY_AT_K and not k:
        raise ConfigError(f"metric {name}: {base} needs a cut-off, as in {base}@10")
    if not base or (k and base in _NEVER_AT_K):
        return _get_ir_measures_metric(name)

    def of(ranking: QueryRanking) -> float:
        if not ranking.relevant and base != "Judged":
            return 0.0
        return _OURS[base](ranking, k) if k else _OURS[base](ranking)

    return Metric(f"{base}@{k}" if k else base, of)


def _get_ir_measures_metric(name: str) -> Metric:
    try:
        import ir_measures
    except ImportError as error:
        raise ExtraMissing("retrieval", error) from error

    def of(ranking: QueryRanking) -> float:
        # ids without white space: some of its metrics are programs that read files
        grades = {encode_id(code): grade for code, grade in ranking.grades.items()}
        scores = {encode_id(code): score for code, score in ranking.scores.items()}
        results = list(ir_measures.iter_calc([measure], {"1": grades}, {"1": scores}))
        return float(results[0].value) if results else 0.0

    try:
        measure: Any = ir_measures.parse_measure(name)
        measure.validate_params()
        if not 0 < measure.params.get("cutoff", 1) <= _MOST:
            raise ValueError(f"a cut-off is a number from 1 to {_MOST}")  # trec_eval would end the whole process
        of(QueryRanking({"a": 1.0}, {"a": 1}))
    except Exception as error:  # each of its providers has its own
        ours = ", ".join(f"{base}@k" if base in _ONLY_AT_K else base for base in _OURS)
        raise ConfigError(f"no metric {name}: {error}. Known are {ours}, and those of ir-measures") from error
    return Metric(str(measure), of, by_sort_order=True)
