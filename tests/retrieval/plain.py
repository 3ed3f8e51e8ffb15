"""Plain definitions of metrics on one order of snippets, and their mean over all orders consistent with ties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby, permutations, product
from math import log2
from statistics import fmean

Grades = Mapping[str, int]
Definition = Callable[[list[str], Grades], float]


def iterate_orders(scores: Mapping[str, float]) -> Iterator[list[str]]:
    """Yield every order of the snippets by descending score."""
    descending = sorted(scores, key=lambda code: -scores[code])
    groups = [list(codes) for _, codes in groupby(descending, key=lambda code: scores[code])]
    for permuted in product(*map(permutations, groups)):
        yield [code for group in permuted for code in group]


def compute_expectation(definition: Definition, scores: Mapping[str, float], grades: Grades) -> float:
    """Return the mean of a metric over all orders."""
    return fmean(definition(order, grades) for order in iterate_orders(scores))


def get_relevant(grades: Grades) -> set[str]:
    return {code for code, grade in grades.items() if grade > 0}


def get_ranks(order: list[str], grades: Grades, k: int | None = None) -> list[int]:
    """Return the ranks of relevant snippets among the first k."""
    return [rank for rank, code in enumerate(order[:k], 1) if code in get_relevant(grades)]


def ndcg(k: int | None) -> Definition:
    def compute(order: list[str], grades: Grades) -> float:
        def dcg(gains: list[int]) -> float:
            return sum(max(gain, 0) / log2(rank + 1) for rank, gain in enumerate(gains[:k], 1))

        return dcg([grades.get(code, 0) for code in order]) / dcg(sorted(grades.values(), reverse=True))

    return compute


def rr(k: int | None) -> Definition:
    return lambda order, grades: max((1 / rank for rank in get_ranks(order, grades, k)), default=0.0)


def sum_precisions(order: list[str], grades: Grades, k: int | None) -> float:
    return sum(len(get_ranks(order, grades, rank)) / rank for rank in get_ranks(order, grades, k))


def ap(k: int | None) -> Definition:
    return lambda order, grades: sum_precisions(order, grades, k) / len(get_relevant(grades))


def ap_min(k: int) -> Definition:
    return lambda order, grades: sum_precisions(order, grades, k) / min(k, len(get_relevant(grades)))


def ap_hits(k: int | None) -> Definition:
    return lambda order, grades: sum_precisions(order, grades, k) / max(len(get_ranks(order, grades, k)), 1)


def recall(k: int) -> Definition:
    return lambda order, grades: len(get_ranks(order, grades, k)) / len(get_relevant(grades))


def precision(k: int) -> Definition:
    return lambda order, grades: len(get_ranks(order, grades, k)) / k


def success(k: int) -> Definition:
    return lambda order, grades: float(bool(get_ranks(order, grades, k)))


def judged_share(k: int) -> Definition:
    return lambda order, grades: fmean(code in grades for code in order[:k]) if order else 0.0


def mmrr(order: list[str], grades: Grades) -> float:
    return sum(1 / (rank - (i - 1)) for i, rank in enumerate(get_ranks(order, grades), 1)) / len(get_relevant(grades))


def mmrr_unadjusted(order: list[str], grades: Grades) -> float:
    return sum(1 / rank for rank in get_ranks(order, grades)) / len(get_relevant(grades))


def bpref(order: list[str], grades: Grades) -> float:
    relevant = len(get_relevant(grades))
    others = len(grades) - relevant
    total, above = 0.0, 0
    for code in order:
        if code in get_relevant(grades):
            total += 1 - min(above, relevant) / min(others, relevant) if above else 1
        elif code in grades:
            above += 1
    return total / relevant


def get_first_rank(order: list[str], grades: Grades) -> float:
    return min(get_ranks(order, grades))


DEFINITIONS: dict[str, Definition] = {
    "RR": rr(None),
    "AP": ap(None),
    "AP_hits": ap_hits(None),
    "nDCG": ndcg(None),
    "MMRR": mmrr,
    "MMRR_unadjusted": mmrr_unadjusted,
    "Bpref": bpref,
    **{
        f"{name}@{k}": define(k)
        for name, define in {
            "nDCG": ndcg,
            "RR": rr,
            "AP": ap,
            "AP_min": ap_min,
            "AP_hits": ap_hits,
            "R": recall,
            "P": precision,
            "Success": success,
            "Judged": judged_share,
        }.items()
        for k in (1, 2, 3, 5, 10)
    },
}
