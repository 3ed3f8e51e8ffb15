"""Renders the ablation table as figures, and as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps
from agent.evaluation.ablation import REFERENCE
from agent.evaluation.ablation_table import AblationTable
from agent.runs.store.files import ABLATION, ABLATION_CSV, ABLATION_MARKDOWN, read_document, replacing
from agent.runs.store.former import update_ablation
from agent.runs.store.manifest import flatten
from agent.text import Figure, build_figure, build_table, escape_markdown, plural, render_markdown
from agent.types import SCHEMA_VERSION

_FORMULA = tuple("=+-@\t\r")
_Columns = Mapping[str, tuple[str, str]]
"""The field of `AblationRow` and the template of each column."""
_LABELS: _Columns = {
    "accuracy [95%]": ("accuracy", "{}"), "coverage": ("coverage", "{:.3f}"),
    "selective": ("selective_accuracy", "{:.3f}"), "precision": ("precision", "{:.3f}"), "recall": ("recall", "{:.3f}"),
    "F1": ("f1", "{:.3f}"), "kappa": ("kappa", "{:.3f}"), "alpha": ("alpha", "{:.3f}"),
}  # fmt: skip
_BETWEEN_ROUNDS: _Columns = {
    "equal outcomes": ("agreement", "{:.3f}"), "Krippendorff's alpha": ("rounds_alpha", "{:.3f}"),
}  # fmt: skip
_WORK: _Columns = {
    "executed": ("executed_share", "{:.1%}"), "cases": ("cases_per_program", "{:.2f}"),
    "repairs": ("repairs_per_pair", "{:,.2f}"), "calls": ("calls_per_pair", "{:,.2f}"),
    "tokens": ("tokens_per_pair", "{:,.0f}"), "cost": ("cost_per_pair", "${:.5f}"),
    "seconds": ("seconds_per_pair", "{:,.2f}"), "errors": ("errors", "{}"),
}  # fmt: skip


def build_sections(table: AblationTable) -> list[Figure]:
    """Return the non-empty sections of a table."""
    work = "Standalone cost of each variant (columns from calls to seconds are per pair)"
    return [
        _build_section(table, "Labels against gold", _LABELS),
        *([_build_section(table, f"Agreement between {table.rounds} rounds", _BETWEEN_ROUNDS)] * (table.rounds > 1)),
        *([_build_tests(table, table.against)] if table.against and any(row.mcnemar for row in table.rows) else []),
        _build_section(table, work, _WORK),
    ]


def _build_section(table: AblationTable, title: str, columns: _Columns) -> Figure:
    rows = [
        (row.variant, *(
            None if (value := getattr(row, name)) is None else template.format(value)
            for name, template in columns.values()
        ))
        for row in table.rows
    ]  # fmt: skip
    return build_figure(title, tables=[build_table(("variant", *columns), rows)])


def _build_tests(table: AblationTable, against: str) -> Figure:
    rows = []
    for row in table.rows:
        test = row.mcnemar
        cells = (
            [test.only_this_right, test.only_other_right, f"{test.p:.4f}", f"{test.p_holm:.4f}", test.note or ""]
            if test
            else [None] * 5
        )
        rows.append([row.variant, *cells])
    columns = ("variant", "only this", f"only {against}", "p", "p (Holm)", "remark")
    title = f"Pairs that only one variant labels correctly (exact McNemar test against {against})"
    return build_figure(title, tables=[build_table(columns, rows, left=["remark"])])


def list_remarks(table: AblationTable) -> list[str]:
    """Return the remarks that readers need to interpret the table."""
    lines = [table.note] if table.note else []
    gold = f"{table.gold['1']:,} match, {table.gold['0']:,} no match"
    without = plural(table.unlabelled, "pair")
    missing = f" The measures exclude {without} without a gold label." if table.unlabelled else ""
    lines.append(f"Pairs: {table.pairs:,}. Gold labels: {gold}.{missing} Criterion: {table.criterion}.")
    if table.rounds > 1:
        lines.append(f"Each label is the majority label of {table.rounds} rounds.")
    calls, executions = table.calls, table.executions
    return [
        *lines,
        "Accuracy counts null labels as wrong. Selective accuracy covers only labelled pairs. Wilson 95% intervals are "
        "in brackets.",
        _describe_tests(table),
        f"The variants requested {plural(calls['requested'], 'model call')}. "
        f"Of these, {calls['executed']:,} went to a model, "
        f"{calls['shared']:,} reused a reply from this ablation, and {calls['cached_before']:,} reused a reply from an "
        "earlier run. If each variant ran separately with an empty cache, the variants would make "
        f"{plural(calls['if_run_alone'], 'call')}.",
        f"The variants requested {plural(executions['requested'], 'execution')}. "
        f"Of these, {executions['executed']:,} ran in a sandbox, "
        f"and {executions['requested'] - executions['executed']:,} reused an earlier result.",
        "The seconds column contains the total duration of model calls and executions, including sentinel runs. It "
        "excludes waiting and package installation.",
        "Accuracy depends on the source of the replies. Scripted, replayed or rule-based replies say nothing about a "
        "real model.",
    ]


def _describe_tests(table: AblationTable) -> str:
    if table.against is None:
        return (
            f"No significance tests were computed, because {REFERENCE} is not among the variants. Choose another "
            "reference variant with --against NAME."
        )
    if len(table.rows) == 1:
        return f"No significance tests were computed, because {table.against} is the only variant."
    return "p (Holm) is adjusted for all tests in the table."


def write_table(folder: Path, table: AblationTable) -> None:
    """Write the table as JSON, CSV and Markdown files. Each file is written atomically.

    Raises:
        StorageError: a file cannot be written. Its previous version is unchanged.
    """
    contents = {
        ABLATION: dumps(as_document(table), indent=True) + b"\n",
        ABLATION_CSV: as_csv(table).encode("utf-8", "replace"),
        ABLATION_MARKDOWN: as_markdown(table).encode("utf-8", "replace"),
    }
    for name, content in contents.items():
        with replacing(folder / name) as draft:
            draft.write_bytes(content)


def as_document(table: AblationTable) -> dict[str, Any]:
    """Return the table as a JSON document that includes the remarks."""
    return {"schema": SCHEMA_VERSION, **table.model_dump(mode="json"), "remarks": list_remarks(table)}


def as_csv(table: AblationTable) -> str:
    """Return the table as CSV with one line per variant. Nested values have columns such as `accuracy.low`."""
    lines = [_flatten_row({**row.model_dump(mode="json"), "note": table.note or ""}) for row in table.rows]
    names = dict.fromkeys(name for line in lines for name in line if name != "note")
    out = io.StringIO()
    writer = csv.DictWriter(out, [*names, "note"], restval="")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def as_markdown(table: AblationTable) -> str:
    """Return the table as Markdown. The remarks come before the sections."""
    notes = "\n".join(f"- {escape_markdown(remark)}" for remark in list_remarks(table))
    return f"# Ablation with {escape_markdown(table.model)}\n\n{notes}\n\n{render_markdown(build_sections(table))}"


def _flatten_row(row: dict[str, Any]) -> dict[str, Any]:
    # a row without a test would otherwise have an additional `mcnemar` column
    leaves = flatten({name: value for name, value in row.items() if name != "mcnemar" or value})
    # text must not start like a spreadsheet formula (OWASP, CSV injection)
    return {
        name: f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
        for name, value in leaves.items()
    }


def read_ablation(path: Path) -> AblationTable:
    """Read `ablation.json`.

    Raises:
        RunFolderError: the file is missing or damaged, or has another schema version.
    """
    remedy = "Remove it and run `agent ablate` again."
    return read_document(path, AblationTable, expected="an ablation table", remedy=remedy, update=update_ablation)
