"""Finds held-out queries and their relevant snippets in training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from agent.corpus.near_duplicates import NearDuplicateIndex, shingle_code, shingle_query
from agent.retrieval.code_views import split_docstring
from agent.retrieval.searchers.base import report_progress
from agent.training.data import TrainingData
from agent.types import Progress

_KINDS = ("queries", "near_queries", "codes", "near_codes")
_Items = dict[str, set[tuple[str, str]]]  # by text: the name of a benchmark, and the id of a query or snippet


class Leak(NamedTuple):
    """A held-out query or snippet, by its benchmark and its id, and the equal or nearly equal `text` in training."""

    benchmark: str
    kind: str
    id: str
    text: str


@dataclass(frozen=True)
class Leaks:
    """Numbers of held-out queries and relevant snippets that are in training. True if there is one.

    `counts` maps benchmarks to the kinds `queries`, `near_queries`, `codes` and `near_codes`. Near duplicates exclude
    equal texts. `found` lists every match.
    """

    counts: Mapping[str, Mapping[str, int]]
    found: Sequence[Leak] = ()

    def __bool__(self) -> bool:
        return any(chain.from_iterable(kinds.values() for kinds in self.counts.values()))

    def describe(self) -> str:
        """Return the counts above 0, such as `web-test: queries 2, near-duplicate snippets 1`."""
        names = {kind: kind.replace("near_", "near-duplicate ").replace("codes", "snippets") for kind in _KINDS}
        return "; ".join(
            f"{benchmark}: {', '.join(f'{names[kind]} {count:,}' for kind, count in kinds.items() if count)}"
            for benchmark, kinds in self.counts.items()
            if any(kinds.values())
        )


def find_leaks(data: TrainingData, progress: Progress) -> Leaks:
    """Count the held-out queries, and the snippets that are relevant for one, that are in training.

    Near duplicates are those that `NearDuplicateIndex` finds, as in `agent corpus split` and `decontaminate`. Held-out
    code also leaks if a training snippet equals or nearly equals it without docstrings. Other snippets of a
    held-out benchmark may be in training. Contrasts are compared like pairs, both the right code and the mutants.
    Benchmarks with the same name are counted as one.

    Raises:
        ExtraMissing: `datasketch` is not installed.
    """
    queries = _Items()
    codes = _Items()
    benchmarks = [benchmark for benchmark in (data.validation, *data.tests) if benchmark is not None]
    for benchmark in benchmarks:
        for identifier, query in benchmark.queries.items():
            queries.setdefault(query, set()).add((benchmark.name, identifier))
        graded = chain.from_iterable(grades.items() for grades in benchmark.grades.values())
        relevant = {code: benchmark.codes[code] for code, grade in graded if grade > 0}
        answers = {f"answer to {query}": code for query, code in benchmark.answers.items()}
        for identifier, code in (relevant | answers).items():
            parts = split_docstring(code, benchmark.language, {})
            for text in (code, (parts and parts[1]) or code):
                codes.setdefault(text, set()).add((benchmark.name, identifier))
    contrasts = data.contrasts.rows if data.contrasts else ()
    trained_queries = dict.fromkeys(chain(data.queries, (row.query for row in contrasts)))
    trained_codes = dict.fromkeys(chain(data.codes, *((row.right, row.wrong) for row in contrasts)))
    found = (
        *_match(list(trained_queries), queries, "queries", shingle_query, progress),
        *_match(list(trained_codes), codes, "codes", shingle_code, progress),
    )
    items = {kind: {leak[::2] for leak in found if leak.kind == kind} for kind in _KINDS}  # benchmarks and ids
    for kind in ("queries", "codes"):
        items[f"near_{kind}"] -= items[kind]
    counts = {
        own.name: {kind: sum(name == own.name for name, _ in items[kind]) for kind in _KINDS} for own in benchmarks
    }
    return Leaks(counts, found)


def _match(
    texts: Sequence[str], held_out: _Items, kind: str, shingle: Callable[[str], frozenset[str]], progress: Progress
) -> Iterator[Leak]:
    """Iterate over the texts with each held-out item that they equal or nearly equal."""
    index = NearDuplicateIndex()
    items = list(held_out.values())
    for text in held_out:
        index.add(shingle(text))
    for text in report_progress(texts, f"comparing {kind}", progress):
        equal = held_out.get(text, set())
        similar = (items[number] for number in index.find_all(shingle(text)))
        for name, identifier in sorted(equal.union(*similar)):
            yield Leak(name, kind if (name, identifier) in equal else f"near_{kind}", identifier, text)
