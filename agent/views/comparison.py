"""Figures that compare a run with gold labels (`--gold`) and with the other variants of its ablation."""

from __future__ import annotations

from agent.evaluation.ablation_table import AblationTable
from agent.evaluation.ablation_text import build_sections, list_remarks
from agent.evaluation.breakdown import Breakdown
from agent.evaluation.estimates import ReviewChoice, RunEstimates
from agent.evaluation.measures import FORMULAS, Agreement, Scores
from agent.evaluation.scoring import ScoreReport
from agent.text import Figure, build_figure, build_table, format_value, plural
from agent.views.charts import Dot, build_dot, draw_intervals
from agent.views.marks import GROUPING_NAMES, format_mark, get_gold_mark_kind

_LEGEND = "A dash marks a value that is undefined or the same in all resamples. A pair without a label counts as wrong."


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
    remarks = "\n".join(list_remarks(ablation))
    return [build_figure("Accuracy of the variants", remarks, chart, first["tables"]), *others]


def build_score_figures(report: ScoreReport) -> list[Figure]:
    """Return the scores against gold labels, the agreement, the breakdowns, the estimates and the notes of a report."""
    figures, notes = list[Figure](), report.notes
    for annotator in report.annotators:
        if (scores := annotator.scores) is not None:
            kind = f"{annotator.kind} " * (annotator.kind in ("run", "reviewer"))
            figures.append(_build_scores(f"{kind}{annotator.name}", scores))
            bootstrap = f"bootstrap intervals (seed {scores.seed}, {scores.resamples:,} resamples)"
            notes = (f"Intervals over queries are {bootstrap}. {_LEGEND}", *report.notes)
    figures += map(_build_agreement, report.agreement)
    for run in report.runs:
        if run.breakdown is not None:
            figures.append(_build_breakdown(run.name, run.breakdown))
        if run.estimates is not None:
            figures.append(_build_estimates(run.name, run.estimates, run.reviews))
    return [*figures, *([build_figure("Notes", "\n".join(notes))] if notes else [])]


def _build_scores(name: str, scores: Scores) -> Figure:
    rows = [
        (measure.replace("_", " "), getattr(scores, measure), scores.wilson.get(measure), scores.bootstrap[measure])
        for measure in FORMULAS
    ]
    dots = [build_dot(text, value, bootstrap or wilson) for text, value, wilson, bootstrap in rows if value is not None]
    cells = scores.confusion
    without = cells.null_positive + cells.null_negative
    confusion = [(1, cells.tp, cells.fn, cells.null_positive), (0, cells.fp, cells.tn, cells.null_negative)]
    return build_figure(
        f"{name}: {plural(scores.pairs, 'pair')} with gold labels, {plural(scores.queries, 'query', 'queries')}",
        f"{cells.tp} tp · {cells.fp} fp · {cells.fn} fn · {cells.tn} tn · {without} without a label",
        draw_intervals(
            dots,
            alt="Scores with intervals",
            unit=f"value, with {scores.level:.0%} intervals",
            extent=(min([0.0, *(dot.low for dot in dots)]) - 0.02, 1.02),
        ),
        [
            build_table(("measure", "value", f"Wilson {scores.level:.0%}", f"over queries {scores.level:.0%}"), rows),
            build_table(("gold", "label 1", "label 0", "no label"), confusion),
        ],
    )


def _build_agreement(agreement: Agreement) -> Figure:
    rows = [
        (f"{pair.first} – {pair.second}", pair.both, pair.agreement, pair.kappa, pair.kappa_interval)
        for pair in agreement.pairwise
    ]
    return build_figure(
        f"Agreement of {agreement.of}: Krippendorff's alpha {format_value(agreement.alpha)} "
        f"({format_value(agreement.alpha_interval)}) on {agreement.comparable:,} of {plural(agreement.pairs, 'pair')}",
        tables=[build_table(("", "labelled by both", "agreement", "Cohen's κ", "over queries"), rows)],
    )


def _build_breakdown(run: str, breakdown: Breakdown) -> Figure:
    groups = [(grouping, group) for grouping in GROUPING_NAMES for group in getattr(breakdown, grouping)]
    dots = [
        build_dot(f"{GROUPING_NAMES[grouping]}: {group.name}", group.accuracy, group.interval,
            pairs={"marks": format_mark(get_gold_mark_kind(grouping), group.name)})
        for grouping, group in groups
    ]  # fmt: skip
    rows = [
        (dot.name, group.pairs, group.accuracy, group.interval, cells.tp, cells.fp, cells.fn, cells.tn,
         cells.null_positive + cells.null_negative)
        for dot, (_, group) in zip(dots, groups, strict=True) for cells in (group.confusion,)
    ]  # fmt: skip
    return build_figure(
        f"{run}: accuracy by group",
        "Intervals are Wilson intervals. Small groups have wide intervals.",
        draw_intervals(dots, alt="Accuracy by group", unit="accuracy", extent=(-0.02, 1.02)),
        [build_table(("group", "pairs", "accuracy", "Wilson", "tp", "fp", "fn", "tn", "null"), rows)],
    )


def _build_estimates(run: str, estimates: RunEstimates, reviews: ReviewChoice) -> Figure:
    e = estimates
    states = {
        f"reviewed{' blind' * (reviews == 'blind')}": e.reviewed,
        "pending": e.pending,
        "excluded (first reviewed in a queue)": e.ahead,
        "tied between reviewers": e.tied,
        "undecided": e.undecided,
    }
    listed = ", ".join(f"{count:,} {state}" for state, count in states.items() if count or state == "pending")
    pairs = plural(e.run_pairs, "pair")
    scope = f"all {pairs}" if e.pairs == e.run_pairs else f"the {e.pairs:,} of {pairs} that have this round"
    rows = [(name, getattr(e, name).value, getattr(e, name).interval) for name in ("accuracy", "precision", "recall")]
    return build_figure(
        f"{run}: estimates for {scope}, from {plural(e.sampled, 'sampled pair')} ({listed})",
        "\n".join(f"Not yet reviewed: {plural(size, 'pair')} with {name}." for name, size in e.unseen.items()),
        tables=[build_table(("", "estimate", f"{e.level:.0%} interval"), rows)],
    )
