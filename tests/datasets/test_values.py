"""One rule for labels and one for grades, whatever the file format and whichever command reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets as huggingface
import pyarrow
import pyarrow.parquet
import pytest

from agent.corpus.labelled import read_labelled
from agent.datasets.reading import read_pairs
from agent.datasets.values import parse_grade, parse_id, parse_label
from agent.errors import InputError
from agent.evaluation.labels import read_gold, read_labels
from agent.retrieval.benchmark import open_benchmark

FORMS = [
    (1, [1, 1.0, True, "1", "1.0", "true", "YES", " yes ", "match", "relevant"]),
    (0, [0, 0.0, False, "0", "0.0", "False", "no", "no_match", "No match", "irrelevant"]),
    (None, [None, "", " ", "null", "NaN", float("nan")]),
]
INVALID: list[tuple[Callable[[Any], object], list[Any]]] = [
    (parse_label, [2, -1, 0.5, "maybe", "2", "1 1", [1], {"label": 1}, float("inf"), 10**30, "one"]),
    (parse_grade, [0.5, "0.5", 101, "x", None, "", float("nan"), float("inf"), 10**400, [2], {}]),
    (parse_id, [True, 1.0, "", None, ["a"]]),
]
ONES = {"1": 1, "2": 0, "3": None}


@pytest.mark.parametrize(("label", "value"), [(label, value) for label, values in FORMS for value in values])
def test_a_label_has_many_forms(label: int | None, value: Any) -> None:
    assert parse_label(value) == label
    if label is not None:
        assert parse_grade(value) == label


def test_grades_are_whole_numbers_in_any_form_and_ids_keep_their_form() -> None:
    values: list[Any] = [2, 2.0, "2", "2.0", " 3 ", -1, "-1", 100]
    assert list(map(parse_grade, values)) == [2, 2, 2, 2, 3, -1, -1, 100]
    assert (parse_id("007"), parse_id(7)) == ("007", "7")


@pytest.mark.parametrize(("parse", "value"), [(parse, value) for parse, values in INVALID for value in values])
def test_any_other_value_is_refused(parse: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(ValueError, match=r"0, 1|whole number"):
        parse(value)


def read_benchmark_labels(path: Path) -> dict[str, int | None]:
    benchmark = open_benchmark(path)
    return {query: next(iter(benchmark.grades.get(query, {}).values()), None) for query in benchmark.queries}


READERS: dict[str, Callable[[Path], dict[str, int | None]]] = {
    "gold": lambda path: {**ONES, **dict.fromkeys(ONES), **read_gold(path).labels},
    "labels": lambda path: dict(read_labels(path)[0][0].labels),
    "pairs": lambda path: {item.pair.id: item.label for item in read_labelled(path)},
    "benchmark": read_benchmark_labels,
}
reading = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)


def write_rows(path: Path, labels: list[Any]) -> Path:
    rows = [{"id": n, "query": f"q{n}", "code": f"c{n}", "label": label} for n, label in enumerate(labels, start=1)]
    if path.suffix == ".csv":
        cells = [["" if value is None else str(value) for value in row.values()] for row in rows]
        path.write_text("".join(",".join(line) + "\n" for line in [list(rows[0]), *cells]))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@reading
@pytest.mark.parametrize("labels", [[1, 0, None], [1.0, 0.0, None], [True, False, None], ["Yes", "no", " "]])
@pytest.mark.parametrize("name", ["p.jsonl", "p.csv"])
def test_all_commands_read_the_same_labels(
    reader: Callable[[Path], Any], labels: list[Any], name: str, tmp_path: Path
) -> None:
    assert reader(write_rows(tmp_path / name, labels)) == ONES


@reading
def test_a_bad_label_is_located_by_all_commands(reader: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"p\.jsonl:2: 'label' is 'maybe'"):
        reader(write_rows(tmp_path / "p.jsonl", [1, "maybe", 0]))


def make_class_labels(names: list[str], labels: list[int]) -> huggingface.Dataset:
    texts = {name: huggingface.Value("string") for name in ("id", "query", "code")}
    kinds = huggingface.Features(
        {**texts, "label": huggingface.ClassLabel(names=names), "votes": [huggingface.ClassLabel(names=names)]}
    )
    numbers = range(1, len(labels) + 1)
    columns = {name: [f"{name[0]}{n}" if name != "id" else str(n) for n in numbers] for name in texts}
    votes = [[label, max(label, 0)] for label in labels]
    return huggingface.Dataset.from_dict({**columns, "label": labels, "votes": votes}, features=kinds)


@reading
@pytest.mark.parametrize("form", ["p.parquet", "saved", "hub"])
@pytest.mark.parametrize("names", [["match", "no_match"], ["1", "0"], ["relevant", "irrelevant"]])
def test_a_class_label_is_read_by_its_name(
    reader: Callable[[Path], Any], form: str, names: list[str], tmp_path: Path
) -> None:
    dataset = make_class_labels(names, [0, 1, -1])
    if reader is READERS["labels"]:
        dataset = dataset.remove_columns("votes")
    if form == "saved":
        dataset.save_to_disk(tmp_path / form)
    else:
        file = tmp_path / (form if form == "p.parquet" else "hub/data/train.parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        dataset.to_parquet(file)
    assert reader(tmp_path / form) == ONES


def test_names_of_nested_class_labels_are_read_and_unknown_names_are_refused(tmp_path: Path) -> None:
    make_class_labels(["good", "bad"], [0, 1]).to_parquet(tmp_path / "p.parquet")
    dataset = read_pairs(tmp_path / "p.parquet")
    assert [pair.meta["votes"] for pair in dataset] == [["good", "good"], ["bad", "bad"]]
    with pytest.raises(InputError, match=r"p\.parquet:1: 'label' is 'good'.*--map"):
        dataset.read_label(dataset[0])


@pytest.mark.parametrize("metadata", [b"", b"[", b"[" * 100_000, b'{"info": 3}', b'{"info": {"features": [1]}}'])
def test_malformed_metadata_of_class_labels_are_ignored(tmp_path: Path, metadata: bytes) -> None:
    table = pyarrow.table({"query": ["q"], "code": ["c"], "label": [1]})
    pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": metadata}), tmp_path / "p.parquet")
    assert [pair.meta for pair in read_pairs(tmp_path / "p.parquet")] == [{"label": 1}]


def test_a_class_label_without_a_name_is_a_bad_row(tmp_path: Path) -> None:
    features = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["no"]}}}}
    table = pyarrow.table({"query": ["q"], "code": ["c"], "label": [1]})
    schema = {"huggingface": json.dumps(features)}
    pyarrow.parquet.write_table(table.replace_schema_metadata(schema), tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"row 1: column 'label'"):
        read_pairs(tmp_path / "p.parquet")
