"""Renders the ablation table as sections for a terminal, and as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps
from agent.evaluation.ablation import REFERENCE
from agent.evaluation.ablation_table import AblationRow, AblationTable, McNemar
from agent.runs.store.files import ABLATION, ABLATION_CSV, ABLATION_MARKDOWN, read_document, replacing
from agent.runs.store.former import update_ablation
from agent.runs.store.manifest import flatten
from agent.text import plural
from agent.types import SCHEMA_VERSION

# heading of the only column that contains prose
REMARK = "remark"
_FORMULA = tuple("=+-@\t\r")


@dataclass(frozen=True)
class Column:
    """A column with a heading and a function that renders its cell for a row."""

    heading: str
    text: Callable[[AblationRow], str]


@dataclass(frozen=True)
class Section:
    """A section of the table."""

    title: str
    columns: tuple[Column, ...]


def build_sections(table: AblationTable) -> tuple[Section, ...]:
    """Return the non-empty sections of a table."""
    parts = [Section("Labels against gold", _LABELS)]
    if table.rounds > 1:
        parts.append(Section(f"Agreement between {table.rounds} rounds", _BETWEEN_ROUNDS))
    if table.against is not None and any(row.mcnemar for row in table.rows):
        title = f"Pairs that only one variant labels correctly (exact McNemar test against {table.against})"
        parts.append(Section(title, _test_columns(table.against)))
    parts.append(Section("Standalone cost of each variant (columns from calls to seconds are per pair)", _WORK))
    return tuple(parts)


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


def _make_column(heading: str, name: str, template: str = "{:.3f}", missing: str = "–") -> Column:
    def text(row: AblationRow) -> str:
        value = getattr(row, name)
        return missing if value is None else template.format(value)

    return Column(heading, text)


def _test_columns(name: str) -> tuple[Column, ...]:
    def column(heading: str, text: Callable[[McNemar], str]) -> Column:
        return Column(heading, lambda row: "–" if row.mcnemar is None else text(row.mcnemar))

    return (
        _VARIANT,
        column("only this", lambda test: str(test.only_this_right)),
        column(f"only {name}", lambda test: str(test.only_other_right)),
        column("p", lambda test: f"{test.p:.4f}"),
        column("p (Holm)", lambda test: f"{test.p_holm:.4f}"),
        column(REMARK, lambda test: test.note or ""),
    )


_VARIANT = _make_column("variant", "variant", "{}")
_LABELS = (
    _VARIANT,
    _make_column("accuracy [95%]", "accuracy", "{0.value:.3f} [{0.low:.3f}, {0.high:.3f}]"),
    _make_column("coverage", "coverage"),
    _make_column("selective", "selective_accuracy"),
    _make_column("precision", "precision"),
    _make_column("recall", "recall"),
    _make_column("F1", "f1"),
    _make_column("kappa", "kappa"),
    _make_column("alpha", "alpha"),
)
_WORK = (
    _VARIANT,
    _make_column("executed", "executed_share", "{:.1%}"),
    _make_column("cases", "cases_per_program", "{:.2f}"),
    _make_column("repairs", "repairs_per_pair", "{:,.2f}"),
    _make_column("calls", "calls_per_pair", "{:,.2f}"),
    _make_column("tokens", "tokens_per_pair", "{:,.0f}"),
    _make_column("cost", "cost_per_pair", "${:.5f}", "unknown"),
    _make_column("seconds", "seconds_per_pair", "{:,.2f}"),
    _make_column("errors", "errors", "{}"),
)
_BETWEEN_ROUNDS = (
    _VARIANT,
    _make_column("equal outcomes", "agreement"),
    _make_column("Krippendorff's alpha", "rounds_alpha"),
)


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
    notes = "\n".join(f"- {_one_line(remark)}" for remark in list_remarks(table))
    parts = "\n\n".join(_render_section(section, table) for section in build_sections(table))
    return f"# Ablation with {_one_line(table.model)}\n\n{notes}\n\n{parts}\n"


def _flatten_row(row: dict[str, Any]) -> dict[str, Any]:
    # a row without a test would otherwise have an additional `mcnemar` column
    leaves = flatten({name: value for name, value in row.items() if name != "mcnemar" or value})
    # text must not start like a spreadsheet formula (OWASP, CSV injection)
    return {
        name: f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
        for name, value in leaves.items()
    }


def _render_section(section: Section, table: AblationTable) -> str:
    columns = section.columns
    lines = [
        [column.heading for column in columns],
        ["---"] * len(columns),
        *([column.text(row) for column in columns] for row in table.rows),
    ]
    cells = "\n".join(f"| {' | '.join(map(_one_line, line))} |" for line in lines)
    return f"## {_one_line(section.title)}\n\n{cells}"


def _one_line(text: str) -> str:
    return re.sub(r"([\\|<>`*_\[\]#])", r"\\\1", " ".join(text.split()))


def read_ablation(path: Path) -> AblationTable:
    """Read `ablation.json`.

    Raises:
        RunFolderError: the file is missing or damaged, or has another schema version.
    """
    remedy = "Remove it and run `agent ablate` again."
    return read_document(path, AblationTable, expected="an ablation table", remedy=remedy, update=update_ablation)
