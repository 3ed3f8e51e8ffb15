"""Corrects the scores of searchers by reviews of randomly drawn queries.

`agent review --queries` serves all judged results of whole queries, in the order of `shuffle`. The queries up to the
first one that is not completely reviewed are a random sample. The benchmark's labels count as correct.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from math import log2
from typing import Any, NamedTuple

from agent.errors import UsageError
from agent.evaluation.corrected_means import CELLS, MIN_REVIEWED, LabelSums, estimate_means
from agent.evaluation.lazy_numpy import np
from agent.evaluation.statistics import DEFAULTS, LEVEL, BootstrapSettings
from agent.retrieval.folder import JUDGED, RetrievalFolder
from agent.retrieval.judging import rank_top_codes
from agent.retrieval.rankings import read_trec
from agent.retrieval.results import CorrectedMean, ReviewedScores, ReviewedSearcher
from agent.runs.store import files
from agent.runs.store.reviews import read_votes
from agent.runs.store.run_view import load_run
from agent.types import Progress

DEFAULT_MEASURES = ("P@1", "P@10", "DCG@10")
_MEASURE = re.compile(r"(P|DCG)@([1-9][0-9]{0,3})", re.IGNORECASE)


def shuffle(ids: Iterable[str]) -> list[str]:
    """Sort ids in a fixed random order. Without a seed, nobody can choose another order after the first review."""
    return sorted(ids, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest())


class _Label(NamedTuple):
    """A label of a search result. `pair` is the id of the pair to review. It is None for the benchmark's labels."""

    grade: int
    pair: str | None = None


# by query and snippet
_Labels = Mapping[str, Mapping[str, _Label]]
# by query and snippet: a matrix of searchers × measures
_Weights = Mapping[str, Mapping[str, Any]]


def score_reviews(
    folder: RetrievalFolder,
    *,
    metrics: Sequence[str] = (),
    searchers: Sequence[str] = (),
    settings: BootstrapSettings = DEFAULTS,
    progress: Progress = lambda *_: None,
) -> ReviewedScores:
    """Score the rankings in a folder with the annotator's labels, and correct the scores by reviews.

    All queries count, because the annotator's labels would otherwise decide which queries count. Snippets without a
    label, and snippets that the reviewers cannot decide, are not relevant.

    Raises:
        UsageError: a metric or searcher is unknown, results are not judged, or too few queries are reviewed.
        InputError, RunFolderError: a file is malformed.
    """
    measures = dict(map(_parse_measure, metrics or DEFAULT_MEASURES))
    folder.check_searchers(searchers)
    names = list(dict.fromkeys(searchers)) or list(folder.rankings)
    weights, labels = _read_weights(folder, names, list(measures.values()), progress), _read_labels(folder)
    _check_judged(folder, weights, labels, max(map(len, measures.values())))
    votes = read_votes(folder.path / JUDGED / files.REVIEWS)
    queries = shuffle(weights)
    pairs = {query: [labels[query][code].pair for code in weights[query] if code in labels[query]] for query in queries}
    reviewed = list(takewhile(lambda query: votes.first.keys() >= {*pairs[query]} - {None}, queries))
    if (missing := MIN_REVIEWED - len(reviewed)) > 0:
        raise UsageError(
            f"{folder.path}: {len(reviewed)} queries are completely reviewed, and {missing} more are needed. "
            f"Review them with: agent review {folder.path / JUDGED} --queries {MIN_REVIEWED}"
        )
    verdicts = votes.decide([pair for query in reviewed for pair in pairs[query] if pair is not None]).labels
    sums = _add_up(queries, len(reviewed), weights, labels, verdicts, (len(names), list(measures)))
    means = [CorrectedMean(predicted=p, mean=m, interval=i) for p, m, i in estimate_means(sums, settings)]
    rows = [dict(zip(measures, means[n:], strict=False)) for n in range(0, len(means), len(measures))]
    return ReviewedScores(
        benchmark=folder.about["name"],
        queries=len(queries),
        level=LEVEL,
        seed=settings.seed,
        resamples=settings.resamples,
        reviewed=len(reviewed),
        pairs=len(verdicts),
        undecided=list(verdicts.values()).count(None),
        metrics=tuple(measures),
        searchers=tuple(
            ReviewedSearcher(searcher=name, values=values, differences=differences)
            for name, values, differences in zip(names, rows, [None, *rows[len(names) :]], strict=False)
        ),
    )


