"""Audits a benchmark: copies, contradictions, leaks, the best score that texts allow, and equivalents without a grade.

The text of a snippet identifies its copies, so a searcher that sees only texts cannot tell them apart. In benchmarks
that list pairs, a snippet is its text and has no copies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import permutations, product
from math import log2
from statistics import fmean

from agent.corpus.decontaminate import Decontaminator
from agent.corpus.near_duplicates import cluster, shingle_code, shingle_query
from agent.datasets.benchmark import Benchmark, Grades
from agent.datasets.groups import EquivalenceGroup
from agent.evaluation.lazy_numpy import np
from agent.evaluation.statistics import DEFAULTS, LEVEL, BootstrapSettings, ClusterBootstrap
from agent.retrieval.folder import RetrievalFolder
from agent.retrieval.judging import merge_grades, read_labels
from agent.retrieval.measures import QueryRanking, ndcg, reciprocal_rank
from agent.retrieval.rankings import read_trec
from agent.retrieval.results import Audit, AuditFact, Ceiling, MetricValue, ScoreShift
from agent.retrieval.scores import score_rankings
from agent.retrieval.significance import ROUNDING
from agent.text import one_line
from agent.types import Pair, Progress

EXAMPLES = 5
"""Maximum number of examples for each kind of fact."""
_CUTOFF = 10
_METRICS = (f"nDCG@{_CUTOFF}", "RR")
_MAX_ORDERED = 6
"""Maximum number of relevant texts whose orders are compared for equal queries."""
_MAX_TEXT = 100
_Fields = Mapping[str, str]
_Shingle = Callable[[str], frozenset[str]]
_Proposal = tuple[str, str, str, str]
"""The ids of a query, of a snippet without a grade, of a relevant snippet, and of a group with both snippets."""


def audit_benchmark(
    benchmark: Benchmark,
    training: Sequence[Pair] | None = None,
    groups: Iterable[EquivalenceGroup] | None = None,
    folder: RetrievalFolder | None = None,
    *,
    progress: Progress = lambda *_: None,
) -> Audit:
    """Audit a benchmark that was opened with `on_unknown_id="skip"`.

    `training` has pairs or snippets to search for leaks. `groups` has equivalent functions. A `folder` adds the grades
    of the annotator, and the rankings whose scores would change with the equivalents.

    Raises:
        ExtraMissing: `datasketch` or NumPy is not installed.
        UsageError: a file of the folder is damaged.
    """
    copies, codes = _Copies(benchmark), benchmark.codes
    facts = {
        **_find_duplicates("snippet", codes, copies.codes.values(), shingle_code, progress),
        **_find_duplicates("query", benchmark.queries, copies.queries.values(), shingle_query, progress),
        **_find_contradictions(benchmark, copies),
        **({} if training is None else _find_leaks(benchmark, training, progress)),
    }
    shifts: Iterable[ScoreShift] = ()
    if groups is not None:
        grades = benchmark.grades if folder is None else read_labels(folder).grades
        proposals = list(_propose_equivalents(benchmark, grades, groups))
        rows = {
            (query, code): {"query": query, "snippet": code, "equivalent_to": of, "group": group, "text": codes[code]}
            for query, code, of, group in proposals
        }
        facts["equivalents_without_grade"] = _build_fact(None, rows.values())
        affected = len({query for query, _ in rows})
        facts["queries_with_such_equivalents"] = _build_fact(len(benchmark.queries), (), affected)
        if folder is not None and folder.rankings and proposals:
            shifts = _measure_shifts(folder, grades, proposals, progress)
    return Audit(
        benchmark=benchmark.name,
        queries=len(benchmark.queries),
        snippets=sum(map(len, copies.codes.values())),
        judgements=len(benchmark.judgements),
        facts=facts,
        ceilings=tuple(_compute_ceilings(benchmark, copies)),
        shifts=tuple(shifts),
        level=LEVEL,
        seed=DEFAULTS.seed,
        resamples=DEFAULTS.resamples,
        notes=benchmark.notes,
    )


class _Copies:
    """The copies of each text, and the judgements of the files.

    `codes` maps the id of the first snippet with a text to all ids with that text, and `queries` maps texts to ids.
    `grades` maps a query text and the id of a first snippet to the grades of each judged pair of copies, in order.
    """

    def __init__(self, benchmark: Benchmark) -> None:
        self.codes = {code: [code] for code in benchmark.codes}
        if not benchmark.lists_pairs:
            for copy, first in benchmark.duplicates.items():
                self.codes[first].append(copy)
        self.queries = defaultdict[str, list[str]](list)
        for query, text in benchmark.queries.items():
            self.queries[text].append(query)
        self.grades: dict[tuple[str, str], dict[tuple[str, str], list[int]]] = {}
        self.unresolved: list[_Fields] = []
        for query, code, grade in benchmark.judgements:
            first = benchmark.duplicates.get(code, code)
            if query in benchmark.queries and first in benchmark.codes:
                pairs = self.grades.setdefault((benchmark.queries[query], first), {})
                pairs.setdefault((query, first if benchmark.lists_pairs else code), []).append(grade)
            else:
                unknown = "query" if query not in benchmark.queries else "snippet"
                self.unresolved.append({"query": query, "snippet": code, "unknown": unknown})


def _build_fact(of: int | None, rows: Iterable[_Fields], count: int | None = None) -> AuditFact:
    """Count rows, and keep the first ones as examples. `count` replaces the number of rows."""
    total, examples = 0, []
    for total, row in enumerate(rows, start=1):
        if total <= EXAMPLES:
            examples.append({name: one_line(text, _MAX_TEXT) for name, text in row.items()})
    return AuditFact(count=total if count is None else count, of=of, examples=tuple(examples))


def _find_duplicates(
    kind: str, texts: Mapping[str, str], groups: Collection[Sequence[str]], shingle: _Shingle, progress: Progress
) -> dict[str, AuditFact]:
    firsts, noun = [group[0] for group in groups], "queries" if kind == "query" else "snippets"
    numbers = cluster((texts[first] for first in firsts), len(firsts), progress, shingle)
    equal = ((copy, group[0]) for group in groups for copy in group[1:])
    near = ((own, firsts[number]) for own, number in zip(firsts, numbers, strict=True) if own != firsts[number])
    return {
        f"{name}_{noun}": _build_fact(of, ({kind: own, "of": first, "text": texts[first]} for own, first in pairs))
        for name, of, pairs in (("equal", sum(map(len, groups)), equal), ("nearly_equal", len(firsts), near))
    }


def _find_contradictions(benchmark: Benchmark, copies: _Copies) -> dict[str, AuditFact]:
    repeated, conflicts, unequal = list[_Fields](), list[_Fields](), list[_Fields]()
    relevant = 0
    for (text, first), pairs in copies.grades.items():
        grades = {grade for own in pairs.values() for grade in own}
        relevant += max(grades) > 0
        for (query, code), own in pairs.items():
            repeated += [{"query": query, "snippet": code}] * (len(own) - len(set(own)))
        example = {"query": text, "snippet": first, "text": benchmark.codes[first]}
        if len(grades) > 1:
            judged = (f"{query} {code}: {grade}" for (query, code), own in pairs.items() for grade in own)
            conflicts.append({**example, "grades": ", ".join(judged)})
        if max(grades) > 0 and len(pairs) < len(copies.queries[text]) * len(copies.codes[first]):
            missing = next(pair for pair in product(copies.queries[text], copies.codes[first]) if pair not in pairs)
            judged_copy = next(pair for pair, own in pairs.items() if max(own) > 0)
            unequal.append({**example, "relevant": " ".join(judged_copy), "without_grade": " ".join(missing)})
    without = (
        {"query": query, "text": text}
        for query, text in benchmark.queries.items()
        if not any(grade > 0 for grade in benchmark.grades.get(query, {}).values())
    )
    judgements = len(benchmark.judgements)
    return {
        "repeated_judgements": _build_fact(judgements, repeated),
        "copies_with_different_grades": _build_fact(len(copies.grades), conflicts),
        "copies_without_grade": _build_fact(relevant, unequal),
        "queries_without_relevant_snippet": _build_fact(len(benchmark.queries), without),
        "judgements_of_unknown_ids": _build_fact(judgements, copies.unresolved),
    }


def _find_leaks(benchmark: Benchmark, training: Sequence[Pair], progress: Progress) -> dict[str, AuditFact]:
    """Find the queries and snippets of the benchmark that occur in training, with the rules of `decontaminate`."""
    finder, queries, codes = Decontaminator(), dict[str, _Fields](), dict[str, _Fields]()
    finder.add("benchmark", benchmark, progress)
    for number, pair in enumerate(training, start=1):
        match = finder.check(pair)
        fields = {"training": pair.id, "by": match.get("removed_by", "")}
        if "matched_query" in match:
            leak = {"query": match["matched_id"], **fields, "text": match["matched_query"]}
            queries.setdefault(match["matched_id"], leak)
        elif match:
            leak = {"snippet": match["matched_id"], **fields, "text": match["matched_code"]}
            codes.setdefault(match["matched_id"], leak)
        progress("checking pairs", number, len(training))
    counts = finder.overlaps["benchmark"]
    return {
        "queries_in_training": _build_fact(counts["queries"], queries.values(), counts["contaminated_queries"]),
        "snippets_in_training": _build_fact(counts["codes"], codes.values(), counts["contaminated_codes"]),
    }


def _compute_ceilings(benchmark: Benchmark, copies: _Copies) -> Iterator[Ceiling]:
    grades = defaultdict[str, dict[str, int]](dict)
    for pairs in copies.grades.values():
        for (query, code), own in pairs.items():
            grades[query][code] = max(own)
    values: tuple[list[float], list[float]] = ([], [])
    for queries in copies.queries.values():
        judged = [grades[query] for query in queries if max(grades[query].values(), default=0) > 0]
        relevant = (code for own in judged for code, grade in own.items() if grade > 0)
        texts = dict.fromkeys(benchmark.duplicates.get(code, code) for code in relevant)
        for column, scores in zip(values, _rank_texts(judged, [copies.codes[text] for text in texts]), strict=True):
            column.extend(scores)
    for metric, column in zip(_METRICS, values, strict=True):
        if column:
            below = sum(value < 1 - ROUNDING for value in column)
            yield Ceiling(metric=metric, value=fmean(column), below=below, of=len(column))


def _rank_texts(judged: Sequence[Grades], texts: Sequence[Sequence[str]]) -> tuple[list[float], list[float]]:
    """Return the best nDCG@10 and the best RR for equal queries with these grades, one value per query.

    `texts` has the ids of the copies of each relevant text.
    """
    best = (sorted(own.values(), reverse=True)[:_CUTOFF] for own in judged)
    ideal = [sum(grade / log2(rank + 1) for rank, grade in enumerate(grades, start=1)) for grades in best]
    # nDCG is linear in the gains, so no order is better than that by the mean gain of a copy
    shares = [{code: grade / dcg for code, grade in own.items()} for own, dcg in zip(judged, ideal, strict=True)]
    gains = {tuple(text): fmean(sum(own.get(code, 0) for own in shares) for code in text) for text in texts}
    scores = {code: gain for text, gain in gains.items() for code in text}
    by_gain = sorted(gains, key=lambda text: -gains[text])
    # the RR of a single query depends only on its first relevant text
    first = by_gain if len(judged) == 1 else by_gain[:_MAX_ORDERED]
    orders = permutations(first, 1 if len(judged) == 1 else len(first))

    def compute_ranks(order: Sequence[Sequence[str]]) -> list[float]:
        ranking = {code: -float(rank) for rank, text in enumerate([*order, *by_gain[len(first) :]]) for code in text}
        return [reciprocal_rank(QueryRanking(ranking, own)) for own in judged]

    return [ndcg(QueryRanking(scores, own), _CUTOFF) for own in judged], max(map(compute_ranks, orders), key=sum)


def _propose_equivalents(
    benchmark: Benchmark, grades: Mapping[str, Grades], groups: Iterable[EquivalenceGroup]
) -> Iterator[_Proposal]:
    codes = {text: code for code, text in benchmark.codes.items()}
    queries = defaultdict[str, list[str]](list)
    for query, own in grades.items():
        for code in (code for code, grade in own.items() if grade > 0):
            queries[code].append(query)
    for group in groups:
        members = list(dict.fromkeys(codes[member.code] for member in group.members if member.code in codes))
        for of in filter(queries.__contains__, members):
            for query, code in product(queries[of], members):
                if code not in grades[query]:
                    yield query, code, of, group.id


def _measure_shifts(
    folder: RetrievalFolder, grades: Mapping[str, Grades], proposals: Sequence[_Proposal], progress: Progress
) -> Iterator[ScoreShift]:
    """Score the rankings before and after all proposals. Intervals are clustered by connected queries and groups."""
    added = defaultdict[str, dict[str, int]](dict)
    for query, code, of, _ in proposals:
        added[query][code] = max(grades[query][of], added[query].get(code, 0))
    before, after = (
        score_rankings(
            folder.about["name"], list(folder.read_queries()), folder.identity["benchmark"]["codes"], labels,
            {name: read_trec(folder.ranking_path(name)) for name in folder.rankings},
            metrics=_METRICS, settings=BootstrapSettings(resamples=1), progress=progress,
        )
        for labels in (grades, merge_grades(grades, added))
    )  # fmt: skip
    columns = [(name, metric) for name in before.values for metric in _METRICS]
    now, then = (np.array([own.values[name][metric] for name, metric in columns]).T for own in (before, after))
    bootstrap = ClusterBootstrap(_connect_queries(before.queries, proposals))
    sums = bootstrap.resample_sums(list(np.hstack([np.ones((len(now), 1)), then - now])), 1 + len(columns))
    for i, (name, metric) in enumerate(columns):
        interval = bootstrap.percentile_interval(sums[:, i + 1] / sums[:, 0])
        difference = MetricValue(mean=float((then - now)[:, i].mean()), interval=interval)
        yield ScoreShift(searcher=name, metric=metric, before=float(now[:, i].mean()), difference=difference)


def _connect_queries(queries: Sequence[str], proposals: Iterable[_Proposal]) -> list[str]:
    """Return a cluster for each query. Queries that share a group, also through other queries, share a cluster."""
    parents: dict[str, str] = {}

    def find_root(name: str) -> str:
        while (parent := parents.setdefault(name, name)) != name:
            name = parent
        return name

    for query, _, _, group in proposals:
        parents[find_root(f"group {group}")] = find_root(f"query {query}")
    return [find_root(f"query {query}") for query in queries]
