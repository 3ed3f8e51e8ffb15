"""Corrects the scores of searchers by reviews of randomly drawn queries.

`agent review --queries` serves all pooled pairs of whole queries, in the random order of `shuffle`. The queries up
to the first one that is not completely reviewed are a random sample. The benchmark's labels count as correct.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import log2
from typing import Any, NamedTuple

from agent.datasets.benchmark import Grades
from agent.datasets.reading import read_dataset
from agent.errors import UsageError
from agent.evaluation.corrected_means import CELLS, MIN_REVIEWED, LabelSums, estimate_means
from agent.evaluation.lazy_numpy import np
from agent.evaluation.statistics import DEFAULTS, LEVEL, BootstrapSettings
from agent.retrieval.folder import JUDGED, POOL, RetrievalFolder
from agent.retrieval.judging import rank_top_codes, read_annotator_judgements
from agent.retrieval.rankings import read_trec
from agent.retrieval.results import CorrectedMean, ReviewedScores, ReviewedSearcher
from agent.runs.store import files
from agent.runs.store.reviews import read_reviews
from agent.runs.store.run_view import load_run
from agent.types import Progress, majority

DEFAULT_MEASURES = ("P@1", "P@10", "DCG@10")
_MEASURE = re.compile(r"(P|DCG)@([1-9][0-9]{0,3})", re.IGNORECASE)


class _Measure(NamedTuple):
    """A measure that sums the gains of the first snippets, with the discount of each rank."""

    name: str
    discounts: Sequence[float]

    def compute_gain(self, grade: int) -> int:
        return max(grade, 0) if self.name.startswith("DCG") else int(grade > 0)


def _parse_measure(name: str) -> _Measure:
    if (match := _MEASURE.fullmatch(name)) is None:
        raise UsageError(f"--metric {name}: reviews correct only P@k and DCG@k, such as P@1 or DCG@10")
    k = int(match[2])
    discounts = [1 / k] * k if match[1].upper() == "P" else [1 / log2(rank + 1) for rank in range(1, k + 1)]
    return _Measure(name.upper(), discounts)


def shuffle(ids: Iterable[str]) -> list[str]:
    """Sort ids in a fixed random order. Without a seed, nobody can choose another order after the first review."""
    return sorted(ids, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest())


@dataclass(frozen=True)
class _Labels:
    """Labels by query and snippet: the benchmark's, the annotator's, and the reviewers' (None if they are undecided).

    `pool` contains the ids of the pairs in the pool, which are the keys of `reviewed`.
    """

    known: Mapping[str, Grades]
    predicted: Mapping[str, Grades]
    pool: Mapping[str, Mapping[str, str]]
    reviewed: Mapping[str, int | None]

    def find_pairs(self, query: str, codes: Iterable[str]) -> list[str]:
        """Return the ids of the pairs to review for a query."""
        pool, known = self.pool.get(query, {}), self.known.get(query, {})
        return [pool[code] for code in codes if code in pool and code not in known]


# the weights of each query's snippets, as matrices of searchers × measures
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
        UsageError: a metric or searcher is unknown, the results are not judged, or too few queries are reviewed.
        InputError, RunFolderError: a file is malformed.
    """
    measures = list({measure.name: measure for measure in map(_parse_measure, metrics or DEFAULT_MEASURES)}.values())
    folder.check_searchers(searchers)
    names, judged = list(dict.fromkeys(searchers)) or list(folder.rankings), folder.path / JUDGED
    weights, labels = _read_weights(folder, names, measures, progress), _read_labels(folder)
    _check_judged(folder, weights, labels, max(len(measure.discounts) for measure in measures))
    queries = shuffle(weights)
    pairs = {query: labels.find_pairs(query, weights[query]) for query in queries}
    reviewed = list(takewhile(lambda query: labels.reviewed.keys() >= set(pairs[query]), queries))
    if (missing := MIN_REVIEWED - len(reviewed)) > 0:
        raise UsageError(
            f"{folder.path}: {len(reviewed)} queries are completely reviewed, and {missing} more are needed. "
            f"Review them with: agent review {judged} --queries {MIN_REVIEWED}"
        )
    estimates = estimate_means(_add_up(queries, len(reviewed), weights, labels, measures, 2 * len(names) - 1), settings)
    corrected = np.array([CorrectedMean(**vars(estimate)) for estimate in estimates]).reshape(-1, len(measures))
    columns = [{m.name: value for m, value in zip(measures, row, strict=True)} for row in corrected]
    verdicts = [labels.reviewed[pair] for query in reviewed for pair in pairs[query]]
    return ReviewedScores(
        benchmark=folder.about["name"],
        queries=len(queries),
        level=LEVEL,
        seed=settings.seed,
        resamples=settings.resamples,
        reviewed=len(reviewed),
        pairs=len(verdicts),
        undecided=verdicts.count(None),
        metrics=tuple(measure.name for measure in measures),
        searchers=tuple(
            ReviewedSearcher(searcher=name, values=values, differences=differences)
            for name, values, differences in zip(names, columns, [None, *columns[len(names) :]], strict=False)
        ),
    )


