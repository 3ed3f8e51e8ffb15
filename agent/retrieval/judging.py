"""Results that nobody judged, pooled over searchers and judged by the annotator; and who made each judgement.

The pool is a file of pairs (`pool.jsonl`) that only grows: a pair of query and code is in it once, whatever searchers
found it. The annotator's labels of it are in a run of its own (`judged/`). The benchmark's labels never change
(`qrels.tsv`). `judgements.tsv` has them and the annotator's, with a column for the judge; `judgements.qrels` has the
same for other tools, in TREC's form. Where the benchmark has a label, that label counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agent.datasets import read_pairs
from agent.datasets.benchmark import Benchmark, Grades
from agent.datasets.encoding import dumps
from agent.errors import RunFolderError
from agent.retrieval.aroma import AromaJudge
from agent.retrieval.folder import JUDGED, JUDGEMENTS, JUDGEMENTS_TREC, POOL, RESULTS, RetrievalFolder, format_row
from agent.retrieval.rankings import encode_id, read_trec
from agent.retrieval.results import LabelSource
from agent.retrieval.searchers.base import Progress
from agent.store import files
from agent.store.files import replacing
from agent.store.run_view import get_variant_and_model, load_run
from agent.wording import plural

# The judge of what is in `qrels.tsv`.
BENCHMARK = "benchmark"


def rank_top_codes(scores: Mapping[str, float], depth: int) -> dict[str, int]:
    """Return the codes down to a depth, and all that tie with the last of them, with their best possible ranks."""
    rising = sorted(scores.values())
    ranks = {code: len(rising) - bisect_right(rising, score) + 1 for code, score in scores.items()}
    return {code: rank for code, rank in ranks.items() if rank <= depth}


@dataclass(frozen=True)
class JudgingPool:
    """The pairs to judge: what the pool's file holds, the lines of new pairs, and how many pairs both have."""

    earlier: bytes
    new: Sequence[bytes]
    pairs: int

    def write(self, path: Path) -> None:
        """Write the pool.

        Raises:
            StorageError: it cannot be written; the earlier file stays.
        """
        with replacing(path) as draft, draft.open("wb") as file:
            file.writelines((self.earlier, *self.new))


def collect_pool(folder: RetrievalFolder, benchmark: Benchmark, depth: int) -> JudgingPool:
    """Collect what searchers found down to a depth and the benchmark does not judge. Writes nothing.

    New pairs are in the order of the benchmark's queries, those of the best ranks first. Their `meta` has the ids, and
    the rank by searcher. A pair in the pool never changes. Codes without text are left out.

    Raises:
        InputError: a ranking or the pool is malformed, or a ranking has a query or code that the benchmark has not.
        RunFolderError: the pool is of another benchmark.
    """
    path = folder.path / POOL
    known = _read_pool_ids(path, benchmark)

    def check(query: str, code: str) -> None:
        if query not in benchmark.queries or code not in benchmark.codes:
            raise ValueError(f"query {query[:60]!r} or code {code[:60]!r} is not in the benchmark")

    pooled: dict[str, dict[str, dict[str, int]]] = {query: {} for query in benchmark.queries}
    for searcher in folder.rankings:
        for query, scores in read_trec(folder.ranking_path(searcher), check):
            judged = benchmark.grades.get(query, {})
            for code, rank in rank_top_codes(scores, depth).items():
                if code not in judged and (query, code) not in known and benchmark.codes[code].strip():
                    pooled[query].setdefault(code, {})[searcher] = rank
    lines = [
        {
            "id": "/".join(encode_id(name).replace("/", "%2F") for name in (query, code)),
            "query": benchmark.queries[query],
            "code": benchmark.codes[code],
            "language": benchmark.language,
            "meta": {"query_id": query, "code_id": code, "found_by": ranks},
        }
        for query, codes in pooled.items()
        for code, ranks in sorted(codes.items(), key=lambda item: min(item[1].values()))
    ]
    new = [dumps(line) + b"\n" for line in lines]
    return JudgingPool(path.read_bytes() if known else b"", new, len(known) + len(new))


def _read_pool_ids(path: Path, benchmark: Benchmark) -> set[tuple[str, str]]:
    """Return the ids of queries and codes in the pool's file."""
    known = set[tuple[str, str]]()
    for pair in read_pairs(path) if path.exists() else ():
        query, code = str(pair.meta.get("query_id")), str(pair.meta.get("code_id"))
        if (benchmark.queries.get(query), benchmark.codes.get(code)) != (pair.query, pair.code):
            cause = f"the pair {pair.id[:80]!r} is not of this benchmark: the file was changed"
            raise RunFolderError(f"{path}: {cause}. Move it and {path.parent / JUDGED} away to begin anew.")
        known.add((query, code))
    return known


@dataclass(frozen=True)
class AnnotatorJudgements:
    """The annotator's judgements of the pool: its name, the grades by query, and how many pairs ended how."""

    judge: str = "nobody"
    grades: Mapping[str, Grades] = field(default_factory=dict)
    relevant: int = 0
    irrelevant: int = 0
    undecided: int = 0
    errors: int = 0


