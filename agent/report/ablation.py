"""The table of an ablation that stands beside a run, and its accuracies with their intervals drawn."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from agent.ablation.sections import of_calls
from agent.datasets.encoding import loads
from agent.errors import RunFolderError
from agent.report.charts import Block, Dot, Table, block, intervals, table

FILE = "ablation.json"
_SCHEMA = 1


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Interval(_Row):
    """A value with the bounds of its interval."""

    value: float
    low: float
    high: float


class Mcnemar(_Row):
    """A variant against another on the same pairs, and the note where the test cannot tell."""

    against: str = "full"
    only_this_right: int = 0
    # the name it had before any variant could be the one compared with
    only_other_right: int = Field(default=0, validation_alias=AliasChoices("only_other_right", "only_full_right"))
    p: float | None = None
    p_holm: float | None = None
    note: str | None = None


class VariantRow(_Row):
    """One variant's figures; what is undefined is None."""

    variant: str
    title: str | None = None
    paper: str | None = None
    run: str | None = None
    accuracy: Interval | None = None
    coverage: float | None = None
    selective_accuracy: float | None = None
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    kappa: float | None = None
    alpha: float | None = None
    agreement: float | None = None
    executed_share: float | None = None
    cases_per_program: float | None = None
    repairs_per_pair: float | None = None
    calls_per_pair: float | None = None
    tokens_per_pair: float | None = None
    cost_per_pair: float | None = None
    seconds_per_pair: float | None = None
    errors: int | None = None
    mcnemar: Mcnemar | None = None


class Ablation(_Row):
    """What `agent ablate` leaves in `ablation.json`; `gold` counts people's labels, `calls` questions."""

    pairs: int
    gold: dict[str, int] = {}
    note: str | None = None
    calls: dict[str, int] = {}
    rows: tuple[VariantRow, ...] = ()


def read_ablation(path: Path) -> Ablation:
    """Read `ablation.json`.

    Raises:
        RunFolderError: it is damaged or of a newer version.
    """
    try:
        record = loads(path.read_bytes())
        if isinstance(record, dict) and record.get("schema") != _SCHEMA:
            raise RunFolderError(f"{path}: has schema {record.get('schema')}, this version reads {_SCHEMA}")
        return Ablation.model_validate(record)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValidationError, ValueError) as error:
        raise RunFolderError(f"{path}: is damaged ({error}); run `agent ablate` again") from None


def blocks(found: Ablation, shown: str | None = None) -> list[Block]:
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
    text = f"{found.pairs:,} pairs{f' ({gold})' if gold else ''}; a pair without a label counts as wrong; "
    text = f"{found.note or ''} {text}bars are 95% intervals.".lstrip()
    chart = intervals(dots, alt=alt, unit="accuracy", extent=_extent(dots)) if dots else None
    return [
        block("Accuracy of the variants", text, chart, [_quality(found)]),
        block("What the variants do and cost", f"Means per pair. {of_calls(found.calls)}", None, [_effort(found)]),
    ]


def _extent(dots: list[Dot]) -> tuple[float, float]:
    lowest = min(dot.low for dot in dots)
    return max(0.0, lowest - 0.05), min(1.02, max(dot.high for dot in dots) + 0.05)


_MEASURES = {
    "coverage": "coverage", "selective": "selective_accuracy", "precision": "precision", "recall": "recall",
    "F1": "f1", "κ": "kappa", "α": "alpha",
}  # fmt: skip
_ROUNDS = {"rounds agree": "agreement"}


def _quality(found: Ablation) -> Table:
    measures = _MEASURES | (_ROUNDS if any(row.agreement is not None for row in found.rows) else {})
    against = next((row.mcnemar.against for row in found.rows if row.mcnemar is not None), None)
    tests = {} if against is None else {f"against {against}": False}
    columns = {"variant": False, "accuracy": True, **dict.fromkeys(measures, True), **tests}
    rows = [
        [
            _name(row),
            _interval(row.accuracy),
            *(_number(getattr(row, name)) for name in measures.values()),
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


def _effort(found: Ablation) -> Table:
    rows = [
        [row.variant, *(_number(getattr(row, name), form) for name, form in _EFFORT.values())] for row in found.rows
    ]
    return table({"variant": False, **dict.fromkeys(_EFFORT, True)}, rows)


def _name(row: VariantRow) -> str:
    return f"{row.variant} ({row.paper})" if row.paper else row.variant


def _interval(found: Interval | None) -> str:
    return "–" if found is None else f"{found.value:.3f} ({found.low:.3f}–{found.high:.3f})"


def _number(value: float | None, form: str = "{:.3f}") -> str:
    return "–" if value is None else form.format(value)


def _against(found: Mcnemar | None) -> str:
    if found is None:
        return "–"
    told = f"{found.only_this_right} : {found.only_other_right}"
    if found.p_holm is not None:
        told += f", p = {found.p_holm:.3g} (Holm)"
    return f"{told}; {found.note}" if found.note else told