def _parse_measure(name: str) -> tuple[str, list[float]]:
    """Return the name of a measure and the discounts of its ranks."""
    if (match := _MEASURE.fullmatch(name)) is None:
        raise UsageError(f"--metric {name}: reviews correct only P@k and DCG@k, such as P@1 or DCG@10")
    k = int(match[2])
    is_precision = match[1].upper() == "P"
    return name.upper(), [1 / k if is_precision else 1 / log2(rank + 1) for rank in range(1, k + 1)]


def _read_weights(
    folder: RetrievalFolder, names: Sequence[str], measures: Sequence[Sequence[float]], progress: Progress
) -> _Weights:
    weights: dict[str, dict[str, Any]] = {query: {} for query in folder.read_queries()}
    depth = max(map(len, measures))
    for row, name in enumerate(names):
        for number, (query, scores) in enumerate(read_trec(folder.ranking_path(name)), 1):
            ranks = rank_top_codes(scores, depth) if query in weights else {}
            sizes = Counter(ranks.values())
            for code, rank in ranks.items():
                matrix = weights[query].setdefault(code, np.zeros((len(names), len(measures))))
                tied = slice(rank - 1, rank - 1 + sizes[rank])
                matrix[row] = [sum(discounts[tied]) / sizes[rank] for discounts in measures]
            progress(f"scoring {name}", number, len(weights))
    return weights


def _read_labels(folder: RetrievalFolder) -> _Labels:
    labels = defaultdict[str, dict[str, _Label]](dict)
    if (folder.path / JUDGED / files.ANNOTATIONS).exists():
        with load_run(folder.path / JUDGED) as view:
            annotated = {label.id: label.label or 0 for label in view.index.iterate_labels()}
            for pair in view.pairs():
                if pair.id in annotated:
                    query, code = (str(pair.meta.get(name)) for name in ("query_id", "code_id"))
                    labels[query][code] = _Label(annotated[pair.id], pair.id)
    for query, grades in folder.read_grades().items():
        labels[query].update((code, _Label(max(grade, 0))) for code, grade in grades.items())
    return labels


def _check_judged(folder: RetrievalFolder, weights: _Weights, labels: _Labels, depth: int) -> None:
    """Check that all results have labels, except blank snippets."""
    missing = {code for query, codes in weights.items() for code in codes.keys() - labels[query].keys()}
    codes = folder.reopen_benchmark().codes if missing else {}
    if any(codes.get(code, code).strip() for code in missing):
        raise UsageError(
            f"{folder.path}: results among the first {depth} are not judged. "
            f"Judge them with: agent retrieval judge {folder.path} --depth {depth}"
        )


def _add_up(
    queries: Sequence[str],
    reviewed: int,
    weights: _Weights,
    labels: _Labels,
    verdicts: Mapping[str, int | None],
    shape: tuple[int, Sequence[str]],
) -> LabelSums:
    """Add up the labels of each query by measure, for each searcher and for differences to the first searcher.

    `shape` contains the number of searchers and the names of the measures.
    """
    blocks, names = 2 * shape[0] - 1, shape[1]
    rows = len(queries), blocks * len(names)
    sums = LabelSums(*map(np.zeros, (rows, (*rows, len(CELLS)), (reviewed, rows[1], len(CELLS)))))
    for row, query in enumerate(queries):
        for code, matrix in weights[query].items():
            grade, pair = labels[query].get(code, _Label(0))
            weight = np.concatenate([matrix, matrix[1:] - matrix[0]]).ravel()
            sums.predicted[row] += weight * ([grade if name.startswith("D") else grade > 0 for name in names] * blocks)
            for cell, (label, sign) in enumerate(CELLS):
                if pair is not None and label == grade:
                    part = np.maximum(sign * weight, 0)
                    sums.weights[row, :, cell] += part
                    if row < reviewed and (verdicts[pair] == 1) != label:
                        sums.wrong[row, :, cell] += part
    return sums