def _read_weights(
    folder: RetrievalFolder, names: Sequence[str], measures: Sequence[_Measure], progress: Progress
) -> _Weights:
    weights: dict[str, dict[str, Any]] = {query: {} for query in folder.read_queries()}
    depth = max(len(measure.discounts) for measure in measures)
    for row, name in enumerate(names):
        for number, (query, scores) in enumerate(read_trec(folder.ranking_path(name)), 1):
            ranks = rank_top_codes(scores, depth) if query in weights else {}
            sizes = Counter(ranks.values())
            for code, rank in ranks.items():
                matrix = weights[query].setdefault(code, np.zeros((len(names), len(measures))))
                last = rank - 1 + sizes[rank]
                matrix[row] = [sum(measure.discounts[rank - 1 : last]) / sizes[rank] for measure in measures]
            progress(f"scoring {name}", number, len(weights))
    return weights


def _read_labels(folder: RetrievalFolder) -> _Labels:
    path, pool, votes = folder.path / POOL, defaultdict[str, dict[str, str]](dict), defaultdict[str, list[Any]](list)
    for pair in read_dataset([path]) if path.exists() else ():
        pool[str(pair.meta.get("query_id"))][str(pair.meta.get("code_id"))] = pair.id
    for review in read_reviews(folder.path / JUDGED / files.REVIEWS, blind=True):
        votes[review.id].append(review.label)
    verdicts = {pair: majority(labels) for pair, labels in votes.items()}
    return _Labels(folder.read_grades(), read_annotator_judgements(folder).grades, pool, verdicts)


def _check_judged(folder: RetrievalFolder, weights: _Weights, labels: _Labels, depth: int) -> None:
    """Check that the annotator has judged all results, except blank ones."""
    annotated = set[str]()
    if (folder.path / JUDGED / files.ANNOTATIONS).exists():
        with load_run(folder.path / JUDGED) as view:
            annotated = {pair for pair, _ in view.index.iterate_keys()}
    missing = {
        code
        for query, codes in weights.items()
        for code in codes
        if code not in labels.known.get(query, {}) and labels.pool.get(query, {}).get(code) not in annotated
    }
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
    measures: Sequence[_Measure],
    blocks: int,
) -> LabelSums:
    """Add up the labels of each query for each measure: for each searcher, and for differences to the first searcher.

    `blocks` is the number of searchers and differences.
    """
    shape = len(queries), blocks * len(measures)
    sums = LabelSums(*map(np.zeros, (shape, (*shape, 4), (reviewed, shape[1], 4))))
    for row, query in enumerate(queries):
        known, predicted = labels.known.get(query, {}), labels.predicted.get(query, {})
        for code, matrix in weights[query].items():
            weight = np.concatenate([matrix, matrix[1:] - matrix[0]]).ravel()
            label = predicted.get(code, 0)
            gains = [measure.compute_gain(known.get(code, label)) for measure in measures]
            sums.predicted[row] += weight * np.tile(gains, blocks)
            for pair in labels.find_pairs(query, [code]):
                is_wrong = (labels.reviewed.get(pair) == 1) != label
                for cell, (predicted_label, sign) in enumerate(CELLS):
                    part = np.maximum(sign * weight, 0) * (predicted_label == label)
                    sums.weights[row, :, cell] += part
                    sums.wrong[row : row + 1, :, cell] += part * is_wrong
    return sums
