"""The ablation table for readers: in parts that fit a terminal, as JSON, CSV and Markdown."""

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
from agent.store.files import ABLATION, ABLATION_CSV, ABLATION_MARKDOWN, read_document, replacing
from agent.store.manifest import flatten
from agent.types import SCHEMA_VERSION
from agent.wording import plural

# the heading of the one column that holds sentences
REMARK = "remark"
_FORMULA = tuple("=+-@\t\r")


@dataclass(frozen=True)
class Column:
    """A heading, and what stands below it for a variant."""

    heading: str
    text: Callable[[AblationRow], str]


@dataclass(frozen=True)
class Section:
    """One part of the table."""

    title: str
    columns: tuple[Column, ...]


def build_sections(table: AblationTable) -> tuple[Section, ...]:
    """Return the parts of a table; what no row has is left out."""
    parts = [Section("Labels against gold", _LABELS)]
    if table.rounds > 1:
        parts.append(Section(f"Agreement between {table.rounds} rounds", _BETWEEN_ROUNDS))
    if table.against is not None and any(row.mcnemar for row in table.rows):
        title = f"Pairs that one of two has right alone (exact McNemar test against {table.against})"
        parts.append(Section(title, _tested_against(table.against)))
    parts.append(Section("What a variant takes by itself (calls to seconds: per pair)", _WORK))
    if any(row.tests_checked for row in table.rows):
        parts.append(Section("Tests that passed, tried on mutants", _CHECKED))
    return tuple(parts)


def list_remarks(table: AblationTable) -> list[str]:
    """Return what has to be said of the table: what its figures are, and what they are not."""
    said = [table.note] if table.note else []
    gold = f"{table.gold['1']:,} match and {table.gold['0']:,} no match"
    missing = f"; the measures leave out {table.unlabelled:,} without gold" if table.unlabelled else ""
    said.append(f"{plural(table.pairs, 'pair')}; by gold {gold}{missing}. Criterion: {table.criterion}.")
    if table.rounds > 1:
        said.append(f"Labels are the majority of {table.rounds} rounds.")
    calls, runs, made = table.calls, plural(table.executions["asked"], "run"), table.executions["made"]
    return [
        *said,
        "A label of null counts as wrong in accuracy; in brackets its Wilson 95% interval. Selective accuracy is that "
        "of the pairs with a label.",
        _of_tests(table),
        f"Of {plural(calls['asked'], 'question')}, {calls['made']:,} went to a model, {calls['shared']:,} repeated "
        f"one of these, and the cache had the answers to {calls['earlier']:,} from before. Separate runs, each with an "
        f"empty cache, make {plural(calls['separate'], 'call')}. Of {runs} of programs {made:,} took place, the "
        "others share their results. Seconds add up model calls and all runs of programs, those on mutants and repeats "
        "among them; waiting and installing are not in them.",
        "Accuracy is that of the replies: scripted, replayed or rule-made ones mean nothing for a real model.",
    ]


def _of_tests(table: AblationTable) -> str:
    if table.against is None:
        return f"No test is made: {REFERENCE} is not among the variants; --against NAME takes another in its place."
    if len(table.rows) == 1:
        return f"No test is made: there is no variant beside {table.against}."
    return "p (Holm) is adjusted for all rows."


def _column(heading: str, name: str, form: str = "{:.3f}", nothing: str = "–") -> Column:
    """Return the column of a row's field; `nothing` stands where it is undefined."""

    def text(row: AblationRow) -> str:
        value = getattr(row, name)
        return nothing if value is None else form.format(value)

    return Column(heading, text)


def _tested_against(name: str) -> tuple[Column, ...]:
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


_VARIANT = _column("variant", "variant", "{}")
_LABELS = (
    _VARIANT,
    _column("accuracy [95%]", "accuracy", "{0.value:.3f} [{0.low:.3f}, {0.high:.3f}]"),
    _column("coverage", "coverage"),
    _column("selective", "selective_accuracy"),
    _column("precision", "precision"),
    _column("recall", "recall"),
    _column("F1", "f1"),
    _column("kappa", "kappa"),
    _column("alpha", "alpha"),
)
_WORK = (
    _VARIANT,
    _column("executed", "executed_share", "{:.1%}"),
    _column("cases", "cases_per_program", "{:.2f}"),
    _column("repairs", "repairs_per_pair", "{:,.2f}"),
    _column("calls", "calls_per_pair", "{:,.2f}"),
    _column("tokens", "tokens_per_pair", "{:,.0f}"),
    _column("cost", "cost_per_pair", "${:.5f}", "unknown"),
    _column("seconds", "seconds_per_pair", "{:,.2f}"),
    _column("errors", "errors", "{}"),
)
_BETWEEN_ROUNDS = (
    _VARIANT,
    _column("two end alike", "agreement"),
    _column("Krippendorff's alpha", "rounds_alpha"),
)


_CHECKED = (
    _VARIANT,
    Column("tried", lambda row: f"{row.tests_checked:,}" if row.tests_checked else "–"),
    Column("prove nothing", lambda row: f"{row.tests_vacuous:,}" if row.tests_checked else "–"),
    _column("mean strength", "mean_strength", "{:.2f}"),
)


def write_table(folder: Path, table: AblationTable) -> None:
    """Write the three files, each replaced in one step.

    Raises:
        StorageError: one cannot be written; the old one is whole.
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
    """Return the table as JSON keeps it, with what has to be said of it."""
    return {"schema": SCHEMA_VERSION, **table.model_dump(mode="json"), "remarks": list_remarks(table)}


def as_csv(table: AblationTable) -> str:
    """Return a line per variant; nested values have columns such as `accuracy.low`. No text is a formula."""
    lines = [_flat({**row.model_dump(mode="json"), "note": table.note or ""}) for row in table.rows]
    names = dict.fromkeys(name for line in lines for name in line if name != "note")
    out = io.StringIO()
    writer = csv.DictWriter(out, [*names, "note"], restval="")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def as_markdown(table: AblationTable) -> str:
    """Return the table in its parts, what has to be said of it first."""
    said = "\n".join(f"- {_one_line(remark)}" for remark in list_remarks(table))
    parts = "\n\n".join(_markdown(section, table) for section in build_sections(table))
    return f"# Ablation, {_one_line(table.model)}\n\n{said}\n\n{parts}\n"


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    # an absent group of values would be a column of its own
    leaves = flatten({name: value for name, value in row.items() if name != "mcnemar" or value})
    # no text is to start as a formula does (OWASP, CSV injection)
    return {
        name: f"'{each}" if str(each).startswith(_FORMULA) and isinstance(each, str) else each
        for name, each in leaves.items()
    }


def _markdown(section: Section, table: AblationTable) -> str:
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
        RunFolderError: it is damaged or of another version.
        FileNotFoundError: there is none.
    """
    remedy = "Remove it and run `agent ablate` again."
    return read_document(path, AblationTable, expected="the table of an ablation", remedy=remedy)
