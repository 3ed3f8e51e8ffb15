"""Collects unjudged search results in a pool for the annotator, and records who judged each pair.

Pairs are added to the pool (`pool.jsonl`) but never removed. The pool contains each pair of a query and a snippet once,
even if several searchers retrieved the snippet. The annotator's labels for the pool are stored in a separate run
(`judged/`). The benchmark's labels (`qrels.tsv`) never change. `judgements.tsv` contains both sets of labels, with a
column for the judge. `judgements.qrels` contains the same labels in TREC format for other tools. If the benchmark and
the annotator both judge a pair, the benchmark's label takes precedence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agent.datasets.benchmark import Benchmark, Grades
from agent.datasets.encoding import dumps
from agent.datasets.groups import EQUIVALENT, EquivalenceGroup, EquivalentRecord
from agent.datasets.reading import read_dataset
from agent.errors import RunFolderError, UsageError
from agent.retrieval.aroma import AromaJudge
from agent.retrieval.folder import JUDGED, JUDGEMENTS, JUDGEMENTS_TREC, LABEL_RESULTS, POOL, RetrievalFolder, format_row
from agent.retrieval.rankings import encode_id, read_trec
from agent.retrieval.results import LabelSource
from agent.runs.store import files
from agent.runs.store.files import replacing
from agent.runs.store.reviews import read_verdicts
from agent.runs.store.run_view import get_variant_and_model, load_run
from agent.text import plural
from agent.types import Progress

# The names of the judges for labels from `qrels.tsv`, and from reviews of proposed pairs.
BENCHMARK, REVIEW = "benchmark", "review"


def rank_top_codes(scores: Mapping[str, float], depth: int) -> dict[str, int]:
    """Return the ranks of the top `depth` snippets and of those tied with the last one. Tied snippets share a rank."""
    ascending = sorted(scores.values())
    ranks = {code: len(ascending) - bisect_right(ascending, score) + 1 for code, score in scores.items()}
    return {code: rank for code, rank in ranks.items() if rank <= depth}


@dataclass(frozen=True)
class JudgingPool:
    """The pool of pairs to judge.

    `existing` is the current content of `pool.jsonl`, `new` contains the lines to add, and `pairs` is the total number
    of pairs.
    """

    existing: bytes
    new: Sequence[bytes]
    pairs: int

    def write(self, path: Path) -> None:
        """Write the pool to a file.

        Raises:
            StorageError: the file cannot be written. The earlier version is kept.
        """
        with replacing(path) as draft, draft.open("wb") as file:
            file.writelines((self.existing, *self.new))


def collect_pool(
    folder: RetrievalFolder, benchmark: Benchmark, depth: int, proposed: Path | None = None
) -> JudgingPool:
    """Collect unjudged results from the top `depth` of each searcher's ranking. Does not write the pool.

    New pairs are sorted by query (in the benchmark's order), and then by best rank. The `meta` of a pair contains the
    query id, the code id, and the rank of the snippet in each searcher's ranking. The unjudged pairs of the file
    `proposed` (see `propose_pairs`) come first, and keep their other `meta` fields. Pairs that are already in the pool
    never change. Blank snippets are skipped.

    Raises:
        InputError: a file is malformed, or a ranking contains an id that is not in the benchmark.
        RunFolderError: the pool belongs to another benchmark.
        UsageError: `proposed` belongs to another benchmark.
    """
    path = folder.path / POOL
    remedy = f"To start over, move this file and {folder.path / JUDGED} elsewhere"
    existing = _read_pairs(path, benchmark, RunFolderError, remedy) if path.exists() else {}

    def check(query: str, code: str) -> None:
        if query not in benchmark.queries or code not in benchmark.codes:
            raise ValueError(f"query {query[:60]!r} or snippet {code[:60]!r} is not in the benchmark")

    new_codes: dict[str, dict[str, dict[str, int]]] = {query: {} for query in benchmark.queries}
    for searcher in folder.rankings:
        for query, scores in read_trec(folder.ranking_path(searcher), check):
            grades = benchmark.grades.get(query, {})
            for code, rank in rank_top_codes(scores, depth).items():
                if code not in grades and (query, code) not in existing and benchmark.codes[code].strip():
                    new_codes[query].setdefault(code, {})[searcher] = rank
    remedy = "Pass a file that `agent corpus equivalents` wrote for the benchmark of this folder"
    fields = _read_pairs(proposed, benchmark, UsageError, remedy) if proposed else {}
    for query, code in fields:
        if code not in benchmark.grades.get(query, {}) and (query, code) not in existing:
            new_codes[query].setdefault(code, {})
    lines = [
        _build_line(benchmark, query, code, {**fields.get((query, code), {}), "found_by": ranks})
        for query, codes in new_codes.items()
        for code, ranks in sorted(codes.items(), key=lambda item: min(item[1].values(), default=0))
    ]
    new = [dumps(line) + b"\n" for line in lines]
    return JudgingPool(path.read_bytes() if existing else b"", new, len(existing) + len(new))


def _build_line(benchmark: Benchmark, query: str, code: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": "/".join(encode_id(name).replace("/", "%2F") for name in (query, code)),
        "query": benchmark.queries[query],
        "code": benchmark.codes[code],
        "language": benchmark.language,
        "meta": {"query_id": query, "code_id": code, **meta},
    }


def propose_pairs(benchmark: Benchmark, groups: Iterable[EquivalenceGroup]) -> Iterator[dict[str, Any]]:
    """Iterate over the pairs of a query and an unjudged snippet that is equivalent to a relevant one.

    The pairs have the format of the pool, and are in the benchmark's order. The field `equivalent` of `meta` is an
    `EquivalentRecord`. A pair is proposed once.
    """
    groups_of: dict[str, list[EquivalenceGroup]] = {}
    for group in groups:
        for member in group.members:
            groups_of.setdefault(member.id, []).append(group)
    for query in benchmark.queries:
        grades = benchmark.grades.get(query, {})
        proposed = dict[str, dict[str, Any]]()
        for relevant in (code for code, grade in grades.items() if grade > 0):
            for group in groups_of.get(relevant, ()):
                record = EquivalentRecord(of=relevant, group=group.id, evidence=group.evidence).model_dump(mode="json")
                for member in group.members:
                    if member.id not in grades:
                        proposed.setdefault(member.id, {EQUIVALENT: record, **member.meta})
        for code, meta in proposed.items():
            yield _build_line(benchmark, query, code, meta)


def _read_pairs(
    path: Path, benchmark: Benchmark, error: type[UsageError | RunFolderError], remedy: str
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the `meta` of each pair of a file in the format of the pool, by query id and code id."""
    pairs = dict[tuple[str, str], dict[str, Any]]()
    for pair in read_dataset([path]):
        query, code = str(pair.meta.get("query_id")), str(pair.meta.get("code_id"))
        if (benchmark.queries.get(query), benchmark.codes.get(code)) != (pair.query, pair.code):
            cause = f"pair {pair.id[:80]!r} does not match the benchmark, because the file was modified"
            raise error(f"{path}: {cause}. {remedy}.")
        pairs[query, code] = {name: value for name, value in pair.meta.items() if name not in ("query_id", "code_id")}
    return pairs


@dataclass(frozen=True)
class AnnotatorJudgements:
    """The annotator's judgements of the pool.

    `judge` has the form VARIANT/MODEL. `grades` maps query ids to grades. `reviewed` contains the query id and the code
    id of each proposed pair whose grade comes from a review. The other fields count pairs by outcome.
    """

    judge: str = "nobody"
    grades: Mapping[str, Grades] = field(default_factory=dict)
    reviewed: Set[tuple[str, str]] = frozenset()
    relevant: int = 0
    irrelevant: int = 0
    undecided: int = 0
    no_intent: int = 0
    errors: int = 0

    def name_judge(self, query: str, code: str) -> str:
        return REVIEW if (query, code) in self.reviewed else self.judge


def read_annotator_judgements(folder: RetrievalFolder) -> AnnotatorJudgements:
    """Read the majority labels (0 or 1) from the folder's annotation run.

    If people have reviewed a proposed pair, their label is used.

    Raises:
        RunFolderError: the run is damaged.
    """
    if not (folder.path / JUDGED / files.ANNOTATIONS).exists():
        return AnnotatorJudgements()
    grades: dict[str, dict[str, int]] = {}
    reviews = read_verdicts(folder.path / JUDGED / files.REVIEWS)
    reviewed = set[tuple[str, str]]()
    with load_run(folder.path / JUDGED) as view:
        labels = {label.id: label for label in view.index.iterate_labels()}
        for pair in view.pairs():
            query, code = str(pair.meta.get("query_id")), str(pair.meta.get("code_id"))
            label = labels[pair.id].label if pair.id in labels else None
            if EQUIVALENT in pair.meta and pair.id in reviews:
                label = reviews[pair.id].label
                reviewed.add((query, code))
            if label is not None:
                grades.setdefault(query, {})[code] = label
        variant, models = get_variant_and_model(view.manifest)
    outcomes = Counter(label.status for label in labels.values())
    return AnnotatorJudgements(
        judge=f"{variant}/{models}",
        grades=grades,
        reviewed=reviewed,
        relevant=outcomes["1"],
        irrelevant=outcomes["0"],
        undecided=outcomes["undecided"],
        no_intent=outcomes["no_intent"],
        errors=outcomes["error"],
    )


def merge_grades(grades: Mapping[str, Grades], added: Mapping[str, Grades]) -> dict[str, Grades]:
    """Merge two sets of grades. Entries in `grades` come first and take precedence over entries in `added`."""
    first = {query: grades.get(query, {}) for query in {**grades, **added}}
    return {query: {**codes, **added.get(query, {}), **codes} for query, codes in first.items()}


def write_judgements(folder: RetrievalFolder, annotator: AnnotatorJudgements) -> None:
    """Write all judgements, both as a table that names the judge and as TREC qrels.

    If the judgements have changed, the scores and the comparison are marked as out of date.

    Raises:
        RunFolderError: the benchmark's judgements, scores or comparison are damaged.
        StorageError: a file cannot be written. The earlier version is kept.
    """
    qrels = folder.read_grades()
    rows = [
        (query, code, grade, BENCHMARK if code in qrels.get(query, {}) else annotator.name_judge(query, code))
        for query, grades in merge_grades(qrels, annotator.grades).items()
        for code, grade in grades.items()
    ]
    if rows == list(folder.iterate_judgements()):
        return
    folder.mark_out_of_date(*LABEL_RESULTS)
    with replacing(folder.path / JUDGEMENTS_TREC) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{encode_id(query)} 0 {encode_id(code)} {grade}\n" for query, code, grade, _ in rows)
    with replacing(folder.path / JUDGEMENTS) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.write("query-id\tcorpus-id\tscore\tjudge\n")
        file.writelines(format_row(*row) for row in rows)


class Labels(NamedTuple):
    """Relevance judgements for scoring: their source, the grades (keyed by query id), the query ids, and notes.

    `missing` is the number of pairs in the pool that have no judgement.
    """

    judge: LabelSource
    grades: Mapping[str, Grades]
    queries: Sequence[str]
    notes: tuple[str, ...] = ()
    missing: int = 0


def read_labels(folder: RetrievalFolder, judge: LabelSource = "labels", progress: Progress = lambda *_: None) -> Labels:
    """Read the relevance judgements for scoring.

    `judge` selects the source of the judgements: `labels` for the judgements from the benchmark and the annotator, or
    `benchmark` for the judgements from the benchmark only. With `aroma`, every retrieved snippet is judged by its
    similarity to an answer, and queries without a parsable answer are skipped.

    Raises:
        RunFolderError: a file in the folder is damaged, or the benchmark has changed (only for `aroma`).
        InputError: the pool is malformed.
        UsageError: the benchmark cannot be opened (only for `aroma`).
    """
    if judge == "aroma":
        retrieved: dict[str, dict[str, float]] = {}
        for name in folder.rankings:
            for query, scores in read_trec(folder.ranking_path(name)):
                retrieved.setdefault(query, {}).update(scores)
        aroma_grades, notes = AromaJudge(folder.reopen_benchmark()).judge(retrieved, progress)
        return Labels(judge, aroma_grades, list(aroma_grades), notes)
    grades, queries = folder.read_grades(), list(folder.read_queries())
    if judge == "benchmark":
        return Labels(judge, grades, queries)
    judges = Counter[str]()
    for query, code, grade, name in folder.iterate_judgements():
        grades.setdefault(query, {})[code] = grade
        judges["the benchmark" if name == BENCHMARK else name] += 1
    notes = ("labels: " + ", ".join(f"{number:,} from {name}" for name, number in judges.items()),) if judges else ()
    pool = folder.path / POOL
    pool_size = len(read_dataset([pool])) if pool.exists() else 0
    missing = max(0, pool_size - (judges.total() - judges["the benchmark"]))
    if missing:
        cause = f"not judged: {missing:,} of {plural(pool_size, 'pair')} in the pool"
        remedy = f"Resume judging with: agent retrieval judge {folder.path}"
        notes = (*notes, f"{cause} (pending, undecided, failed or without search intent). {remedy}")
    return Labels(judge, grades, queries, notes, missing)
