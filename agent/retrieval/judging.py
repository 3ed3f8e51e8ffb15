"""Results that nobody judged, pooled over searchers and judged by the annotator; and whose each judgement is.

The pool is a file of pairs (`pool.jsonl`) which only grows: a pair of query and code stands in it once, whatever
searchers found it. What the annotator says of it is in a run of its own (`judged/`). The benchmark's labels stay as
they are (`qrels.tsv`); `judgements.tsv` has them and the annotator's, with a column of who judged, and
`judgements.qrels` the same for other tools, in TREC's form. Where the benchmark has a label, it is the one that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agent.datasets import read_pairs
from agent.datasets.benchmark import Benchmark, Grades
from agent.datasets.encoding import dumps
from agent.errors import RunFolderError
from agent.retrieval import aroma
from agent.retrieval.folder import JUDGED, JUDGEMENTS, JUDGEMENTS_TREC, OF_SCORES, POOL, RetrievalFolder, row
from agent.retrieval.rankings import encoded, read_trec
from agent.retrieval.scores import Judge
from agent.retrieval.searchers.base import Progress
from agent.store.files import replacing, writing
from agent.store.run_view import load_run, made_by

BENCHMARK = "benchmark"
"""Who judged what is in `qrels.tsv`."""


def top(found: Mapping[str, float], depth: int) -> dict[str, int]:
    """Return the codes down to a depth, and all that tie with the last of them, with the best ranks they may have."""
    ranks: dict[str, int] = {}
    rank, last = 0, None
    for place, (code, score) in enumerate(sorted(found.items(), key=lambda item: -item[1]), 1):
        rank = rank if score == last else place
        if rank > depth:
            break
        ranks[code], last = rank, score
    return ranks


def fill_pool(folder: RetrievalFolder, benchmark: Benchmark, depth: int) -> tuple[int, int]:
    """Append to the pool what searchers found down to a depth and is neither judged nor in it; the caller has the lock.

    Returns how many pairs are in the pool, and how many of them are new. They stand query by query as in the
    benchmark, those of the best ranks first. `meta` has the ids, and by searcher the rank at which a pair was found; a
    pair that is there stays as it is, also where another searcher finds it now. Codes without text are left out.

    Raises:
        InputError: a ranking or the pool is malformed, or a ranking has a query or code that the benchmark has not.
        RunFolderError: the pool is of another benchmark.
        StorageError: it cannot be written.
    """
    path = folder.path / POOL
    kept = _kept(path, benchmark)

    def check(query: str, code: str) -> None:
        if query not in benchmark.queries or code not in benchmark.codes:
            raise ValueError(f"query {query[:60]!r} or code {code[:60]!r} is not in the benchmark")

    pooled: dict[str, dict[str, dict[str, int]]] = {query: {} for query in benchmark.queries}
    for searcher in folder.rankings:
        for query, found in read_trec(folder.ranking(searcher), check):
            for code, rank in top(found, depth).items():
                known = code in benchmark.grades.get(query, {}) or (query, code) in kept
                if not known and benchmark.codes[code].strip():
                    pooled[query].setdefault(code, {})[searcher] = rank
    lines = [
        {
            "id": "/".join(encoded(name).replace("/", "%2F") for name in (query, code)),
            "query": benchmark.queries[query],
            "code": benchmark.codes[code],
            "language": benchmark.language,
            "meta": {"query_id": query, "code_id": code, "found_by": ranks},
        }
        for query, codes in pooled.items()
        for code, ranks in sorted(codes.items(), key=lambda item: min(item[1].values()))
    ]
    if lines:
        before = path.read_bytes() if kept else b""
        with replacing(path) as draft, draft.open("wb") as file:
            file.write(before)
            file.writelines(dumps(line) + b"\n" for line in lines)
    return len(kept) + len(lines), len(lines)


def _kept(path: Path, benchmark: Benchmark) -> set[tuple[str, str]]:
    """Return the ids of queries and codes in the pool that is there."""
    kept = set[tuple[str, str]]()
    for pair in read_pairs(path) if path.exists() else ():
        query, code = str(pair.meta.get("query_id")), str(pair.meta.get("code_id"))
        if (benchmark.queries.get(query), benchmark.codes.get(code)) != (pair.query, pair.code):
            found = f"the pair {pair.id[:80]!r} is none of this benchmark: the file was changed"
            raise RunFolderError(f"{path}: {found}. Move it and {path.parent / JUDGED} away to begin anew.")
        kept.add((query, code))
    return kept


@dataclass(frozen=True)
class Judged:
    """What the annotator made of the pool: who it is, grades by query, and how many pairs ended how."""

    judge: str
    grades: Mapping[str, Grades]
    relevant: int = 0
    irrelevant: int = 0
    undecided: int = 0
    errors: int = 0


def read_judged(folder: RetrievalFolder) -> Judged:
    """Return the judgements in a folder's run of the annotator: labels of 0 and 1, of several rounds their majority.

    Raises:
        RunFolderError: there is no such run, or it is damaged.
    """
    grades: dict[str, dict[str, int]] = {}
    with load_run(folder.path / JUDGED) as view:
        labels = {label.id: label for label in view.index.labels()}
        for pair in view.pairs():
            if pair.id in labels and (label := labels[pair.id].label) is not None:
                grades.setdefault(str(pair.meta.get("query_id")), {})[str(pair.meta.get("code_id"))] = label
        variant, models = made_by(view.manifest)
    ended = Counter(label.ended for label in labels.values())
    return Judged(f"{variant}/{models}", grades, ended["1"], ended["0"], ended["undecided"], ended["error"])


def merged(grades: Mapping[str, Grades], added: Mapping[str, Grades]) -> dict[str, Grades]:
    """Return grades with others added behind them; where both have one, the first stays."""
    own = {query: grades.get(query, {}) for query in {**grades, **added}}
    return {query: {**each, **added.get(query, {}), **each} for query, each in own.items()}


def write_judgements(folder: RetrievalFolder, judged: Judged) -> None:
    """Write the benchmark's and the annotator's judgements: with who judged, and as TREC's qrels.

    Where they are others than before, scores that were computed by those are removed.

    Raises:
        RunFolderError: the benchmark's are damaged.
        StorageError: a file cannot be written; what was there is as before.
    """
    own = folder.grades()
    rows = [
        (query, code, grade, BENCHMARK if code in own.get(query, {}) else judged.judge)
        for query, grades in merged(own, judged.grades).items()
        for code, grade in grades.items()
    ]
    if rows == list(folder.judgements()):
        return
    with writing(folder.path):
        for name in OF_SCORES:
            (folder.path / name).unlink(missing_ok=True)
    with replacing(folder.path / JUDGEMENTS_TREC) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{encoded(query)} 0 {encoded(code)} {grade}\n" for query, code, grade, _ in rows)
    with replacing(folder.path / JUDGEMENTS) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.write("query-id\tcorpus-id\tscore\tjudge\n")
        file.writelines(row(*each) for each in rows)


class Labels(NamedTuple):
    """What to score by: whose labels, the grades by query, the ids of the queries they are for, and remarks on them."""

    judge: Judge
    grades: Mapping[str, Grades]
    queries: Sequence[str]
    notes: tuple[str, ...] = ()


def labels(folder: RetrievalFolder, judge: Judge = "labels", progress: Progress = lambda *_: None) -> Labels:
    """Return the labels to score by.

    `labels` are the benchmark's, and the annotator's where it judged; `benchmark` are the benchmark's alone. `aroma`
    says of all that was found whether it is similar to an answer; queries without one are left out.

    Raises:
        RunFolderError: a file of the folder is damaged, or for `aroma` the benchmark is not what it was.
        UsageError: for `aroma`, as `open_benchmark`.
    """
    if judge == "aroma":
        pooled: dict[str, dict[str, float]] = {}
        for name in folder.rankings:
            for query, found in read_trec(folder.ranking(name)):
                pooled.setdefault(query, {}).update(found)
        similar, remarks = aroma.Judge(folder.benchmark()).judge(pooled, progress)
        return Labels(judge, similar, list(similar), remarks)
    grades, judges = folder.grades(), Counter[str]()
    for query, code, grade, who in () if judge == "benchmark" else folder.judgements():
        grades.setdefault(query, {})[code] = grade
        judges["the benchmark" if who == BENCHMARK else who] += 1
    notes = ("labels: " + ", ".join(f"{number:,} of {who}" for who, number in judges.items()),) if judges else ()
    return Labels(judge, grades, list(folder.queries()), notes)
