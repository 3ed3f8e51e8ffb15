"""The audit of a benchmark: planted faults, counts and ceilings by brute force, and the effect of equivalents."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from math import log2
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from agent.corpus.audit import audit_benchmark
from agent.datasets.groups import EquivalenceGroup, GroupMember
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.folder import RetrievalFolder
from agent.retrieval.results import Audit
from agent.retrieval.scores import score_rankings
from agent.types import Pair
from tests.datasets.benchmarks.test_beir import make_qrels
from tests.evaluation.runs import write_lines
from tests.retrieval import pooled
from tests.retrieval.test_benchmark import write_run

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
FACTS = (
    "equal_snippets nearly_equal_snippets equal_queries nearly_equal_queries repeated_judgements "
    "copies_with_different_grades copies_without_grade queries_without_relevant_snippet judgements_of_unknown_ids "
    "queries_in_training snippets_in_training equivalents_without_grade queries_with_such_equivalents"
)


def make_code(number: int) -> str:
    return f"def f{number}(x):\n" + "".join(f"    x = {word}{number}(x, {word})\n" for word in WORDS)


class Folder:
    """A BEIR folder without faults. Each of four queries has one relevant snippet, and one snippet has no query."""

    def __init__(self) -> None:
        self.codes = {f"c{n}": make_code(n) for n in range(5)}
        self.queries = {f"q{n}": f"how to find the {WORDS[n]} of {WORDS[-n - 1]} number {n}" for n in range(4)}
        self.grades: list[tuple[str, str, float]] = [(f"q{n}", f"c{n}", 1) for n in range(4)]
        self.training = [Pair(id="t", query="unrelated words here", code=make_code(9))]
        self.groups: list[EquivalenceGroup] = []

    def audit(self, path: Path) -> Audit:
        for name, texts in (("corpus", self.codes), ("queries", self.queries)):
            write_lines(path / f"{name}.jsonl", [{"_id": key, "text": text} for key, text in texts.items()])
        write_lines(path / "qrels" / "test.jsonl", make_qrels(*self.grades))
        return audit_benchmark(open_benchmark(path, on_unknown_id="skip"), self.training, self.groups)

    def add_copy(self, code: str, query: str = "", grade: int = 1) -> None:
        self.codes["copy"] = self.codes[code]
        self.grades += [(query, "copy", grade)] if query else []

    def add_query(self, text: str, code: str) -> None:
        self.queries["q9"] = text
        self.grades.append(("q9", code, 1))


def make_group(name: str, *codes: str) -> EquivalenceGroup:
    members = tuple(GroupMember(id="x", code=code, informative=9, mutants=4, told_apart=4) for code in codes)
    return EquivalenceGroup(id=name, members=members, inputs=9, informative=9, outputs=9, evidence=())


def change_last(text: str) -> str:
    return text[: text.rindex("(")] + "(y, z)\n"


FAULTS: Mapping[str, tuple[Callable[[Folder], object], str, Mapping[str, str]]] = {
    "none": (lambda _: None, "", {}),
    "equal code": (lambda f: f.add_copy("c4"), "equal_snippets", {"snippet": "copy", "of": "c4"}),
    "equal code, both relevant": (lambda f: f.add_copy("c0", "q0"), "equal_snippets", {"snippet": "copy"}),
    "near code": (lambda f: f.codes.update(n=change_last(f.codes["c3"])), "nearly_equal_snippets", {"of": "c3"}),
    "equal query": (lambda f: f.add_query(f.queries["q1"], "c1"), "equal_queries", {"query": "q9", "of": "q1"}),
    "equal query, other code": (
        lambda f: f.add_query(f.queries["q1"], "c4"), "equal_queries copies_without_grade copies_without_grade",
        {"without_grade": "q9 c1"},
    ),
    "near query": (lambda f: f.add_query(f"{f.queries['q1']}!", "c1"), "nearly_equal_queries", {"query": "q9"}),
    "repeated judgement": (lambda f: f.grades.append(("q2", "c2", 1)), "repeated_judgements", {"query": "q2"}),
    "conflict": (lambda f: f.grades.append(("q2", "c2", 0)), "copies_with_different_grades", {"snippet": "c2"}),
    "conflict of copies": (
        lambda f: f.add_copy("c2", "q2", 0), "copies_with_different_grades equal_snippets",
        {"grades": "q2 c2: 1, q2 copy: 0"},
    ),
    "conflict of copies and copy without judgement": (
        lambda f: (f.add_copy("c2", "q2", 0), f.codes.update(third=f.codes["c2"])),
        "copies_with_different_grades copies_without_grade equal_snippets equal_snippets",
        {"without_grade": "q2 third"},
    ),
    "copy without judgement": (
        lambda f: f.add_copy("c2"), "copies_without_grade equal_snippets", {"without_grade": "q2 copy"}
    ),
    "no relevant code": (
        lambda f: f.grades.__setitem__(0, ("q0", "c0", 0)), "queries_without_relevant_snippet", {"query": "q0"}
    ),
    "unknown code": (lambda f: f.grades.append(("q0", "gone", 1)), "judgements_of_unknown_ids", {"snippet": "gone"}),
    "unknown query": (lambda f: f.grades.append(("gone", "c0", 1)), "judgements_of_unknown_ids", {"unknown": "query"}),
    "leaked query": (
        lambda f: f.training.append(Pair(id="l", query=f"so, {f.queries['q3']}", code="")),
        "queries_in_training", {"query": "q3", "training": "l"},
    ),
    "leaked code": (
        lambda f: f.training.append(Pair(id="l", query="", code=f.codes["c3"])), "snippets_in_training", {"by": "code"}
    ),
    "nearly leaked code": (
        lambda f: f.training.append(Pair(id="l", query="", code=change_last(f.codes["c3"]))),
        "snippets_in_training", {"snippet": "c3", "by": "near-duplicate code"},
    ),
    "equivalent": (
        lambda f: f.groups.append(make_group("g", f.codes["c0"], f.codes["c4"], "another")),
        "equivalents_without_grade queries_with_such_equivalents",
        {"query": "q0", "snippet": "c4", "equivalent_to": "c0", "group": "g"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_nothing_else_is_claimed(tmp_path: Path, fault: str) -> None:
    plant, names, example = FAULTS[fault]
    expected = Counter(names.split())
    folder = Folder()
    plant(folder)
    audit = folder.audit(tmp_path)
    assert set(audit.facts) == set(FACTS.split())
    assert {name: fact.count for name, fact in audit.facts.items() if fact.count} == expected
    examples = [example.items() for fact in audit.facts.values() for example in fact.examples]
    assert not expected or any(example.items() <= own for own in examples)
    below = {"equal query, other code": 2}.get(fault, int("copies" in fault or "copy" in fault))
    assert audit.ceilings[0].below == below


def test_snippets_of_a_run_are_texts_without_copies(tmp_path: Path) -> None:
    audit = audit_benchmark(open_benchmark(write_run(tmp_path), on_unknown_id="skip"))
    counts = {name: fact.count for name, fact in audit.facts.items()}
    assert {name for name, count in counts.items() if count} == {
        "copies_with_different_grades"
    }  # join and one: 1 and 0
    assert [ceiling.value for ceiling in audit.ceilings] == [1, 1]
    rows = [{"query": "sort", "code": "one", "label": 1}] * 2 + [{"query": "join", "code": "one", "label": 1}]
    audit = audit_benchmark(open_benchmark(write_lines(tmp_path / "pairs.jsonl", rows)))
    assert {name for name, fact in audit.facts.items() if fact.count} == {"repeated_judgements"}


def compute_best(queries: Sequence[Mapping[str, int]], texts: Mapping[str, str]) -> tuple[float, float]:
    """Return the best sums of nDCG@10 and RR over queries with equal texts. Average over the orders of copies."""
    best = [0.0, 0.0]
    for order in permutations(sorted(set(texts.values()))):
        sums = [0.0, 0.0]
        rankings = [
            ids for ids in permutations(texts) if [texts[i] for i in ids] == sorted(texts.values(), key=order.index)
        ]
        for ids in rankings:
            for grades in queries:
                ideal = sum(g / log2(i + 2) for i, g in enumerate(sorted(grades.values(), reverse=True)))
                gains = [grades.get(code, 0) for code in ids]
                sums[0] += sum(gain / log2(i + 2) for i, gain in enumerate(gains)) / ideal / len(rankings)
                sums[1] += max(1 / (i + 1) for i, gain in enumerate(gains) if gain) / len(rankings)
        best = [max(own, sums[i]) for i, own in enumerate(best)]
    return best[0], best[1]


def test_ceilings_are_the_best_scores_of_all_rankings_of_texts(tmp_path: Path) -> None:
    draw = random.Random(3)
    for number in range(40):
        folder, path = Folder(), tmp_path / str(number)
        texts = {f"d{n}": f"code {draw.randint(0, 2)}" for n in range(5)}
        folder.codes, folder.queries = texts, {f"q{n}": f"query {draw.randint(0, 1)}" for n in range(3)}
        graded = {q: {code: draw.choice((0, 1, 1, 2)) for code in draw.sample([*texts], 3)} for q in folder.queries}
        graded = {query: grades for query, grades in graded.items() if any(grades.values())}
        folder.grades = [(query, code, grade) for query, grades in graded.items() for code, grade in grades.items()]
        equal = [[graded[q] for q in graded if folder.queries[q] == text] for text in {*folder.queries.values()}]
        sums = np.array([compute_best(queries, texts) for queries in equal if queries])
        values = [ceiling.value for ceiling in folder.audit(path).ceilings]
        assert values == pytest.approx(list(sums.sum(axis=0) / len(graded)))


@pytest.mark.parametrize(("names", "has_interval"), [(("g1", "g2"), True), (("g", "g"), False)])
def test_scores_move_as_if_the_equivalents_were_accepted(
    tmp_path: Path, names: tuple[str, str], has_interval: bool
) -> None:
    codes = pooled.CODES
    groups = [make_group(name, codes[code], codes["c3"]) for name, code in zip(names, ("c1", "c2"), strict=True)]
    folder = RetrievalFolder(pooled.make_folder(tmp_path))
    audit = audit_benchmark(folder.reopen_benchmark(), groups=groups, folder=folder)
    labels = {"q1": {"c1": 1}, "q2": {"c2": 1}, "q3": {"c5": 0}}
    accepted = {**labels, "q1": {"c1": 1, "c3": 1}, "q2": {"c2": 1, "c3": 1}}
    rankings = {name: list(ranking.items()) for name, ranking in pooled.RANKINGS.items()}
    metrics = ["nDCG@10", "RR"]
    now, then = (
        score_rankings("b", [*labels], 5, grades, rankings, metrics=metrics).values for grades in (labels, accepted)
    )
    assert [(shift.searcher, shift.metric) for shift in audit.shifts] == [(s, m) for s in rankings for m in metrics]
    for shift in audit.shifts:
        before, after = (fmean(values[shift.searcher][shift.metric]) for values in (now, then))
        assert (shift.before, shift.difference.mean) == pytest.approx((before, after - before))
    # one group joins both queries to one cluster, which cannot be resampled
    assert any(shift.difference.interval for shift in audit.shifts) == has_interval


def count_near(texts: Iterable[str], split: Callable[[str], Sequence[str]], length: int) -> int:
    """Count the texts that are not the first of a component of nearly equal texts, with sparse matrices."""
    columns: dict[tuple[str, ...], int] = {}
    sets = []
    for text in texts:
        parts = split(text)
        shingles = {tuple(parts[i : i + length]) for i in range(max(1, len(parts) - length + 1))}
        sets.append([columns.setdefault(shingle, len(columns)) for shingle in shingles])
    ends = np.cumsum([0, *map(len, sets)])
    rows = csr_matrix((np.ones(ends[-1]), np.concatenate(sets), ends), shape=(len(sets), len(columns)))
    shared, sizes = (rows @ rows.T).tocoo(), np.diff(ends)
    similar = shared.data >= 0.8 * (sizes[shared.row] + sizes[shared.col] - shared.data)
    graph: Any = csr_matrix((similar, (shared.row, shared.col)), shape=shared.shape)
    graph.eliminate_zeros()
    return len(sets) - int(connected_components(graph)[0])


@pytest.mark.real_data
def test_counts_on_cosqa_equal_an_independent_computation(real_data: Path) -> None:
    benchmark = open_benchmark(real_data / "cosqa_search_dev_500.jsonl", [real_data / "cosqa_search_codes_6267.jsonl"])
    counts = {name: fact.count for name, fact in audit_benchmark(benchmark).facts.items()}
    near = count_near(benchmark.codes.values(), lambda code: re.findall(r"\w+|[^\w\s]", code), 5)
    nearly_equal_queries = count_near(benchmark.queries.values(), lambda query: " ".join(query.lower().split()), 3)
    assert (counts["nearly_equal_snippets"], counts["nearly_equal_queries"]) == (near, nearly_equal_queries) == (3, 0)
    assert not any(count for name, count in counts.items() if name != "nearly_equal_snippets")
