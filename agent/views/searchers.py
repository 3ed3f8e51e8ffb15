"""The scores of searchers on a benchmark, drawn and in tables: a section of a run's report, or a page of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from agent.evaluation.statistics import format_interval, format_number
from agent.retrieval.folder import COMPARISON, SCORES, RetrievalFolder
from agent.retrieval.results import Comparison, Comparisons, RetrievalScores, SearcherScores
from agent.views.charts import Chart, Dot, Figure, build_dot, build_figure, build_table, draw_intervals, format_label
from agent.wording import plural

# So many columns fit beside the searchers' names.
_AT_ONCE = 8
HIT_COLUMNS = ("queries with a hit", "median FRank")
STABILITY_COLUMNS = ("metric", "Cronbach's alpha", "variance (n − 1)", "variance (n)")
STABILITY = (
    "Over test sets of queries with 2, 3, 4 and 5 relevant codes, as in CoSQA+: Cronbach's alpha with searchers as "
    "items, and the variance of a searcher's means, by both conventions."
)
DIFFERENCE_COLUMNS = ("difference", "95% interval", "p (bootstrap)", "p (randomisation)", "better:worse:equal")


def build_searcher_cards(folder: RetrievalFolder) -> list[dict[str, str]]:
    """Return the key figures of a retrieval folder: name, value, and a word on it."""
    identity, known = folder.identity, folder.identity["benchmark"]
    cards = (
        ("queries", known["queries"], plural(known["grades"], "grade")),
        ("codes", known["codes"], f"{known['language']}, {identity['code_view']}"),
        ("searchers", len(folder.rankings), f"{identity['depth']:,} codes deep"),
    )
    return [{"name": name, "value": f"{value:,}", "note": note} for name, value, note in cards]


def build_searcher_figures(folder: RetrievalFolder) -> list[Figure]:
    """Return the figures of a retrieval folder: scores, comparisons, and what searching took.

    Raises:
        RunFolderError: scores or comparisons are damaged.
    """
    scores, compared = folder.load_document(SCORES, RetrievalScores), folder.load_document(COMPARISON, Comparisons)
    blocks = []
    if stale := list(folder.describe_out_of_date_results()):
        blocks.append(build_figure("Out of date", _join_sentences(stale)))
    if scores is not None:
        blocks += [_build_means(scores), *(_build_metric(scores, name) for name in scores.metrics)]
        if rows := build_stability_rows(scores):
            columns = {STABILITY_COLUMNS[0]: False} | dict.fromkeys(STABILITY_COLUMNS[1:], True)
            blocks.append(build_figure("Stability", STABILITY, None, [build_table(columns, rows)]))
    if compared is not None:
        blocks.append(
            build_figure("Comparisons", f"{describe_comparison(compared)} {_join_sentences(compared.notes)}".strip())
        )
        blocks += [
            _build_differences(compared, *each) for each in groupby(compared.comparisons, lambda each: each.metric)
        ]
    return [*blocks, _build_searches(folder, () if scores is None else [each.searcher for each in scores.searchers])]


def _build_means(scores: RetrievalScores) -> Figure:
    columns = {name: [format_number(each.values[name].mean) for each in scores.searchers] for name in scores.metrics}
    columns[HIT_COLUMNS[0]] = [f"{each.found:,}" for each in scores.searchers]
    columns[HIT_COLUMNS[1]] = [format_median_rank(each) for each in scores.searchers]
    names = [each.searcher for each in scores.searchers]
    parts = [list(columns)[start : start + _AT_ONCE] for start in range(0, len(columns), _AT_ONCE)]
    tables = [
        build_table(
            {"searcher": False} | dict.fromkeys(part, True), zip(names, *(columns[each] for each in part), strict=True)
        )
        for part in parts
    ]
    return build_figure(
        "Means", " ".join([*describe_scores(scores), _join_sentences(scores.notes)]).strip(), None, tables
    )


def _build_metric(scores: RetrievalScores, name: str) -> Figure:
    values = [(each.searcher, each.values[name]) for each in scores.searchers]
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
    """Return a row of `STABILITY_COLUMNS` for each metric, if stability was asked for and can be computed."""
    return [
        [each.metric, format_number(each.alpha), f"{each.sample_variance:.5f}", f"{each.population_variance:.5f}"]
        for each in scores.stability or ()
    ]


def _join_sentences(notes: Iterable[str]) -> str:
    return " ".join(f"{note[:1].upper()}{note[1:]}." for note in notes)


def _build_differences(compared: Comparisons, metric: str, group: Iterator[Comparison]) -> Figure:
    dots, rows = [], []
    for each in group:
        name = f"{each.first} − {each.second}"
        dots.append(build_dot(name, each.difference, each.interval))
        tests = format_p_value(each.bootstrap_adjusted), format_p_value(each.randomisation_adjusted)
        queries = f"{each.better:,}:{each.worse:,}:{each.equal:,}"
        rows.append([name, f"{each.difference:+.3f}", format_interval(each.interval), *tests, queries])
    title = f"Differences in {metric}"
    extent = min(0.0, *(dot.low for dot in dots)), max(0.0, *(dot.high for dot in dots))
    return build_figure(
        title,
        "",
        _draw_intervals(dots, title, compared.level, extent),
        [build_table({"searchers": False} | dict.fromkeys(DIFFERENCE_COLUMNS, True), rows)],
    )


def _build_searches(folder: RetrievalFolder, scored: Sequence[str]) -> Figure:
    rows = []
    for name, each in folder.rankings.items():
        seconds = [f"{each.seconds[step]:,.1f} s" if step in each.seconds else "–" for step in ("index", "search")]
        memory = "–" if each.peak_memory_mb is None else f"{each.peak_memory_mb:,.0f} MB"
        settings = ", ".join(f"{key} {value}" for key, value in each.settings.items())
        rows.append([name, "; ".join([each.about, *each.notes]), settings, f"{each.found:,}", *seconds, memory])
    columns = {"searcher": False, "what it is": False, "settings": False} | dict.fromkeys(
        ("codes found", "indexing", "searching", "peak memory"), True
    )
    known = folder.identity
    notes = [f"Note: {note}." for note in folder.about["notes"]]
    if unscored := [name for name in folder.rankings if name not in scored]:
        notes.append(f"Not scored yet: {', '.join(unscored)}.")
    text = (
        f"The benchmark is {folder.about['name']}. Of each code is searched: {known['code_view']}; kept are the best "
        f"{known['depth']:,} codes of each query, with all that tie with the last."
    )
    return build_figure("Searching", " ".join([text, *notes]), None, [build_table(columns, rows)])


def _draw_intervals(dots: Sequence[Dot], what: str, level: float, extent: tuple[float, float]) -> Chart:
    lowest, highest = extent
    margin = 0.08 * (highest - lowest) or 0.05
    unit = f"{what}, with {level:.0%} intervals"
    return draw_intervals(dots, alt=unit, unit=format_label(unit, 60), extent=(lowest - margin, highest + margin))


def describe_scores(scores: RetrievalScores) -> Iterator[str]:
    """Yield in sentences what a reader of scores must know: which queries count, what was found of them, how."""
    queries = plural(scores.queries, "query", "queries")
    left = "count as 0" if scores.which == "all" else "are left out"
    without = f"; {scores.without_positives:,} without a relevant code {left}" if scores.without_positives else ""
    yield (
        f"{scores.scored:,} of {queries}{without}. {plural(scores.relevant, 'relevant pair')} of {scores.judged:,} "
        f"judged, {plural(scores.codes, 'code')} to search."
    )
    yield (
        f"Intervals ({scores.level:.0%}) are by bootstrap over queries (seed {scores.seed}, {scores.resamples:,} "
        "resamples). Equal scores tie: each figure is its expectation over their orders."
    )
    if scores.by_sort_order:
        yield f"By ir-measures, which breaks ties by sorting: {', '.join(scores.by_sort_order)}."
    for each in scores.searchers:
        if each.without_ranking:
            nothing = plural(each.without_ranking, "query", "queries")
            yield f"{each.searcher} found nothing for {nothing}: 0 in every metric."


def describe_comparison(compared: Comparisons) -> str:
    """Return in a sentence how searchers were compared."""
    pairs = "all pairs of searchers" if compared.against is None else f"each other searcher less {compared.against}"
    return (
        f"{plural(compared.queries, 'query', 'queries')}, {pairs}: {compared.level:.0%} intervals by paired bootstrap "
        f"over queries; p of the bootstrap and of the randomisation test, two-sided, adjusted by Holm within each "
        f"metric ({compared.resamples:,} resamples, seed {compared.seed}); queries on which the first is "
        "better:worse:equal."
    )


def format_median_rank(scores: SearcherScores) -> str:
    """Return the median of the expected ranks of the first relevant code, of the queries that have one."""
    return "–" if scores.median_frank is None else f"{scores.median_frank:g}"


def format_p_value(value: float | None) -> str:
    """Return a p-value to read."""
    return "–" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"
