"""Finds held-out queries and their relevant codes in training data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil

from agent.corpus.near_duplicates import THRESHOLD, shingle_code, shingle_query
from agent.evaluation.statistics import import_numpy
from agent.retrieval.code_views import extract_view
from agent.retrieval.searchers.base import Progress, report_progress
from agent.training.data import TrainingData

_KINDS = ("queries", "near_queries", "codes", "near_codes")
_SHARED = 6
_Items = dict[str, set[tuple[str, str]]]  # by text: the name of a benchmark, and the id of a query or code


@dataclass(frozen=True)
class Leaks:
    """Numbers of held-out queries and relevant codes that are in training. True if there is one.

    `counts` maps benchmarks to the kinds `queries`, `near_queries`, `codes` and `near_codes`. Near duplicates exclude
    equal texts.
    """

    counts: Mapping[str, Mapping[str, int]]

    def __bool__(self) -> bool:
        return any(chain.from_iterable(kinds.values() for kinds in self.counts.values()))

    def describe(self) -> str:
        """Return the counts above 0, such as `web-test: queries 2, near-duplicate codes 1`."""
        names = {kind: kind.replace("near_", "near-duplicate ") for kind in _KINDS}
        return "; ".join(
            f"{benchmark}: {', '.join(f'{names[kind]} {count:,}' for kind, count in kinds.items() if count)}"
            for benchmark, kinds in self.counts.items()
            if any(kinds.values())
        )


def find_leaks(data: TrainingData, progress: Progress) -> Leaks:
    """Count the held-out queries, and the codes that are relevant for one, that are in training.

    Finds all near duplicates, which have a Jaccard similarity of at least `THRESHOLD`. Held-out Python code also leaks
    if a training code equals or nearly equals it without docstrings. Other codes of a held-out benchmark may be in
    training. Benchmarks with the same name are counted as one.
    """
    queries, codes, benchmarks = _Items(), _Items(), [own for own in (data.validation, *data.tests) if own is not None]
    for benchmark in benchmarks:
        for identifier, query in benchmark.queries.items():
            queries.setdefault(query, set()).add((benchmark.name, identifier))
        graded = chain.from_iterable(grades.items() for grades in benchmark.grades.values())
        relevant = {code: benchmark.codes[code] for code, grade in graded if grade > 0}
        answers = {f"answer to {query}": code for query, code in benchmark.answers.items()}
        for identifier, code in (relevant | answers).items():
            view = extract_view(code, "no-docstring") if benchmark.language == "python" else None
            for text in (code, view or code):
                codes.setdefault(text, set()).add((benchmark.name, identifier))
    matches = (
        *_match(data.queries, queries, shingle_query, "comparing queries", progress),
        *_match(data.codes, codes, shingle_code, "comparing codes", progress),
    )
    counts = {kind: Counter(name for name, _ in items) for kind, items in zip(_KINDS, matches, strict=True)}
    return Leaks({own.name: {kind: count[own.name] for kind, count in counts.items()} for own in benchmarks})


def _match(
    texts: Sequence[str], held_out: _Items, shingle: Callable[[str], frozenset[str]], step: str, progress: Progress
) -> Sequence[set[tuple[str, str]]]:
    """Return the held-out items that equal a text, and others that are near duplicates of one.

    Compares only texts that share `_SHARED` elements among the rarest of each, as near duplicates do (prefix filtering;
    Wang, Li and Feng, "Can We Beat the Prefix Filtering?", SIGMOD 2012).
    """
    np, items, sets = import_numpy(), list(held_out.values()), [shingle(text) for text in held_out]
    by_frequency, positions = Counter(chain.from_iterable(sets)).most_common(), defaultdict[str, list[int]](list)
    ranks = {element: -number for number, (element, _) in enumerate(by_frequency)}

    def find_rarest(elements: frozenset[str]) -> Sequence[str]:
        """Return the rarest elements, without those that no held-out text has, which are rarer."""
        known = sorted((element for element in elements if element in ranks), key=ranks.__getitem__)
        return known[: max(0, _SHARED + int(len(elements) * (1 - THRESHOLD) + 1e-9) - len(elements) + len(known))]

    for position, elements in enumerate(sets):
        for element in find_rarest(elements):
            positions[element].append(position)
    arrays = {element: np.array(own) for element, own in positions.items()}
    equal, near = set[tuple[str, str]]().union(*(held_out.get(text, ()) for text in texts)), set[tuple[str, str]]()
    for elements in map(shingle, report_progress(texts, step, progress)):
        shared = [arrays[element] for element in find_rarest(elements) if element in arrays]
        counts = np.bincount(np.concatenate(shared)) if shared else np.array([])
        for position in np.flatnonzero(counts >= min(_SHARED, ceil(THRESHOLD * len(elements) - 1e-9))):
            if len(elements & sets[position]) / len(elements | sets[position]) >= THRESHOLD:
                near |= items[position]
    return equal, near - equal
