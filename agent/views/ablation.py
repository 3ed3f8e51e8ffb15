"""The table of an ablation that stands beside a run, and its accuracies with their intervals drawn."""

from __future__ import annotations

from agent.evaluation.ablation_table import AblationTable, McNemar, Row, Share
from agent.evaluation.ablation_text import of_calls
from agent.views.charts import Block, Dot, Table, block, intervals, table
from agent.wording import counted


def blocks(found: AblationTable, shown: str | None = None) -> list[Block]:
    """Return the accuracies drawn and all figures in tables; `shown` is the variant whose run the page is about."""
    if not found.rows:
        return []
    gold = ", ".join(f"{count:,} labelled {label}" for label, count in found.gold.items())
    dots = [
        Dot(row.variant, row.accuracy.value, row.accuracy.low, row.accuracy.high,
            "accent" if row.variant == shown else "accent-2")
        for row in found.rows if row.accuracy is not None
    ]  # fmt: skip
    alt = "Accuracy with its 95% interval. " + "; ".join(
        f"{dot.name} {dot.value:.3f}, {dot.low:.3f} to {dot.high:.3f}" for dot in dots
    )
    text = f"{counted(found.pairs, 'pair')}{f' ({gold})' if gold else ''}; a pair without a label counts as wrong; "
    text = f"{found.note or ''} {text}bars are 95% intervals.".lstrip()
    chart = intervals(dots, alt=alt, unit="accuracy", extent=_extent(dots)) if dots else None
    return [
        block("Accuracy of the variants", text, chart, [_quality(found), *_rounds(found)]),
        block(
            "What the variants do and cost",
            f"Means per pair. {of_calls(found.calls)}",
            None,
            [_effort(found), *_checked(found)],
        ),
    ]


def _extent(dots: list[Dot]) -> tuple[float, float]:
    lowest = min(dot.low for dot in dots)
    return max(0.0, lowest - 0.05), min(1.02, max(dot.high for dot in dots) + 0.05)


_MEASURES = {
    "coverage": "coverage", "selective": "selective_accuracy", "precision": "precision", "recall": "recall",
    "F1": "f1", "κ": "kappa", "α": "alpha",
}  # fmt: skip


def _quality(found: AblationTable) -> Table:
    against = next((row.mcnemar.against for row in found.rows if row.mcnemar is not None), None)
    tests = {} if against is None else {f"against {against}": False}
    columns = {"variant": False, "accuracy": True, **dict.fromkeys(_MEASURES, True), **tests}
    rows = [
        [
            _name(row),
            _interval(row.accuracy),
            *(_number(getattr(row, name)) for name in _MEASURES.values()),
            *(_against(row.mcnemar) for _ in tests),
        ]
        for row in found.rows
    ]
    return table(columns, rows)


_EFFORT = {
    "programs that ran": ("executed_share", "{:.1%}"), "cases": ("cases_per_program", "{:.1f}"),
    "repairs": ("repairs_per_pair", "{:.2f}"), "calls": ("calls_per_pair", "{:.2f}"),
    "tokens": ("tokens_per_pair", "{:,.0f}"), "cost": ("cost_per_pair", "${:.5f}"),
    "seconds": ("seconds_per_pair", "{:.2f}"), "errors": ("errors", "{:,}"),
}  # fmt: skip


def _effort(found: AblationTable) -> Table:
    rows = [
        [row.variant, *(_number(getattr(row, name), form) for name, form in _EFFORT.values())] for row in found.rows
    ]
    return table({"variant": False, **dict.fromkeys(_EFFORT, True)}, rows)


def _rounds(found: AblationTable) -> list[Table]:
    rows = [
        [row.variant, _number(row.agreement), _number(row.rounds_alpha)]
        for row in found.rows
        if row.agreement is not None
    ]
    return [table({"variant": False, "two rounds end alike": True, "α between rounds": True}, rows)] if rows else []


def _checked(found: AblationTable) -> list[Table]:
    rows = [
        [row.variant, *(_number(each, "{:,}") for each in (row.tests_checked, row.tests_vacuous)),
         _number(row.mean_strength, "{:.2f}")]
        for row in found.rows if row.tests_checked
    ]  # fmt: skip
    columns = ("tests tried on wrong code", "prove nothing", "mean strength")
    return [table({"variant": False, **dict.fromkeys(columns, True)}, rows)] if rows else []


def _name(row: Row) -> str:
    return f"{row.variant} ({row.paper})" if row.paper else row.variant


def _interval(found: Share | None) -> str:
    return "–" if found is None else f"{found.value:.3f} ({found.low:.3f}–{found.high:.3f})"


def _number(value: float | None, form: str = "{:.3f}") -> str:
    return "–" if value is None else form.format(value)


def _against(found: McNemar | None) -> str:
    if found is None:
        return "–"
    counts = f"{found.only_this_right} : {found.only_other_right}, p = {found.p_holm:.3g} (Holm)"
    return f"{counts}; {found.note}" if found.note else counts
