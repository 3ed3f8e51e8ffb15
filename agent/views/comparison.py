"""Figures that compare a run with gold labels (`--gold`) and with the other variants of its ablation."""

from __future__ import annotations

from collections.abc import Iterable

from agent.evaluation.ablation_table import AblationTable
from agent.evaluation.ablation_text import REMARK, Section, build_sections, list_remarks
from agent.evaluation.breakdown import Breakdown, BreakdownGroup
from agent.evaluation.measures import Scores
from agent.evaluation.scoring import ScoreReport
from agent.evaluation.statistics import format_interval, format_number
from agent.text import plural
from agent.views.charts import (
    Dot,
    Figure,
    Table,
    build_dot,
    build_figure,
    build_table,
    draw_intervals,
)
from agent.views.marks import GROUPING_NAMES, format_mark, get_gold_mark_kind

_MEASURES = {
    "accuracy": "accuracy", "coverage": "coverage", "selective_accuracy": "accuracy of labelled pairs",
    "precision": "precision", "recall": "recall", "f1": "F1", "kappa": "Cohen's κ", "alpha": "Krippendorff's α",
}  # fmt: skip


def build_ablation_figures(ablation: AblationTable, variant: str | None = None) -> list[Figure]:
    """Return a chart of accuracies and tables of all measures. `variant` is highlighted."""
    dots = [
        Dot(row.variant, row.accuracy.value, row.accuracy.low, row.accuracy.high,
            "accent" if row.variant == variant else "accent-2")
        for row in ablation.rows if row.accuracy is not None
    ]  # fmt: skip
    first, *others = build_sections(ablation)
    chart = None
    if dots:
        lowest, highest = min(dot.low for dot in dots), max(dot.high for dot in dots)
        extent = max(0.0, lowest - 0.05), min(1.02, highest + 0.05)
        chart = draw_intervals(
            dots, alt="Accuracy with 95% intervals", unit="accuracy, with 95% intervals", extent=extent
        )
    return [
        build_figure(
            "Accuracy of the variants", " ".join(list_remarks(ablation)), chart, [_build_section_table(first, ablation)]
        ),
        *(build_figure(section.title, "", None, [_build_section_table(section, ablation)]) for section in others),
    ]


def _build_section_table(section: Section, ablation: AblationTable) -> Table:
    first, *others = section.columns
    columns = {first.heading: False, **{column.heading: column.heading != REMARK for column in others}}
    return build_table(columns, [[column.text(row) for column in section.columns] for row in ablation.rows])


def build_gold_figures(report: ScoreReport) -> list[Figure]:
    """Return figures for a score report on a single run."""
    scores, run = report.annotators[0].scores, report.runs[0]
    if scores is None:
        return []
    blocks = [_build_scores(scores, report.notes)]
    if run.breakdown is not None:
        blocks.append(_build_breakdown(run.breakdown))
    return blocks


def _build_scores(scores: Scores, notes: Iterable[str]) -> Figure:
    values = {name: getattr(scores, name) for name in _MEASURES}
    dots = [
        build_dot(_MEASURES[name], value, scores.bootstrap.get(name) or scores.wilson.get(name))
        for name, value in values.items()
        if value is not None
    ]
    rows = [
        [
            _MEASURES[name],
            format_number(value),
            format_interval(scores.wilson.get(name)),
            format_interval(scores.bootstrap.get(name)),
        ]
        for name, value in values.items()
    ]
    pairs, queries = plural(scores.pairs, "pair"), plural(scores.queries, "query", "queries")
    text = (
        f"The scores cover {pairs} with gold labels from {queries}. A pair without a label counts as wrong. The bars "
        f"show {scores.level:.0%} bootstrap intervals over queries (seed {scores.seed}, {scores.resamples:,} "
        "resamples), or Wilson intervals if there is no bootstrap interval."
    )
    extent = min(0.0, *(dot.low for dot in dots)) - 0.02, 1.02
    columns = {"measure": False, "value": True, "Wilson": True, "bootstrap": True}
    cells = scores.confusion
    confusion = [
        ["1", f"{cells.tp:,}", f"{cells.fn:,}", f"{cells.null_positive:,}"],
        ["0", f"{cells.fp:,}", f"{cells.tn:,}", f"{cells.null_negative:,}"],
    ]
    return build_figure(
        "Scores",
        " ".join((text, *(f"Note: {note}." for note in notes))),
        draw_intervals(dots, alt="Scores with intervals", unit="value", extent=extent),
        [
            build_table(columns, rows),
            build_table({"gold": False, "label 1": True, "label 0": True, "no label": True}, confusion),
        ],
    )


def _build_breakdown(breakdown: Breakdown) -> Figure:
    groups = [(grouping, group) for grouping in GROUPING_NAMES for group in getattr(breakdown, grouping)]
    dots = [
        build_dot(f"{GROUPING_NAMES[grouping]}: {group.name}", group.accuracy, group.interval,
            pairs={"marks": format_mark(get_gold_mark_kind(grouping), group.name)})
        for grouping, group in groups
    ]  # fmt: skip
    rows = [[GROUPING_NAMES[grouping], *build_group_row(group)] for grouping, group in groups]
    columns = {"grouping": False, "group": False} | dict.fromkeys(
        ("pairs", "accuracy", "Wilson", "correct 1", "wrong 1", "wrong 0", "correct 0", "no label"), True
    )
    return build_figure(
        "Accuracy by group",
        "The chart shows the accuracy of each group of pairs with a Wilson interval. Small groups have wide intervals.",
        draw_intervals(dots, alt="Accuracy by group", unit="accuracy", extent=(-0.02, 1.02)),
        [build_table(columns, rows)],
    )


def build_group_row(group: BreakdownGroup) -> list[str]:
    """Return the name of a group, its size, the accuracy with its interval, and the counts tp, fp, fn, tn and null."""
    cells = group.confusion
    counts = cells.tp, cells.fp, cells.fn, cells.tn, cells.null_positive + cells.null_negative
    accuracy = format_number(group.accuracy), format_interval(group.interval)
    return [group.name, f"{group.pairs:,}", *accuracy, *(f"{count:,}" for count in counts)]
