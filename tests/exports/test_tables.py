"""Tests that JSON Lines, CSV and Parquet exports contain the same rows."""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings

from agent.datasets.reading import read_pairs
from agent.errors import ExtraMissing, InputError, UsageError
from agent.exports.rows import MODULE_COLUMNS, RESULT_COLUMNS, ColumnKind, Export, as_cell
from agent.types import ErrorInfo, ModuleContext, Origin, Pair, Status
from agent.types import TestReport as Report
from tests.datasets.test_pair_store import hostile_text, pair_lists
from tests.exports.runs import export_run, make_run, read_lines
from tests.views.runs import HOSTILE

TYPES = {"integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}


def read_csv(path: Path, columns: dict[str, ColumnKind]) -> list[dict[str, Any]]:
    """Read CSV as documented: an empty cell is null, and "" is an empty text."""
    options = pa.csv.ConvertOptions(
        column_types={name: TYPES.get(kind, pa.string()) for name, kind in columns.items()},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    rows: list[dict[str, Any]] = pa.csv.read_csv(path, parse_options=parse, convert_options=options).to_pylist()
    return rows


def export_tables(folder: Path, run: Path) -> tuple[Export, list[dict[str, Any]]]:
    """Export a run to all three formats, check that the rows are equal, and return them."""
    for format_name in ("jsonl", "csv", "parquet"):
        export = export_run(run, format_name, folder / format_name)
    columns = export.columns
    written = [orjson.loads(line) for line in (folder / "jsonl").read_bytes().splitlines()]
    rows = [
        {name: as_cell(row.get(name), kind) for name, kind in columns.items()} for row in read_lines(folder / "jsonl")
    ]
    assert len(written) == len(rows)
    table = pa.parquet.read_table(folder / "parquet")
    assert table.column_names == list(columns)
    assert table.to_pylist() == rows
    assert read_csv(folder / "csv", columns) == rows
    with (folder / "csv").open(encoding="utf-8", newline="") as file:
        head, *cells = csv.reader(file)
    assert head == list(columns)
    for name, texts in zip(head, zip(*cells, strict=True), strict=True):
        if columns[name] in ("text", "json"):
            assert list(texts) == [row[name] or "" for row in rows]
    return export, rows


@pytest.mark.slow
@settings(max_examples=25)
@given(pairs=pair_lists, reason=hostile_text)
def test_hostile_pairs_have_the_same_rows_in_all_formats(pairs: list[Pair], reason: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, rows = export_tables(folder, make_run(folder / "run", pairs, {"reason": reason}))
        for pair, row, line in zip(pairs, rows, read_lines(folder / "jsonl"), strict=True):
            # adjacent halves of a surrogate pair are read as one character
            texts = {"id": pair.id, "query": pair.query, "code": pair.code, "context": pair.context, "reason": reason}
            assert {name: row.get(name) for name in texts} == {name: normalise(text) for name, text in texts.items()}
            optional = (pair.context is not None) + (pair.origin is not None)
            assert len(line) == 4 + optional + len(pair.meta) + len(RESULT_COLUMNS)


def normalise(text: str | None) -> str | None:
    if text is None:
        return None
    combined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return combined.encode("utf-8", "backslashreplace").decode("utf-8")


def make_pairs(*metas: dict[str, Any]) -> Iterator[Pair]:
    for number, meta in enumerate(metas):
        yield Pair(id=str(number), query=f"q{number}", code="pass", meta=meta)


def test_input_fields_come_before_results(tmp_path: Path) -> None:
    pairs = [
        Pair(id="a", query="q", code="c", meta={"year": 2020}),
        Pair(id="b", query="q", code="c", language="sql", context="seen", meta={"by": "me"}),
    ]
    test = Report(status=Status.FAILED)
    annotations = {
        "a": {"label": 0, "decided_by": "arbitrate", "reason": "no", "test": test},
        "b": {"label": None, "decided_by": None, "reason": "", "error": ErrorInfo(type="ReplyError", message="none")},
    }
    export, rows = export_tables(tmp_path, make_run(tmp_path / "run", pairs, annotations))
    assert list(export.columns) == ["id", "query", "code", "language", "context", "year", "by", *RESULT_COLUMNS]
    outcomes = [tuple(row[name] for name in RESULT_COLUMNS) for row in rows]
    assert outcomes == [(0, "no", "arbitrate", "failed", None), (None, "", None, None, "ReplyError")]
    assert list(read_lines(tmp_path / "jsonl")[0]) == ["id", "query", "code", "language", "year", *RESULT_COLUMNS]


def test_input_fields_with_reserved_names_get_a_prefix(tmp_path: Path) -> None:
    metas = {"label": 0, "input_label": "x", "query": "other", "input_year": 1, "origin": "here"}
    export, rows = export_tables(tmp_path, make_run(tmp_path / "run", make_pairs(metas)))
    names = ["input_label", "input_input_label", "input_query", "input_year", "origin"]
    assert list(export.columns) == ["id", "query", "code", "language", *names, *RESULT_COLUMNS]
    assert [rows[0][name] for name in names] == [0, "x", "other", 1, "here"]
    assert (rows[0]["query"], rows[0]["label"]) == ("q0", 1)


def test_columns_of_mixed_kinds_are_json(tmp_path: Path) -> None:
    metas = (
        {"whole": 1, "mixed": 1, "share": 1, "flag": True, "list": [1, "\ud800"], "large": 2**63, "none": None},
        {"whole": -(2**63), "mixed": "1", "share": 0.5, "flag": False, "list": None, "large": 1},
        {"whole": None, "mixed": True},
    )
    export, rows = export_tables(tmp_path, make_run(tmp_path / "run", make_pairs(*metas)))
    kinds = {name: kind for name, kind in export.columns.items() if name in metas[0]}
    assert kinds == {
        "whole": "integer",
        "mixed": "json",
        "share": "number",
        "flag": "flag",
        "list": "json",
        "large": "json",
        "none": "text",
    }
    assert [[row[name] for name in kinds] for row in rows] == [
        [1, "1", 1.0, True, '[1,"\\\\ud800"]', str(2**63), None],
        [-(2**63), '"1"', 0.5, False, None, "1", None],
        [None, "true", None, None, None, None, None],
    ]


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet", "hf"])
def test_an_export_can_be_read_as_input(tmp_path: Path, name: str) -> None:
    pairs = [
        Pair(id="=1", query=f"{HOSTILE}\r\n", code=f'"{HOSTILE},\n\t', meta={"label": 0}),
        Pair(id="=1+1", query="+1", code='=cmd|"/c calc"!A1\r\n@x\t-1\x00,"'),
        Pair(id="\ud800", query="'q'", code="\rdef f(): ...\n\n", language="sql", context="seen"),
    ]
    export_run(make_run(tmp_path / "run", pairs), name.removeprefix("out."), tmp_path / name)
    exported_pairs = list(read_pairs(tmp_path / name))
    assert [(pair.id, pair.query, pair.code, pair.language, pair.context) for pair in exported_pairs] == [
        tuple(map(normalise, (pair.id, pair.query, pair.code, pair.language, pair.context))) for pair in pairs
    ]
    assert exported_pairs[0].meta["label"] in (1, "1")
    assert exported_pairs[0].meta["input_label"] in (0, "0")


def test_origins_and_modules_are_exported_and_origins_can_be_read_again(tmp_path: Path) -> None:
    origin = Origin(repository="pack", commit="1.0", name="f", module="pack.\ud800", class_name="A", lines=(1, 2))
    pairs = [pair.model_copy(update={"origin": origin}) for pair in make_pairs({"origin": "mine"}, {}, {})]
    alone = {"module_context": ModuleContext(reason="no wheel: pack 1.0")}
    fields = {"0": {"module_context": ModuleContext(module="pack.a")}, "1": alone, "2": {}}
    run = make_run(tmp_path / "run", pairs, fields, pipeline={"context": "module"})
    export, rows = export_tables(tmp_path, run)
    assert list(export.columns)[-2:] == list(MODULE_COLUMNS)
    assert [[row[name] for name in MODULE_COLUMNS] for row in rows] == [
        ["pack.a", None], [None, "no wheel: pack 1.0"], [None, None]
    ]  # fmt: skip
    (tmp_path / "jsonl").rename(tmp_path / "out.jsonl")
    first, *_ = read_pairs(tmp_path / "out.jsonl")
    assert first.origin == origin.model_copy(update={"module": "pack.\\ud800"})
    assert first.meta["input_origin"] == "mine"


def make_vote(label: int | str | None, reason: str) -> dict[str, Any]:
    if label == "error":
        return {"label": None, "decided_by": None, "reason": "", "error": ErrorInfo(type="ReplyError", message="none")}
    return {"label": label, "decided_by": "arbitrate", "reason": reason}


def test_a_pair_with_several_rounds_has_the_majority_label(tmp_path: Path) -> None:
    votes = {"a": (0, 1, 0), "b": (0, 1, "error"), "c": (None, None, None)}
    rounds = [
        {pair: make_vote(labels[number], f"{pair}{number}") for pair, labels in votes.items()} for number in range(3)
    ]
    pairs = [Pair(id=name, query="q", code="c") for name in votes]
    _, rows = export_tables(tmp_path, make_run(tmp_path / "run", pairs, *rounds))
    decisions = [(row["label"], row["decided_by"], row["reason"]) for row in rows]
    assert decisions == [(0, "arbitrate", "a0"), (None, None, ""), (None, "arbitrate", "c0")]
    assert [row["label"] for row in rows] == [line["label"] for line in read_lines(tmp_path / "run/labels.jsonl")]


def test_pairs_without_annotation_are_not_exported(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_pairs({}, {}, {}))
    first_lines = (run / "annotations.jsonl").read_bytes().splitlines(keepends=True)[:2]
    (run / "annotations.jsonl").write_bytes(b"".join(first_lines))
    export, rows = export_tables(tmp_path, run)
    assert [row["id"] for row in rows] == ["0", "1"]
    assert export.left_out == {"not annotated yet": 1}
    (run / "annotations.jsonl").write_bytes(b"")
    with pytest.raises(UsageError, match="3 not annotated yet"):
        export_run(run, "csv", tmp_path / "none")


def test_two_fields_with_the_same_escaped_name_are_rejected(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_pairs({"\ud800": 1, "\\ud800": 2}))
    for format_name in ("jsonl", "csv", "parquet"):
        with pytest.raises(InputError, match="pair '0'"):
            export_run(run, format_name, tmp_path / format_name)
        assert not (tmp_path / format_name).exists()


@pytest.mark.parametrize("format_name", ["parquet", "hf"])
def test_without_pyarrow_the_error_names_the_extra_and_no_file_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    run = make_run(tmp_path / "run", make_pairs({}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExtraMissing, match=r"test-driven-annotator\[io\]"):
        export_run(run, format_name, tmp_path / format_name)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
