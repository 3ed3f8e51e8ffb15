"""What searchers are worth on a benchmark, drawn and in tables: a section of a run's report, or a page of its own."""

from __future__ import annotations

from collections.abc import Iterator

from agent.evaluation.statistics import Interval
from agent.retrieval.scores import Comparisons, RetrievalScores
from agent.wording import counted


def remarks(found: RetrievalScores) -> Iterator[str]:
    """Yield in sentences what a reader of scores must know: which queries count, what was found of them, how."""
    queries = counted(found.queries, "query", "queries")
    left = "count as 0" if found.which == "all" else "are left out"
    without = f"; {found.without_positives:,} without a relevant code {left}" if found.without_positives else ""
    yield (
        f"{found.scored:,} of {queries}{without}. {counted(found.relevant, 'relevant pair')} of {found.judged:,} "
        f"judged, {counted(found.codes, 'code')} to search."
    )
    yield (
        f"Below each mean its {found.level:.0%} interval by bootstrap over queries (seed {found.seed}, "
        f"{found.resamples:,} resamples). Equal scores tie: each figure is its expectation over their orders."
    )
    yield from (f"{note[:1].upper()}{note[1:]}." for note in found.notes)
    if found.by_sort_order:
        yield f"By ir-measures, which breaks ties by sorting: {', '.join(found.by_sort_order)}."
    for each in found.searchers:
        rank = "" if each.median_frank is None else f", their median FRank is {each.median_frank:g}"
        nothing = f"; nothing was found for {each.without_ranking:,}" if each.without_ranking else ""
        found_for = counted(each.found, "query", "queries")
        yield f"{each.searcher}: a relevant code was found for {found_for}{rank}{nothing}."


def how_compared(found: Comparisons) -> str:
    """Return in a sentence how searchers were compared."""
    pairs = "all pairs of searchers" if found.against is None else f"each other searcher less {found.against}"
    return (
        f"{counted(found.queries, 'query', 'queries')}, {pairs}: {found.level:.0%} intervals by paired bootstrap over "
        f"queries; p of the bootstrap and of the randomisation test, two-sided, adjusted by Holm within each metric "
        f"({found.resamples:,} resamples, seed {found.seed}); queries on which the first is better:worse:equal."
    )


def number(value: float | None) -> str:
    """Return a figure to read."""
    return "–" if value is None else f"{value:.3f}"


def interval(found: Interval | None) -> str:
    """Return an interval to read."""
    return "–" if found is None else f"{found.low:.3f}–{found.high:.3f}"


def p_value(value: float | None) -> str:
    """Return a p-value to read."""
    return "–" if value is None else "<.0001" if value < 0.0001 else f"{value:.4f}"