def read_annotator_judgements(folder: RetrievalFolder) -> AnnotatorJudgements:
    """Read the labels of a folder's annotation run: 0 and 1, the majority of several rounds.

    Raises:
        RunFolderError: the run is damaged.
    """
    if not (folder.path / JUDGED / files.ANNOTATIONS).exists():
        return AnnotatorJudgements()
    grades: dict[str, dict[str, int]] = {}
    with load_run(folder.path / JUDGED) as view:
        labels = {label.id: label for label in view.index.iterate_labels()}
        for pair in view.pairs():
            if pair.id in labels and (label := labels[pair.id].label) is not None:
                grades.setdefault(str(pair.meta.get("query_id")), {})[str(pair.meta.get("code_id"))] = label
        variant, models = get_variant_and_model(view.manifest)
    ended = Counter(label.status for label in labels.values())
    return AnnotatorJudgements(
        judge=f"{variant}/{models}",
        grades=grades,
        relevant=ended["1"],
        irrelevant=ended["0"],
        undecided=ended["undecided"],
        errors=ended["error"],
    )


def merge_grades(grades: Mapping[str, Grades], added: Mapping[str, Grades]) -> dict[str, Grades]:
    """Return grades followed by added ones. Where both have a grade, the first counts."""
    own = {query: grades.get(query, {}) for query in {**grades, **added}}
    return {query: {**each, **added.get(query, {}), **each} for query, each in own.items()}


def write_judgements(folder: RetrievalFolder, annotator: AnnotatorJudgements) -> None:
    """Write the benchmark's and the annotator's judgements: with their judge, and as TREC's qrels.

    If they differ from the earlier ones, scores and comparison are marked as out of date.

    Raises:
        RunFolderError: the benchmark's judgements, scores or comparison are damaged.
        StorageError: a file cannot be written; the earlier one stays.
    """
    own = folder.read_grades()
    rows = [
        (query, code, grade, BENCHMARK if code in own.get(query, {}) else annotator.judge)
        for query, grades in merge_grades(own, annotator.grades).items()
        for code, grade in grades.items()
    ]
    if rows == list(folder.iterate_judgements()):
        return
    folder.mark_out_of_date(*RESULTS)
    with replacing(folder.path / JUDGEMENTS_TREC) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{encode_id(query)} 0 {encode_id(code)} {grade}\n" for query, code, grade, _ in rows)
    with replacing(folder.path / JUDGEMENTS) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.write("query-id\tcorpus-id\tscore\tjudge\n")
        file.writelines(format_row(*each) for each in rows)


class Labels(NamedTuple):
    """What to score by: the source, the grades by query, the ids of the queries, and notes.

    `missing` counts pairs of the pool without a judgement.
    """

    judge: LabelSource
    grades: Mapping[str, Grades]
    queries: Sequence[str]
    notes: tuple[str, ...] = ()
    missing: int = 0


def read_labels(folder: RetrievalFolder, judge: LabelSource = "labels", progress: Progress = lambda *_: None) -> Labels:
    """Return the labels to score by.

    `labels` are the benchmark's and the annotator's, `benchmark` are the benchmark's alone. `aroma` judges everything
    that a searcher found by its similarity to an answer; queries without an answer are left out.

    Raises:
        RunFolderError: a file of the folder is damaged, or for `aroma` the benchmark has changed.
        InputError: the pool is malformed.
        UsageError: for `aroma`, as `open_benchmark`.
    """
    if judge == "aroma":
        pooled: dict[str, dict[str, float]] = {}
        for name in folder.rankings:
            for query, scores in read_trec(folder.ranking_path(name)):
                pooled.setdefault(query, {}).update(scores)
        similar, notes = AromaJudge(folder.reopen_benchmark()).judge(pooled, progress)
        return Labels(judge, similar, list(similar), notes)
    grades, queries = folder.read_grades(), list(folder.read_queries())
    if judge == "benchmark":
        return Labels(judge, grades, queries)
    judges = Counter[str]()
    for query, code, grade, who in folder.iterate_judgements():
        grades.setdefault(query, {})[code] = grade
        judges["the benchmark" if who == BENCHMARK else who] += 1
    notes = ("labels: " + ", ".join(f"{number:,} of {who}" for who, number in judges.items()),) if judges else ()
    pool = folder.path / POOL
    pooled_pairs = len(read_pairs(pool)) if pool.exists() else 0
    missing = max(0, pooled_pairs - (judges.total() - judges["the benchmark"]))
    if missing:
        of_pool = f"{missing:,} of {plural(pooled_pairs, 'pair')} in the pool have no judgement"
        remedy = f"To go on judging: agent retrieval judge {folder.path}"
        notes = (*notes, f"{of_pool} (not judged yet, undecided, or an error). {remedy}")
    return Labels(judge, grades, queries, notes, missing)
