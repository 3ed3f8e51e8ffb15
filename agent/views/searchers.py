"""Figures that show how searchers score on a benchmark, for a section of a run's report or for a separate page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from agent.retrieval.folder import AUDIT, BLINDNESS, COMPARISON, SCORES, RankingRecord, RetrievalFolder
from agent.retrieval.results import Audit, Blindness, Comparisons, RetrievalScores, ReviewedScores, SearcherComparison
from agent.retrieval.significance import Stability
from agent.text import Figure, Table, build_figure, build_table, plural
from agent.views.audit import build_audit_figures
from agent.views.charts import Chart, Dot, build_dot, draw_intervals, draw_lines, format_label

# At most this many means with intervals fit beside the names of the searchers.
_METRICS_PER_TABLE = 3


def build_searcher_cards(folder: RetrievalFolder) -> list[dict[str, str]]:
    """Return the key figures for a retrieval folder, each with a name, a value and a note."""
    identity, benchmark = folder.identity, folder.identity["benchmark"]
    cards = (
        ("queries", benchmark["queries"], plural(benchmark["grades"], "grade")),
        ("snippets", benchmark["codes"], f"{benchmark['language']}, {identity['code_view']}"),
        ("searchers", len(folder.rankings), f"{identity['depth']:,} snippets per query"),
    )
    return [{"name": name, "value": f"{value:,}", "note": note} for name, value, note in cards]


def build_searcher_figures(folder: RetrievalFolder) -> list[Figure]:
    """Return the figures for a retrieval folder: scores, comparisons, blindness, trainings, times and the audit.

    Raises:
        RunFolderError: a result is damaged.
    """
    scores = folder.load_document(SCORES, RetrievalScores)
    comparisons = folder.load_document(COMPARISON, Comparisons)
    blindness = folder.load_document(BLINDNESS, Blindness)
    audit = folder.load_document(AUDIT, Audit)
    notes = [note for result in (scores, comparisons, blindness) if result is not None for note in result.notes]
    notes += folder.describe_out_of_date_results()
    return [
        *([build_figure("Notes", "\n".join(f"{note[:1].upper()}{note[1:]}." for note in notes))] if notes else []),
        *([] if scores is None else build_metric_figures(scores)),
        *([] if comparisons is None else build_comparison_figures(comparisons)),
        *([] if blindness is None else build_blindness_figures(blindness)),
        *_build_trainings(folder),
        _build_searches(folder, () if scores is None else [searcher.searcher for searcher in scores.searchers]),
        *([] if audit is None else build_audit_figures(audit)),
    ]


def build_metric_figures(scores: RetrievalScores) -> list[Figure]:
    """Return the means of all metrics, with their intervals as charts, and the stability of the metrics."""
    metrics, searchers = list(scores.metrics), scores.searchers
    parts = [metrics[start : start + _METRICS_PER_TABLE] for start in range(0, len(metrics), _METRICS_PER_TABLE)]
    tables = [
        build_table(("searcher", *part), ((own.searcher, *map(own.values.__getitem__, part)) for own in searchers))
        for part in parts
    ]
    # The median covers only queries for which the searcher retrieved a relevant snippet.
    hits = [(own.searcher, own.found, own.median_frank and f"{own.median_frank:g}") for own in searchers]
    tables.append(build_table(("searcher", "queries with a hit", "median FRank"), hits))
    figures = [build_figure("Means", "\n".join(_describe_scores(scores)), None, tables)]
    for name in metrics:
        dots = [build_dot(own.searcher, own.values[name].mean, own.values[name].interval) for own in searchers]
        figures.append(build_figure(name, "", _draw_intervals(dots, name, scores.level)))
    return [*figures, *([] if scores.stability is None else [_build_stability(scores.stability)])]


def _build_stability(stability: Sequence[Stability]) -> Figure:
    rows = [
        (row.metric, row.alpha, f"{row.sample_variance:.5f}", f"{row.population_variance:.5f}") for row in stability
    ]
    return build_figure(
        "Stability",
        "As in the CoSQA+ paper, queries with 2, 3, 4 and 5 relevant snippets form four test sets. Cronbach's alpha "
        "treats the searchers as items. It requires at least two searchers and two test sets. The variance of a "
        "searcher's means over the test sets (divisor n − 1 or n) is averaged over the searchers.",
        None,
        [build_table(("metric", "Cronbach's alpha", "variance (n − 1)", "variance (n)"), rows)] if rows else (),
    )


def build_comparison_figures(comparisons: Comparisons) -> list[Figure]:
    """Return a description of the tests, and the differences between searchers by metric."""
    by_metric = groupby(comparisons.comparisons, lambda comparison: comparison.metric)
    figures = [_build_differences(comparisons.level, *group) for group in by_metric]
    return [*figures, build_figure("Comparisons", _describe_comparison(comparisons))]


def _build_differences(level: float, metric: str, group: Iterator[SearcherComparison]) -> Figure:
    dots, rows = [], []
    for pair in group:
        name = f"{pair.first} − {pair.second}"
        dots.append(build_dot(name, pair.difference, pair.interval))
        tests = format_p_value(pair.bootstrap_adjusted), format_p_value(pair.randomisation_adjusted)
        queries = f"{pair.better:,}:{pair.worse:,}:{pair.equal:,}"
        rows.append((name, f"{pair.difference:+.3f}", pair.interval, *tests, queries))
    title = f"Differences in {metric}"
    columns = (
        "searchers",
        "difference",
        f"{level:.0%} interval",
        "p (bootstrap)",
        "p (randomisation)",
        "better : worse : equal",
    )
    return build_figure(title, "", _draw_intervals(dots, title, level, 0.0), [build_table(columns, rows)])


def build_blindness_figures(blindness: Blindness) -> list[Figure]:
    """Return how often searchers prefer right code to mutants: in total, and by kind of change."""
    searchers, level = blindness.searchers, blindness.level
    totals = ((own.searcher, own.total.gap_difference, own.ties, own.truncated_ties) for own in searchers)
    tables = [build_table(("searcher", "gap minus first", "ties", "ties by truncation"), totals)]
    for own in searchers:
        rows = (
            (name, group.accuracy, group.wrong_query_accuracy, group.gap, group.contrasts)
            for name, group in (("all", own.total), *own.groups.items())
        )
        tables.append(build_table((own.searcher, "accuracy", "wrong query", "gap", "contrasts"), rows))
    text = (
        f"Accuracy is the share of the contrasts in {blindness.mutants} whose right code scores above a mutant of it. "
        "Ties count as one half. The gap is the accuracy minus the accuracy with a wrong query, or minus .5 if that is "
        "higher. At a gap of 0 or below, the searcher does not use the query to prefer right code. The "
        f"{level:.0%} intervals in brackets are computed by bootstrap over functions (seed {blindness.seed}, "
        f"{blindness.resamples:,} resamples). Mutants equal to right code are excluded ({blindness.equivalent:,})."
    )
    dots = [build_dot(own.searcher, own.total.gap.mean, own.total.gap.interval) for own in searchers]
    return [build_figure("Blindness", text, _draw_intervals(dots, "Gap", level, 0.0), tables)]


def build_reviewed_figures(scores: ReviewedScores) -> list[Figure]:
    """Return the corrected scores of searchers, and their differences to the first searcher."""
    rows = [
        (own.searcher, metric, value.predicted, value, own.differences and own.differences[metric])
        for metric in scores.metrics
        for own in scores.searchers
        for value in (own.values[metric],)
    ]
    columns = ("searcher", "metric", "annotator", "corrected", "minus first")
    text = (
        f"Means of {plural(scores.queries, 'query', 'queries')} of {scores.benchmark}, corrected by reviews of "
        f"{scores.reviewed:,} random queries with {plural(scores.pairs, 'pair')} ({scores.undecided:,} undecided). "
        f"Brackets contain {scores.level:.0%} intervals (seed {scores.seed}, {scores.resamples:,} resamples)."
    )
    return [build_figure("Corrected scores", text, None, [build_table(columns, rows, left=columns[:2])])]


def _build_trainings(folder: RetrievalFolder) -> Iterator[Figure]:
    """Yield the loss of each trained searcher by step, and its validation scores by epoch, by metric."""
    trainings = {name: record.training for name, record in folder.rankings.items() if record.training is not None}
    losses = {name: training.losses for name, training in trainings.items() if training.losses}
    if losses:
        chart = draw_lines(losses, alt="Training loss by step.", x="step", y="loss")
        rows = [
            (name, trainings[name].recipe, points[-1][0], *(f"{points[i][1]:.3g}" for i in (0, -1)))
            for name, points in losses.items()
        ]
        table = build_table(("searcher", "recipe", "steps", "first loss", "last loss"), rows, left=["recipe"])
        yield build_figure("Training loss", "", chart, [table])
    for metric in dict.fromkeys(
        metric for each in trainings.values() for epoch in each.epochs for metric in epoch.scores
    ):
        scores = {
            name: [(epoch.epoch, epoch.scores[metric]) for epoch in training.epochs if metric in epoch.scores]
            for name, training in trainings.items()
        }
        curves = {name: points for name, points in scores.items() if points}
        rows = [
            (name, best or None, dict(points).get(best, points[0][1]))
            for name, points in curves.items()
            for best in (trainings[name].best_epoch or 0,)
        ]
        yield build_figure(
            f"{metric} on validation queries",
            "",
            draw_lines(curves, alt=f"{metric} on validation queries by epoch.", x="epoch", y=metric),
            [build_table(("searcher", "best epoch", f"best {metric}"), rows)],
        )


def build_search_table(records: Mapping[str, RankingRecord]) -> Table:
    """Return the size and the cost of each ranking. An imported ranking has no cost."""
    rows = [
        (
            name,
            record.found,
            *(f"{record.seconds[step]:,.1f} s" if step in record.seconds else None for step in ("index", "search")),
            None if record.peak_memory_mb is None else f"{record.peak_memory_mb:,.0f} MB",
        )
        for name, record in records.items()
    ]
    return build_table(("searcher", "snippets retrieved", "index time", "search time", "peak memory"), rows)


def _build_searches(folder: RetrievalFolder, scored_searchers: Sequence[str]) -> Figure:
    rows = [
        (
            name,
            "; ".join([record.about, *record.notes]),
            ", ".join(f"{key} {value}" for key, value in record.settings.items()),
        )
        for name, record in folder.rankings.items()
    ]
    tables = (
        build_search_table(folder.rankings),
        build_table(columns := ("searcher", "description", "settings"), rows, left=columns),
    )
    identity = folder.identity
    notes = [f"Note: {note}." for note in folder.about["notes"]]
    if unscored := [name for name in folder.rankings if name not in scored_searchers]:
        notes.append(f"Not scored yet: {', '.join(unscored)}.")
    text = (
        f"Benchmark: {folder.about['name']}. Code view: {identity['code_view']}. Rankings contain the "
        f"best {identity['depth']:,} snippets per query and all snippets that tie with the last of them."
    )
    return build_figure("Search runs", " ".join([text, *notes]), None, tables)


def _draw_intervals(dots: Sequence[Dot], title: str, level: float, *included: float) -> Chart:
    lowest = min([*included, *(dot.low for dot in dots)])
    highest = max([*included, *(dot.high for dot in dots)])
    margin = 0.08 * (highest - lowest) or 0.05
    unit = f"{title}, with {level:.0%} intervals"
    return draw_intervals(dots, alt=unit, unit=format_label(unit, 60), extent=(lowest - margin, highest + margin))


def _describe_scores(scores: RetrievalScores) -> Iterator[str]:
    """Iterate over the remarks that readers need to interpret scores. Each remark consists of full sentences."""
    queries = plural(scores.queries, "query", "queries")
    effect = "count as 0" if scores.which == "all" else "are excluded"
    without = f" Queries without a relevant snippet ({scores.without_positives:,}) {effect}."
    yield (
        f"The scores cover {scores.scored:,} of {queries}.{without if scores.without_positives else ''} The scored "
        f"queries have {plural(scores.judged, 'judged pair')} ({scores.relevant:,} relevant), and the benchmark has "
        f"{plural(scores.codes, 'snippet')}."
    )
    yield (
        f"The {scores.level:.0%} intervals in brackets are computed by bootstrap over queries (seed {scores.seed}, "
        f"{scores.resamples:,} resamples). If snippets tie, a value is the expectation over all their orders."
    )
    if scores.by_sort_order:
        yield (
            "These metrics are computed by ir-measures, which breaks ties by sorting: "
            f"{', '.join(scores.by_sort_order)}."
        )
    for searcher in scores.searchers:
        if searcher.without_ranking:
            queries = plural(searcher.without_ranking, "query", "queries")
            yield f"For {queries}, {searcher.searcher} retrieved nothing and scores 0 on every metric."


def _describe_comparison(comparisons: Comparisons) -> str:
    """Describe how searchers were compared."""
    against = comparisons.against
    scope = (
        "All pairs of searchers are compared"
        if against is None
        else f"Each searcher is compared with {against} (searcher minus {against})"
    )
    return (
        f"{scope} on {plural(comparisons.queries, 'query', 'queries')}. The {comparisons.level:.0%} intervals are "
        "computed by paired bootstrap over queries. The p-values of the bootstrap and of the randomisation test are "
        f"two-sided and Holm-adjusted per metric ({comparisons.resamples:,} resamples, seed {comparisons.seed}). "
        "The better:worse:equal column counts the queries on which the first searcher is better, worse or equal."
    )


def format_p_value(value: float | None) -> str:
    """Format a p-value."""
    return "–" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"
