"""Scores searchers on a benchmark: metrics with confidence intervals, per-query values, and paired tests."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, repeat
from pathlib import Path
from statistics import fmean, median

from agent.datasets.benchmark import Grades
from agent.datasets.encoding import dumps
from agent.errors import UsageError
from agent.evaluation.lazy_numpy import np
from agent.evaluation.statistics import DEFAULTS, LEVEL, BootstrapSettings, adjust_holm
from agent.retrieval.folder import COMPARISON, SCORES, SCORES_CSV, SCORES_JSONL, RetrievalFolder
from agent.retrieval.judging import Labels, read_labels
from agent.retrieval.measures import DEFAULT_METRICS, QueryRanking, compute_first_rank, get_metric
from agent.retrieval.rankings import read_trec
from agent.retrieval.results import (
    Comparisons,
    LabelSource,
    MetricValue,
    RetrievalScores,
    SearcherComparison,
    SearcherScores,
    WhichQueries,
)
from agent.retrieval.searchers.trained import TrainingRecord
from agent.retrieval.significance import (
    ROUNDING,
    TEST_SETTINGS,
    bootstrap_intervals,
    compute_stability,
    run_paired_tests,
)
from agent.runs.store.files import replacing, write_document
from agent.types import Progress

# The ranking of one searcher: each query with the scores of its snippets, in the form that `read_trec` yields.
Ranking = Iterable[tuple[str, Mapping[str, float]]]


@dataclass(frozen=True)
class ScoredQueries:
    """Scores, together with the per-query values that the means are computed from.

    `queries` contains the ids of the scored queries. All other sequences are in the same order. `relevant` contains the
    number of relevant snippets for each query. `values` maps each searcher and metric to one value per query. `franks`
    maps each searcher to one FRank (the rank of the first relevant snippet) per query, or None if no relevant snippet
    was retrieved.
    """

    scores: RetrievalScores
    queries: Sequence[str]
    relevant: Sequence[int]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    franks: Mapping[str, Sequence[float | None]]


def score_rankings(
    benchmark: str,
    queries: Sequence[str],
    codes: int,
    grades: Mapping[str, Grades],
    rankings: Mapping[str, Ranking],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    which: WhichQueries = "with-positives",
    settings: BootstrapSettings = DEFAULTS,
    alpha: bool = False,
    progress: Progress = lambda *_: None,
) -> ScoredQueries:
    """Score the rankings of several searchers. Reads one query of a ranking at a time.

    `benchmark` is a name, `queries` contains ids, and `codes` is the number of snippets in the corpus. A query without
    grades has no relevant snippet. If `alpha` is set, the stability of each metric is also computed.

    Raises:
        ConfigError: a metric does not exist.
        InputError: a ranking is malformed.
        UsageError: there is no query to score.
        ExtraMissing: a library is not installed.
    """
    selected = list({metric.name: metric for metric in map(get_metric, metrics)}.values())
    relevant = {query: sum(grade > 0 for grade in grades.get(query, {}).values()) for query in queries}
    qrels = {query: grades.get(query, {}) for query in queries if which == "all" or relevant[query]}
    if not qrels:
        raise UsageError(f"{benchmark}: cannot score: none of the {len(queries)} queries has a relevant snippet")
    relevant_counts = [relevant[query] for query in qrels]
    values: dict[str, dict[str, list[float]]] = {}
    franks: dict[str, list[float | None]] = {}
    searchers = []
    for name, ranking in rankings.items():
        rows = {}
        for query, scores in ranking:
            if query in qrels:
                query_ranking = QueryRanking(scores, qrels[query])
                first_rank = compute_first_rank(query_ranking)
                rows[query] = (first_rank, [metric.compute(query_ranking) for metric in selected])
                progress(f"scoring {name}", len(rows), len(qrels))
        without_ranking = len(qrels) - len(rows)
        for query in qrels.keys() - rows.keys():
            empty = QueryRanking({}, qrels[query])
            rows[query] = (None, [metric.compute(empty) for metric in selected])
        franks[name] = [rows[query][0] for query in qrels]
        values[name] = {metric.name: [rows[query][1][i] for query in qrels] for i, metric in enumerate(selected)}
        searchers.append(_summarise_searcher(name, values[name], franks[name], without_ranking, list(qrels), settings))
    retrieval_scores = RetrievalScores(
        benchmark=benchmark,
        queries=len(queries),
        codes=codes,
        scored=len(qrels),
        without_positives=sum(not count for count in relevant.values()),
        which=which,
        relevant=sum(relevant_counts),
        judged=sum(map(len, qrels.values())),
        metrics=tuple(metric.name for metric in selected),
        by_sort_order=tuple(metric.name for metric in selected if metric.by_sort_order),
        level=LEVEL,
        seed=settings.seed,
        resamples=settings.resamples,
        searchers=tuple(searchers),
    )
    if alpha:
        by_metric = (
            compute_stability(metric.name, relevant_counts, {name: values[name][metric.name] for name in values})
            for metric in selected
        )
        update = {"stability": tuple(stability for stability in by_metric if stability)}
        retrieval_scores = retrieval_scores.model_copy(update=update)
    return ScoredQueries(retrieval_scores, list(qrels), relevant_counts, values, franks)


def _summarise_searcher(
    name: str,
    values: Mapping[str, Sequence[float]],
    franks: Sequence[float | None],
    without_ranking: int,
    queries: Sequence[str],
    settings: BootstrapSettings,
) -> SearcherScores:
    ranks = [frank for frank in franks if frank is not None]
    table = np.array(list(values.values())).T
    intervals = bootstrap_intervals(queries, table, settings)
    return SearcherScores(
        searcher=name,
        values={
            metric: MetricValue(mean=fmean(query_values), interval=interval)
            for (metric, query_values), interval in zip(values.items(), intervals, strict=True)
        },
        found=len(ranks),
        median_frank=median(ranks) if ranks else None,
        without_ranking=without_ranking,
    )


def compare_searchers(
    scored: ScoredQueries, *, against: str | None = None, settings: BootstrapSettings = TEST_SETTINGS
) -> Comparisons:
    """Test the differences between searchers in each scored metric.

    Compares all pairs of searchers or, if `against` is set, `against` with each of the other searchers.

    Raises:
        UsageError: there are fewer than two searchers, or `against` is unknown.
        ExtraMissing: NumPy is not installed.
    """
    names = list(scored.values)
    if len(names) < 2:
        raise UsageError(f"a comparison needs at least two searchers, got {len(names)} after averaging over seeds")
    if against is not None and against not in names:
        raise UsageError(f"searcher {against} was not scored. Scored searchers: {', '.join(names)}.")
    pairs = [(name, against) for name in names if name != against] if against else list(combinations(names, 2))
    comparisons = [
        comparison for metric in scored.scores.metrics for comparison in _compare_pairs(scored, metric, pairs, settings)
    ]
    return Comparisons(
        benchmark=scored.scores.benchmark,
        queries=len(scored.queries),
        against=against,
        level=LEVEL,
        seed=settings.seed,
        resamples=settings.resamples,
        notes=scored.scores.notes,
        comparisons=tuple(comparisons),
    )


def average_seeds(
    scored: ScoredQueries, trainings: Mapping[str, TrainingRecord]
) -> tuple[ScoredQueries, Mapping[str, Sequence[str]]]:
    """Replace trained searchers that differ only in their seed by one searcher, the mean of their values by query.

    `trainings` maps searchers to their training. Unfinished trainings, and further trainings with the same seed, stay
    apart. Also returns the names of the replaced searchers, by the name of the mean. A test between means asks whether
    recipes differ on other queries, not whether they differ with other seeds.
    """
    groups = defaultdict[str, dict[str, str]](dict)
    for name, training in trainings.items():
        if name in scored.values and training.finished:
            groups[training.describe_without_seed()].setdefault(str(training.settings.get("seed")), name)
    groups_of_names = (list(names.values()) for names in groups.values() if len(names) > 1)
    means = {f"{names[0]} (mean of {len(names)} seeds)": names for names in groups_of_names}
    values = dict(scored.values)
    for mean, names in means.items():
        own = [values.pop(name) for name in names]
        values[mean] = {metric: list(map(fmean, zip(*(by[metric] for by in own), strict=True))) for metric in own[0]}
    return replace(scored, values=values), means


def _compare_pairs(
    scored: ScoredQueries, metric: str, pairs: Sequence[tuple[str, str]], settings: BootstrapSettings
) -> list[SearcherComparison]:
    values = {name: np.array(by_metric[metric]) for name, by_metric in scored.values.items()}
    differences = np.array([values[first] - values[second] for first, second in pairs]).T
    differences[abs(differences) < ROUNDING] = 0
    tests = run_paired_tests(scored.queries, differences, settings)
    bootstrap = iter(adjust_holm([test.bootstrap_p for test in tests if test.bootstrap_p is not None]))
    randomisation = adjust_holm([test.randomisation_p for test in tests])
    return [
        SearcherComparison(
            metric=metric,
            first=first,
            second=second,
            difference=float(differences[:, i].mean()),
            interval=test.interval,
            better=int((differences[:, i] > 0).sum()),
            worse=int((differences[:, i] < 0).sum()),
            equal=int((differences[:, i] == 0).sum()),
            bootstrap_p=test.bootstrap_p,
            bootstrap_adjusted=None if test.bootstrap_p is None else next(bootstrap),
            randomisation_p=test.randomisation_p,
            randomisation_adjusted=randomisation[i],
        )
        for i, ((first, second), test) in enumerate(zip(pairs, tests, strict=True))
    ]


def score_folder(
    folder: RetrievalFolder,
    labels: Labels,
    *,
    searchers: Sequence[str] = (),
    metrics: Sequence[str] = DEFAULT_METRICS,
    which: WhichQueries | None = None,
    settings: BootstrapSettings = DEFAULTS,
    alpha: bool = False,
    progress: Progress = lambda *_: None,
) -> ScoredQueries:
    """Score all rankings in a folder, or only the rankings of `searchers`.

    `which` defaults to `all` if the labels are from Aroma, otherwise to `with-positives`.

    Raises:
        UsageError: the folder has no rankings or no judgements, a searcher or metric is unknown, there is no query to
            score, or a file is damaged.
    """
    rankings = folder.rankings
    folder.check_searchers(searchers)
    if not labels.grades:
        source = "" if labels.judge == "labels" else f" for --judge {labels.judge}. Remove that option"
        raise UsageError(
            f"{folder.path} has no judgements{source}. Create judgements with: agent retrieval judge {folder.path}"
        )
    names = [name for name in rankings if not searchers or name in searchers]
    scored = score_rankings(
        folder.about["name"],
        labels.queries,
        folder.identity["benchmark"]["codes"],
        labels.grades,
        {name: read_trec(folder.ranking_path(name)) for name in names},
        metrics=metrics,
        which=which or ("all" if labels.judge == "aroma" else "with-positives"),
        settings=settings,
        alpha=alpha,
        progress=progress,
    )
    notes = (*labels.notes, *_describe_depths(folder, names, scored.scores.metrics))
    update = {"judge": labels.judge, "notes": notes, "missing_judgements": labels.missing}
    return replace(scored, scores=scored.scores.model_copy(update=update))


def _describe_depths(folder: RetrievalFolder, names: Sequence[str], metrics: Sequence[str]) -> Iterator[str]:
    """Yield notes on metrics whose cut-off exceeds the ranking depth, and on rankings that differ in depth."""
    max_depth = folder.identity["depth"]
    too_deep = [metric for metric in metrics if "@" in metric and float(metric.rpartition("@")[2]) > max_depth]
    if too_deep:
        yield f"{', '.join(too_deep)}: rankings contain only the best {max_depth:,} snippets per query (--depth)"
    depths = {name: depth for name in names if (depth := folder.rankings[name].depth) is not None}
    if len(set(depths.values())) > 1:
        by_name = ", ".join(f"{name} {depth:,}" for name, depth in depths.items())
        limit = f"only metrics with a cut-off of at most {min(depths.values()):,} are comparable"
        yield f"rankings differ in depth ({by_name} snippets per query): {limit}"


def update_scores(
    folder: RetrievalFolder,
    *,
    judge: LabelSource = "labels",
    metrics: Sequence[str] = (),
    which: WhichQueries | None = None,
    settings: BootstrapSettings = DEFAULTS,
    alpha: bool = False,
    progress: Progress = lambda *_: None,
) -> RetrievalScores:
    """Score the rankings in a folder and write the scores. The caller must hold the lock.

    If the scores change, the comparison is marked as out of date.

    Raises:
        UsageError: see `score_folder` and `read_labels`.
        StorageError: a file cannot be written.
    """
    labels = read_labels(folder, judge, progress)
    scored = score_folder(
        folder,
        labels,
        metrics=metrics or DEFAULT_METRICS,
        which=which,
        settings=settings,
        alpha=alpha,
        progress=progress,
    )
    if folder.load_document(SCORES, RetrievalScores) != scored.scores:
        folder.mark_out_of_date(COMPARISON)
    write_query_scores(scored, as_csv=folder.path / SCORES_CSV, as_json=folder.path / SCORES_JSONL)
    write_document(folder.path / SCORES, scored.scores)
    return scored.scores


def update_comparison(
    folder: RetrievalFolder,
    *,
    metrics: Sequence[str] = (),
    searchers: Sequence[str] = (),
    against: str | None = None,
    progress: Progress = lambda *_: None,
) -> Comparisons:
    """Compare all searchers in a folder, or only `searchers`, and write the comparison.

    The label source, queries, seed and default metrics are taken from the last scores. Trained searchers that differ
    only in their seed are averaged (see `average_seeds`). The caller must hold the lock.

    Raises:
        UsageError: see `score_folder`, `read_labels` and `compare_searchers`.
        StorageError: the file cannot be written.
    """
    last = folder.load_document(SCORES, RetrievalScores)
    seed = last.seed if last else 0
    scored = score_folder(
        folder,
        read_labels(folder, last.judge if last else "labels", progress),
        searchers=[*searchers, against] if searchers and against else searchers,
        metrics=metrics or (last.metrics if last else DEFAULT_METRICS),
        which=last.which if last else None,
        settings=BootstrapSettings(seed=seed, resamples=1),  # intervals of means are not needed here
        progress=progress,
    )
    trainings = {name: record.training for name, record in folder.rankings.items() if record.training is not None}
    scored, means = average_seeds(scored, trainings)
    comparison = compare_searchers(
        scored,
        against=next((mean for mean, names in means.items() if against in names), against),
        settings=BootstrapSettings(seed=seed, resamples=TEST_SETTINGS.resamples),
    )
    notes = (f"{mean}: {', '.join(names)}" for mean, names in means.items())
    comparison = comparison.model_copy(update={"notes": (*comparison.notes, *notes)})
    write_document(folder.path / COMPARISON, comparison)
    return comparison


def write_query_scores(scored: ScoredQueries, *, as_csv: Path, as_json: Path) -> None:
    """Write per-query scores as CSV and JSON Lines, one row per searcher and query.

    FRank is the rank of the first relevant snippet. If none was retrieved, it is empty in CSV and null in JSON.

    Raises:
        StorageError: a file cannot be written. The earlier version is kept.
    """
    with replacing(as_csv) as draft, draft.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow((*_COLUMNS, *scored.scores.metrics))
        table.writerows(row.values() for row in _iterate_query_rows(scored))
    with replacing(as_json) as draft, draft.open("wb") as lines:
        lines.writelines(dumps(row) + b"\n" for row in _iterate_query_rows(scored))


_COLUMNS = ("searcher", "query", "relevant", "FRank")


def _iterate_query_rows(scored: ScoredQueries) -> Iterator[dict[str, object]]:
    for searcher, values in scored.values.items():
        columns = repeat(searcher), scored.queries, scored.relevant, scored.franks[searcher]
        for row in zip(*columns, *values.values(), strict=False):
            yield dict(zip((*_COLUMNS, *values), row, strict=True))
