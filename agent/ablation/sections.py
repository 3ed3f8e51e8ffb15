"""The table in parts that fit a terminal: the same columns for people on a screen and in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.ablation.table import AblationTable, McNemar, Row

_NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A heading, and what stands below it for a variant."""

    heading: str
    text: Callable[[Row], str]


@dataclass(frozen=True)
class Section:
    """One part of the table."""

    title: str
    columns: tuple[Column, ...]


def sections(table: AblationTable) -> tuple[Section, ...]:
    """Return the parts of a table; what no row has is left out."""
    agree = (Column("rounds agree", lambda row: _share(row.agreement)),) if table.rounds > 1 else ()
    found = [Section("Labels against gold", (*_LABELS, *agree))]
    if any(row.mcnemar for row in table.rows):
        found.append(Section("Pairs that one of two has right alone (exact McNemar test against full)", _TEST))
    found.append(Section("What a variant takes by itself (calls to seconds: per pair)", _WORK))
    return tuple(found)


def remarks(table: AblationTable) -> list[str]:
    """Return what has to be said of the table: what its figures are, and what they are not."""
    calls, executions = table.calls, table.executions
    told = [table.note] if table.note else []
    gold = f"{table.gold['1']} are a match, {table.gold['0']} are not"
    missing = f"; {table.unlabelled} without gold are left out of the measures" if table.unlabelled else ""
    told.append(f"{table.pairs} pairs, of which by gold {gold}{missing}. Criterion: {table.criterion}.")
    if table.rounds > 1:
        told.append(f"Labels are the majority of {table.rounds} rounds.")
    told.append(
        "A label of null counts as wrong in accuracy; in brackets its Wilson 95% interval. Selective accuracy is that "
        "of the pairs with a label."
    )
    tested = any(row.mcnemar for row in table.rows)
    told.append("p (Holm) is adjusted for all rows." if tested else "No test is made: full is not among the variants.")
    told.append(
        f"{calls['made']} calls were made, beside the replies that the cache had from before; separate runs, each with "
        f"an empty cache, make {calls['separate']}. {executions['made']} of {executions['asked']} executions were "
        "made. Seconds are those of models and executions: waiting, runs on wrong code and repeats are not in them."
    )
    if any(row.seconds_per_pair is None for row in table.rows):
        told.append("Where seconds are missing, a cached reply or an older version's folder does not tell how long.")
    told.append("Accuracy is that of the replies: scripted, replayed or rule-made ones mean nothing for a real model.")
    return told


def _share(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.3f}"


def _accuracy(row: Row) -> str:
    found = row.accuracy
    return _NOTHING if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _number(value: float | None, digits: int) -> str:
    return _NOTHING if value is None else f"{value:,.{digits}f}"


def _cost(row: Row) -> str:
    return "unknown" if row.cost_per_pair is None else f"${row.cost_per_pair:.5f}"


def _of_test(text: Callable[[McNemar], str]) -> Callable[[Row], str]:
    return lambda row: _NOTHING if row.mcnemar is None else text(row.mcnemar)


_VARIANT = Column("variant", lambda row: row.variant)
_LABELS = (
    _VARIANT,
    Column("accuracy [95%]", _accuracy),
    Column("coverage", lambda row: _share(row.coverage)),
    Column("selective", lambda row: _share(row.selective_accuracy)),
    Column("precision", lambda row: _share(row.precision)),
    Column("recall", lambda row: _share(row.recall)),
    Column("F1", lambda row: _share(row.f1)),
    Column("kappa", lambda row: _share(row.kappa)),
    Column("alpha", lambda row: _share(row.alpha)),
)
_TEST = (
    _VARIANT,
    Column("only this", _of_test(lambda test: str(test.only_this_right))),
    Column("only full", _of_test(lambda test: str(test.only_full_right))),
    Column("p", _of_test(lambda test: f"{test.p:.4f}")),
    Column("p (Holm)", _of_test(lambda test: f"{test.p_holm:.4f}")),
    Column("remark", _of_test(lambda test: test.note or "")),
)
_WORK = (
    _VARIANT,
    Column("executed", lambda row: _NOTHING if row.executed_share is None else f"{row.executed_share:.1%}"),
    Column("cases", lambda row: _number(row.cases_per_program, 2)),
    Column("repairs", lambda row: _number(row.repairs_per_pair, 2)),
    Column("calls", lambda row: _number(row.calls_per_pair, 2)),
    Column("tokens", lambda row: _number(row.tokens_per_pair, 0)),
    Column("cost", _cost),
    Column("seconds", lambda row: _number(row.seconds_per_pair, 2)),
    Column("errors", lambda row: str(row.errors)),
)
