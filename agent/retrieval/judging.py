"""Results that nobody judged, pooled over searchers and judged by the annotator; and whose each judgement is.

The pool is a file of pairs (`pool.jsonl`) which only grows: a pair of query and code stands in it once, whatever
searchers found it. What the annotator says of it is in a run of its own (`judged/`). The benchmark's labels stay as
they are (`qrels.tsv`); `judgements.tsv` has them and the annotator's, with a column of who judged, and
`judgements.qrels` the same for other tools, in TREC's form. Where the benchmark has a label, it is the one that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from agent.datasets.benchmark import Benchmark, Grades
from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import open_regular
from agent.errors import InputError, RunFolderError
from agent.retrieval import aroma
from agent.retrieval.folder import JUDGED, JUDGEMENTS, JUDGEMENTS_TREC, OF_SCORES, POOL, RetrievalFolder, row
from agent.retrieval.rankings import encoded, read_trec
from agent.retrieval.scores import Judge
from agent.store.annotations import Votes
from agent.store.files import replacing, writing
from agent.store.run_view import RunView, load_run

BENCHMARK = "benchmark"
"""Who judged what is in `qrels.tsv`."""
Key = tuple[str, str]
"""The ids of a query and a code."""


def top(found: Mapping[str, float], depth: int) -> dict[str, int]:
    """Return the codes down to a depth with their ranks, the best that a code may have among those that tie with it.

    All that tie with the last are among them.
    """
    ranks: dict[str, int] = {}
    rank, last = 0, None
    for place, (code, score) in enumerate(sorted(found.items(), key=lambda item: -item[1]), 1):
        rank = rank if score == last else place
        if rank > depth:
            break
        ranks[code], last = rank, score
    return ranks


def unjudged(
    rankings: Mapping[str, Iterable[tuple[str, Mapping[str, float]]]], grades: Mapping[str, Grades], depth: int
) -> dict[Key, dict[str, int]]:
    """Return what searchers found down to a depth and nobody judged, with the rank that each of them gave it."""
    pooled: dict[Key, dict[str, int]] = {}
    for searcher, ranking in rankings.items():
        for query, found in ranking:
            for code, rank in top(found, depth).items():
                if code not in grades.get(query, {}):
                    pooled.setdefault((query, code), {})[searcher] = rank
    return pooled


class Pool(NamedTuple):
    """The file of pairs to judge: how many it has, and how many of them are new."""

    path: Path
    pairs: int
    added: int


def fill_pool(folder: RetrievalFolder, benchmark: Benchmark, depth: int) -> Pool:
    """Append to the pool what searchers found down to a depth and is neither judged nor in it; the caller has the lock.

    Pairs stand query by query as in the benchmark, those of the best ranks first. A pair that is there stays as it is,
    also where another searcher finds it now.

    Raises:
        InputError: a ranking is malformed, or has a query or code that the benchmark does not have.
        RunFolderError: the pool is damaged, or of another benchmark.
        StorageError: it cannot be written.
    """
    path = folder.path / POOL
    lines = dict(_kept(path, benchmark))
    before = len(lines)
    found = unjudged({name: read_trec(folder.ranking(name)) for name in folder.rankings}, benchmark.grades, depth)
    place = {query: number for number, query in enumerate(benchmark.queries)}
    for key in found:
        if key[0] not in place or key[1] not in benchmark.codes:
            raise InputError(
                f"query {key[0][:60]!r} or code {key[1][:60]!r} is not in the benchmark: rankings were changed",
                path=folder.path / "rankings",
            )
    for key in sorted(found, key=lambda key: (place[key[0]], min(found[key].values()))):
        if key not in lines:
            lines[key] = dumps(_pair(key, benchmark, found[key])) + b"\n"
    if len(lines) > before:
        with replacing(path) as draft, draft.open("wb") as file:
            file.writelines(lines.values())
    return Pool(path, len(lines), len(lines) - before)


def _pair(key: Key, benchmark: Benchmark, ranks: Mapping[str, int]) -> dict[str, Any]:
    query, code = key
    return {
        "id": "/".join(quote(each, safe="", errors="surrogatepass") for each in key),
        "query": benchmark.queries[query],
        "code": benchmark.codes[code],
        "language": benchmark.language,
        "meta": {"query_id": query, "code_id": code, "found_by": ranks},
    }


def _kept(path: Path, benchmark: Benchmark) -> Iterator[tuple[Key, bytes]]:
    """Yield the lines of the pool that is there, each with its pair."""
    with suppress(FileNotFoundError), open_regular(path) as file:
        for number, line in enumerate(file, 1):
            try:
                record = loads(line)
                key = record["meta"]["query_id"], record["meta"]["code_id"]
                same = (record["query"], record["code"]) == (benchmark.queries[key[0]], benchmark.codes[key[1]])
            except (ValueError, KeyError, TypeError):
                same = False
            if not same:
                raise RunFolderError(
                    f"{path}:{number}: is no pair of this benchmark: the file was changed. "
                    f"Move it and {path.parent / JUDGED} away to begin anew."
                )
            yield key, line


@dataclass(frozen=True)
class Judged:
    """What the annotator made of the pool: grades by query, who it is, and how many pairs have none, and why."""

    judge: str
    grades: Mapping[str, Grades]
    relevant: int = 0
    irrelevant: int = 0
    undecided: int = 0
    errors: int = 0


def read_judged(folder: RetrievalFolder) -> Judged:
    """Return the judgements in a folder's run of the annotator: labels of 0 and 1, of several rounds their majority.

    Raises:
        RunFolderError: there is no such run, it is damaged, or it is of other pairs than the pool's.
    """
    grades: dict[str, dict[str, int]] = {}
    votes = Votes()
    with load_run(folder.path / JUDGED) as view:
        for each in view.index.labels():
            votes.add(each)
        labels = {label.id: label for label in votes.labels()}
        for pair in view.pairs():
            if pair.id in labels and (label := labels[pair.id].label) is not None:
                try:
                    grades.setdefault(pair.meta["query_id"], {})[pair.meta["code_id"]] = label
                except (KeyError, TypeError):
                    raise RunFolderError(
                        f"{view.path}: holds a run of other pairs than {folder.path / POOL}; move it away"
                    ) from None
        judge = _name(view)
    ended = [label.ended for label in labels.values()]
    return Judged(judge, grades, *(ended.count(each) for each in ("1", "0", "undecided", "error")))


def _name(view: RunView) -> str:
    """Return who annotated: variant and requested models."""
    identity = view.manifest["identity"]
    variant, model = identity.get("variant"), identity.get("model")
    parts = [model.get("default"), *(model.get("roles") or {}).values()] if isinstance(model, dict) else []
    models = (str(each.get("model") or each.get("kind")) for each in parts if isinstance(each, dict))
    name = variant.get("name") if isinstance(variant, dict) else None
    return f"{name or 'unknown'} {'+'.join(dict.fromkeys(models)) or 'unknown'}"


def merged(grades: Mapping[str, Grades], added: Mapping[str, Grades]) -> dict[str, Grades]:
    """Return grades with others added; where both have one, the first stays."""
    return {query: {**added.get(query, {}), **grades.get(query, {})} for query in {**grades, **added}}


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
    if (folder.path / JUDGEMENTS).exists() and rows == list(folder.judgements()):
        return
    with writing(folder.path):
        for name in OF_SCORES:
            (folder.path / name).unlink(missing_ok=True)
    with replacing(folder.path / JUDGEMENTS_TREC) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{encoded(query)} 0 {encoded(code)} {grade}\n" for query, code, grade, _ in rows)
    with replacing(folder.path / JUDGEMENTS) as draft, draft.open("w", encoding="ascii", newline="\n") as file:
        file.write("query-id\tcorpus-id\tscore\tjudge\n")
        file.writelines(row(*each) for each in rows)


class Labels(NamedTuple):
    """What to score by: whose labels, the grades by query, the ids of the queries they are for, and remarks on them."""

    judge: Judge
    grades: Mapping[str, Grades]
    queries: Sequence[str]
    notes: tuple[str, ...] = ()


def labels(folder: RetrievalFolder, judge: Judge = "labels") -> Labels:
    """Return the labels to score by.

    `labels` are the benchmark's, and the annotator's where it judged; `benchmark` are the benchmark's alone. `aroma`
    says of all that any searcher found whether it is similar to an answer; queries without one are left out.

    Raises:
        RunFolderError: a file of the folder is damaged, or for `aroma` the benchmark is not what it was.
        UsageError: for `aroma`, as `open_benchmark`.
    """
    if judge == "aroma":
        found = aroma.Judge(folder.benchmark()).judge(_found(folder))
        return Labels(judge, found.grades, list(found.grades), found.notes)
    own, added, judges = folder.grades(), dict[str, dict[str, int]](), Counter[str]()
    for query, code, grade, who in () if judge == "benchmark" else folder.judgements():
        if who != BENCHMARK and code not in own.get(query, {}):
            added.setdefault(query, {})[code] = grade
            judges[who] += 1
    notes = [f"labels: {sum(map(len, own.values())):,} of the benchmark"]
    notes += [f"{number:,} of {who}" for who, number in judges.items()]
    return Labels(judge, merged(own, added), list(folder.queries()), (", ".join(notes),) if judges else ())


def _found(folder: RetrievalFolder) -> dict[str, dict[str, float]]:
    """Return all that any searcher found, by query."""
    pooled: dict[str, dict[str, float]] = {}
    for name in folder.rankings:
        for query, found in read_trec(folder.ranking(name)):
            pooled.setdefault(query, {}).update(found)
    return pooled


def gained(before: Mapping[str, Grades], after: Mapping[str, Grades]) -> int:
    """Return how many queries have a relevant code that had none."""

    def answered(grades: Mapping[str, Grades]) -> set[str]:
        return {query for query, each in grades.items() if any(grade > 0 for grade in each.values())}

    return len(answered(after) - answered(before))
