"""Figures that show how searchers score on a benchmark, for a section of a run's report or for a separate page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from agent.evaluation.statistics import format_interval, format_number
from agent.retrieval.folder import COMPARISON, SCORES, RetrievalFolder
from agent.retrieval.results import Comparison, Comparisons, RetrievalScores, SearcherScores
from agent.text import plural
from agent.views.charts import (
    Chart,
    Dot,
    Figure,
    build_dot,
    build_figure,
    build_table,
    draw_intervals,
    draw_lines,
    format_label,
)

# At most this many columns fit beside the names of the searchers.
_COLUMNS_PER_TABLE = 8
HIT_COLUMNS = ("queries with a hit", "median FRank")
STABILITY_COLUMNS = ("metric", "Cronbach's alpha", "variance (n − 1)", "variance (n)")
STABILITY = (
    "As in the CoSQA+ paper, queries with 2, 3, 4 and 5 relevant codes form four test sets. Cronbach's alpha treats "
    "the searchers as items. The variance of a searcher's means over the test sets (divisor n − 1 or n) is averaged "
    "over the searchers."
)
DIFFERENCE_COLUMNS = ("difference", "95% interval", "p (bootstrap)", "p (randomisation)", "better:worse:equal")


def build_searcher_cards(folder: RetrievalFolder) -> list[dict[str, str]]:
    """Return the key figures for a retrieval folder, each with a name, a value and a note."""
    identity, benchmark = folder.identity, folder.identity["benchmark"]
    cards = (
        ("queries", benchmark["queries"], plural(benchmark["grades"], "grade")),
        ("codes", benchmark["codes"], f"{benchmark['language']}, {identity['code_view']}"),
        ("searchers", len(folder.rankings), f"{identity['depth']:,} codes per query"),
    )
    return [{"name": name, "value": f"{value:,}", "note": note} for name, value, note in cards]


def build_searcher_figures(folder: RetrievalFolder) -> list[Figure]:
    """Return the figures for a retrieval folder: scores, comparisons, trainings and search times.

    Raises:
        RunFolderError: the scores or comparisons are damaged.
    """
    scores = folder.load_document(SCORES, RetrievalScores)
    comparisons = folder.load_document(COMPARISON, Comparisons)
    blocks = []
    if stale := list(folder.describe_out_of_date_results()):
        blocks.append(build_figure("Out of date", _join_sentences(stale)))
    if scores is not None:
        blocks += [_build_means(scores), *(_build_metric(scores, name) for name in scores.metrics)]
        if rows := build_stability_rows(scores):
            columns = {STABILITY_COLUMNS[0]: False} | dict.fromkeys(STABILITY_COLUMNS[1:], True)
            blocks.append(build_figure("Stability", STABILITY, None, [build_table(columns, rows)]))
    if comparisons is not None:
        blocks.append(
            build_figure(
                "Comparisons", f"{describe_comparison(comparisons)} {_join_sentences(comparisons.notes)}".strip()
            )
        )
        blocks += [
            _build_differences(comparisons, *group)
            for group in groupby(comparisons.comparisons, lambda comparison: comparison.metric)
        ]
    return [
        *blocks,
        *_build_trainings(folder),
        _build_searches(folder, () if scores is None else [searcher.searcher for searcher in scores.searchers]),
    ]


def _build_means(scores: RetrievalScores) -> Figure:
    columns = {
        name: [format_number(searcher.values[name].mean) for searcher in scores.searchers] for name in scores.metrics
    }
    columns[HIT_COLUMNS[0]] = [f"{searcher.found:,}" for searcher in scores.searchers]
    columns[HIT_COLUMNS[1]] = [format_median_rank(searcher) for searcher in scores.searchers]
    names = [searcher.searcher for searcher in scores.searchers]
    parts = [list(columns)[start : start + _COLUMNS_PER_TABLE] for start in range(0, len(columns), _COLUMNS_PER_TABLE)]
    tables = [
        build_table(
            {"searcher": False} | dict.fromkeys(part, True),
            zip(names, *(columns[column] for column in part), strict=True),
        )
        for part in parts
    ]
    return build_figure(
        "Means", " ".join([*describe_scores(scores), _join_sentences(scores.notes)]).strip(), None, tables
    )


def _build_metric(scores: RetrievalScores, name: str) -> Figure:
    values = [(searcher.searcher, searcher.values[name]) for searcher in scores.searchers]
    dots = [build_dot(searcher, value.mean, value.interval) for searcher, value in values]
    extent = min(dot.low for dot in dots), max(dot.high for dot in dots)
    rows = [[searcher, format_number(value.mean), format_interval(value.interval)] for searcher, value in values]
    return build_figure(
        name,
        "",
        _draw_intervals(dots, name, scores.level, extent),
        [build_table({"searcher": False, name: True, f"{scores.level:.0%} interval": True}, rows)],
    )


def build_stability_rows(scores: RetrievalScores) -> list[list[str]]:
    """Return one row of `STABILITY_COLUMNS` per metric, or none if stability was not requested or is undefined."""
    return [
        [row.metric, format_number(row.alpha), f"{row.sample_variance:.5f}", f"{row.population_variance:.5f}"]
        for row in scores.stability or ()
    ]


def _join_sentences(notes: Iterable[str]) -> str:
    return " ".join(f"{note[:1].upper()}{note[1:]}." for note in notes)


def _build_differences(comparisons: Comparisons, metric: str, group: Iterator[Comparison]) -> Figure:
    dots, rows = [], []
    for pair in group:
        name = f"{pair.first} − {pair.second}"
        dots.append(build_dot(name, pair.difference, pair.interval))
        tests = format_p_value(pair.bootstrap_adjusted), format_p_value(pair.randomisation_adjusted)
        queries = f"{pair.better:,}:{pair.worse:,}:{pair.equal:,}"
        rows.append([name, f"{pair.difference:+.3f}", format_interval(pair.interval), *tests, queries])
    title = f"Differences in {metric}"
    extent = min(0.0, *(dot.low for dot in dots)), max(0.0, *(dot.high for dot in dots))
    return build_figure(
        title,
        "",
        _draw_intervals(dots, title, comparisons.level, extent),
        [build_table({"searchers": False} | dict.fromkeys(DIFFERENCE_COLUMNS, True), rows)],
    )


def _build_trainings(folder: RetrievalFolder) -> Iterator[Figure]:
    """Yield the loss of each trained searcher by step, and its validation scores by epoch, by metric."""
    trainings = {name: record.training for name, record in folder.rankings.items() if record.training is not None}
    losses = {name: training.losses for name, training in trainings.items() if training.losses}
    if losses:
        chart = draw_lines(losses, alt="Training loss by step.", x="step", y="loss")
        columns = {"searcher": False, "recipe": False} | dict.fromkeys(("steps", "first loss", "last loss"), True)
        rows = [
            [name, trainings[name].recipe, f"{points[-1][0]:,}", *(f"{points[i][1]:.3g}" for i in (0, -1))]
            for name, points in losses.items()
        ]
        yield build_figure("Training loss", "", chart, [build_table(columns, rows)])
    for metric in dict.fromkeys(
        metric for each in trainings.values() for epoch in each.epochs for metric in epoch.scores
    ):
        scores = {
            name: [(epoch.epoch, epoch.scores[metric]) for epoch in training.epochs if metric in epoch.scores]
            for name, training in trainings.items()
        }
        curves = {name: points for name, points in scores.items() if points}
        rows = [
            [name, f"{best or '–'}", format_number(dict(points).get(best, points[0][1]))]
            for name, points in curves.items()
            for best in (trainings[name].best_epoch or 0,)
        ]
        yield build_figure(
            f"{metric} on validation queries",
            "",
            draw_lines(curves, alt=f"{metric} on validation queries by epoch.", x="epoch", y=metric),
            [build_table({"searcher": False, "best epoch": True, f"best {metric}": True}, rows)],
        )


def _build_searches(folder: RetrievalFolder, scored_searchers: Sequence[str]) -> Figure:
    rows = []
    for name, ranking in folder.rankings.items():
        times = ranking.seconds
        seconds = [f"{times[step]:,.1f} s" if step in times else "–" for step in ("index", "search")]
        memory = "–" if ranking.peak_memory_mb is None else f"{ranking.peak_memory_mb:,.0f} MB"
        settings = ", ".join(f"{key} {value}" for key, value in ranking.settings.items())
        description = "; ".join([ranking.about, *ranking.notes])
        rows.append([name, description, settings, f"{ranking.found:,}", *seconds, memory])
    columns = {"searcher": False, "description": False, "settings": False} | dict.fromkeys(
        ("codes retrieved", "index time", "search time", "peak memory"), True
    )
    identity = folder.identity
    notes = [f"Note: {note}." for note in folder.about["notes"]]
    if unscored := [name for name in folder.rankings if name not in scored_searchers]:
        notes.append(f"Not scored yet: {', '.join(unscored)}.")
    text = (
        f"Benchmark: {folder.about['name']}. Code view: {identity['code_view']}. Rankings contain the "
        f"best {identity['depth']:,} code snippets (codes) per query and all codes that tie with the last of them."
    )
    return build_figure("Search runs", " ".join([text, *notes]), None, [build_table(columns, rows)])


def _draw_intervals(dots: Sequence[Dot], title: str, level: float, extent: tuple[float, float]) -> Chart:
    lowest, highest = extent
    margin = 0.08 * (highest - lowest) or 0.05
    unit = f"{title}, with {level:.0%} intervals"
    return draw_intervals(dots, alt=unit, unit=format_label(unit, 60), extent=(lowest - margin, highest + margin))


def describe_scores(scores: RetrievalScores) -> Iterator[str]:
    """Iterate over the remarks that readers need to interpret scores. Each remark consists of full sentences."""
    queries = plural(scores.queries, "query", "queries")
    effect = "count as 0" if scores.which == "all" else "are excluded"
    without = f" Queries without a relevant code ({scores.without_positives:,}) {effect}."
    yield (
        f"The scores cover {scores.scored:,} of {queries}.{without if scores.without_positives else ''} The scored "
        f"queries have {plural(scores.judged, 'judged pair')} ({scores.relevant:,} relevant), and the benchmark has "
        f"{plural(scores.codes, 'code')}."
    )
    yield (
        f"The {scores.level:.0%} intervals are computed by bootstrap over queries (seed {scores.seed}, "
        f"{scores.resamples:,} resamples). If codes tie, a value is the expectation over all orders of the tied codes."
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


def describe_comparison(comparisons: Comparisons) -> str:
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


def format_median_rank(scores: SearcherScores) -> str:
    """Format the median FRank. FRank is the expected rank of the first relevant code.

    The median covers only queries for which the searcher retrieved a relevant code.
    """
    return "–" if scores.median_frank is None else f"{scores.median_frank:g}"


def format_p_value(value: float | None) -> str:
    """Format a p-value."""
    return "–" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"
