"""Figures that describe a dataset, for a section of a run's report and for `agent corpus describe`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.corpus.describe import MISSING, Description
from agent.text import Figure, build_figure, build_table, plural
from agent.views.charts import Chart, build_dot, draw_bars, draw_intervals
from agent.views.figures import format_share

_MAX_MATCHES, _MAX_NAMES = 20, 10
_STATUSES = {
    "1": "label 1", "0": "label 0", "undecided": "undecided", "no_intent": "no search intent", "error": "failed",
    "none": "no label",
}  # fmt: skip


def build_dataset_figures(dataset: Description) -> list[Figure]:
    """Return the figures that describe a dataset, each with one table. Only the figures on matches have charts."""
    labels = {_STATUSES[name]: count for name, count in dataset.labels.items()}
    sizes: dict[str, Any] = {"pairs": dataset.pairs, **labels}
    if dataset.not_annotated:
        sizes["pairs not annotated yet"] = dataset.not_annotated
    if dataset.programs:
        sizes |= {"test programs": dataset.programs, "test cases per program": f"{dataset.cases_per_program:.2f}"}
        sizes["programs that ran"] = f"{dataset.executed_share:.2%}"
    unused = f"Shares by rank ignore {plural(dataset.unused_ranks, 'match', 'matches')} from data without label 0."
    texts = [(name, own.count, f"{own.characters:.2f}", f"{own.tokens:.2f}", own.vocabulary)
             for name, own in {"queries": dataset.queries, "snippets": dataset.codes}.items()]  # fmt: skip
    parts = [(name, own.pairs, own.queries, own.codes, *own.labels.values()) for name, own in dataset.parts.items()]
    leaks = [(" and ".join(leak.parts), leak.queries, leak.codes) for leak in dataset.leaks]
    share = dataset.several_share
    several = "" if share is None else f"{share:.1%} of the snippets that answer a query answer two or more."
    figures = [
        _tabulate("Pairs", ("", "value"), sizes.items(), unused if dataset.unused_ranks else ""),
        _tabulate("Texts", ("", "distinct", "mean characters", "mean tokens", "vocabulary"), texts),
        _draw_counts("Queries by matching snippets", "matching snippets", "queries", dataset.queries_by_matches),
        _draw_ranks(dataset),
        _draw_counts("Snippets by matching queries", "matching queries", "snippets", dataset.codes_by_matches, several),
        _tabulate("Parts", ("part", "pairs", "queries", "snippets", *labels), parts),
        _tabulate("Texts in two parts", ("parts", "queries", "snippets"), leaks),
        _tabulate("Sources", ("source", "pairs"), _list_names(dataset.sources)),
        _tabulate("Licences", ("licence", "pairs"), _list_names(dataset.licences)),
    ]
    return [figure for figure in figures if figure["tables"][0]["rows"]]


def _tabulate(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], text: str = "", chart: Chart | None = None
) -> Figure:
    return build_figure(title, text, chart, [build_table(columns, rows)])


def _draw_counts(title: str, by: str, unit: str, counts: Mapping[int, int], text: str = "") -> Figure:
    folded, total = Counter[int](), sum(counts.values())
    for number, count in counts.items():
        folded[min(number, _MAX_MATCHES)] += count
    rows = [(f"{number} or more" if number == _MAX_MATCHES else str(number), count, format_share(count, total))
            for number, count in folded.items()]  # fmt: skip
    chart = draw_bars([(name, count, f"{count:,}") for name, count, _ in rows], alt=f"{title}.", unit=unit)
    return _tabulate(title, (by, unit, "share"), rows, text, chart)


def _draw_ranks(dataset: Description) -> Figure:
    title, ranks, text = "Matches by candidate rank", dataset.ranks, ""
    rows = [(str(r.rank), r.pairs, r.matches, r.share, r.interval) for r in ranks]
    if interval := dataset.next_rank_interval:
        queries, matches = plural(ranks[-1].pairs, "query", "queries"), plural(ranks[-1].matches, "match", "matches")
        text = (
            f"One more candidate for each of {queries} with a labelled candidate at rank {ranks[-1].rank} would add "
            f"about {matches} (95% interval: {interval.low:,.1f} to {interval.high:,.1f}), or fewer if the share falls."
        )
    dots = [build_dot(str(r.rank), r.share, r.interval) for r in ranks]
    chart = draw_intervals(dots, alt=title, unit="share of matches", extent=(0, 1))
    return _tabulate(title, ("rank", "labelled pairs", "matches", "share", "95% interval"), rows, text, chart)


def _list_names(names: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the most frequent names with their numbers of pairs, or nothing if no pair has a name."""
    known = [(name, count) for name, count in names.items() if name != MISSING]
    if not known:
        return []
    others = sum(count for _, count in known[_MAX_NAMES:])
    rest = {f"({len(known) - _MAX_NAMES:,} others)": others, f"({MISSING})": names.get(MISSING, 0)}
    return [*known[:_MAX_NAMES], *((name, count) for name, count in rest.items() if count)]
