"""Programs may pass pairs as mappings, DataFrames, iterators and datasets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas
import pytest

from agent import Pair, read_pairs
from agent.datasets.fields import as_pairs
from agent.errors import ConfigError, InputError, UsageError
from agent.types import Origin

ROW = {"query": "add", "code": "def add(): pass", "votes": 3}
PLACE = {"repository": "p", "commit": "1", "name": "f"}
PAIR = Pair(id="1", query="add", code="def add(): pass", meta={"votes": 3})


@pytest.mark.parametrize("row", [ROW, MappingProxyType(ROW), PAIR])
def test_other_fields_of_a_mapping_go_to_meta(row: Any) -> None:
    assert as_pairs([row]) == [PAIR]


@pytest.mark.parametrize(
    ("value", "origin"),
    [
        (PLACE, Origin(repository="p", commit="1", name="f")),
        ({**PLACE, "class": "A", "module": None}, Origin(repository="p", commit="1", name="f", class_name="A")),
        *((value, None) for value in ({"name": "f"}, {**PLACE, "stars": 3}, "a/b", str(PLACE), None)),
    ],
)
def test_an_origin_has_the_fields_of_a_function_and_other_values_stay_in_meta(value: Any, origin: Any) -> None:
    (pair,) = as_pairs([{**ROW, "origin": value}])  # type: ignore[misc]
    assert (pair.origin, pair.meta) == (origin, {"votes": 3} if origin else {"votes": 3, "origin": value})
    (pair,) = as_pairs([{**ROW, "meta": {"origin": value}}])  # type: ignore[misc]
    assert (pair.origin, pair.meta["origin"]) == (None, value)


def test_an_iterator_is_converted_lazily() -> None:
    rows = iter([ROW, {**ROW, "id": "b"}, {}])
    pairs = iter(as_pairs(rows))  # type: ignore[call-overload]
    assert next(pairs) == PAIR
    assert next(rows)["id"] == "b"


async def test_an_asynchronous_iterator_is_converted() -> None:
    async def rows() -> AsyncIterator[dict[str, Any]]:
        yield ROW
        yield {**ROW}

    pairs = [pair async for pair in as_pairs(rows())]  # type: ignore[union-attr]
    assert [pair.id for pair in pairs] == ["1", "2"]


def test_each_row_of_a_dataframe_is_a_pair_and_missing_values_are_none() -> None:
    frame = pandas.DataFrame({"id": [3, 4], "query": "a", "code": "x", "language": ["sql", None], "n": [1, None]})
    first, second = as_pairs(frame.set_index(pandas.Index([10, 11])))  # type: ignore[misc]
    assert (first.id, first.language, first.meta) == ("3", "sql", {"n": 1})
    assert (second.id, second.language, second.meta["n"]) == ("4", "python", None)


@pytest.mark.parametrize("name", ["id", "idx", None])
def test_ids_in_the_index_of_a_dataframe_are_kept(name: str | None) -> None:
    frame = pandas.DataFrame({"query": "a", "code": ["x", "y"]}, index=pandas.Index(["a7", "007"], name=name))
    assert [(pair.id, pair.meta) for pair in as_pairs(frame)] == [("a7", {}), ("007", {})]  # type: ignore[union-attr]
    levels = frame.set_index(pandas.MultiIndex.from_tuples([("s", 1), ("t", 2)], names=["site", "id"]))
    assert [pair.id for pair in as_pairs(levels)] == ["1", "2"]  # type: ignore[union-attr]


def test_an_index_that_has_no_ids_is_ignored() -> None:
    frame = pandas.DataFrame({"query": "a", "code": ["x", "y"]}, index=[10, 11])
    assert [pair.id for pair in as_pairs(frame)] == ["1", "2"]  # type: ignore[union-attr]
    named = frame.assign(id=["p", "q"]).set_index(pandas.Index(["r", "s"], name="idx"))
    assert [(pair.id, pair.meta) for pair in as_pairs(named)] == [("p", {}), ("q", {})]  # type: ignore[union-attr]


def test_rows_of_a_dataframe_may_be_dicts_series_or_tuples() -> None:
    frame = pandas.DataFrame({"id": ["3", "4"], "query": "a", "code": "x", "language": ["sql", float("nan")]})
    forms = (frame.to_dict("records"), [row for _, row in frame.iterrows()], list(frame.itertuples(index=False)))
    for rows in forms:
        first, second = as_pairs(rows)  # type: ignore[misc]
        assert (first.id, first.language, second.id, second.language) == ("3", "sql", "4", "python")


def test_a_dataset_is_returned_unchanged(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"query": "a", "code": "x"}\n')
    dataset = read_pairs(tmp_path / "pairs.jsonl")
    assert as_pairs(dataset) is dataset
    with pytest.raises(UsageError, match="read_pairs"):
        as_pairs(dataset, {"query": "question"})


@dataclass
class Row:
    query: str


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("pairs.jsonl", r"pairs='pairs\.jsonl' .*str.*read_pairs\(FILE\)"),
        (ROW, "pairs=.*dict"),
        (PAIR, "pairs=.*Pair"),
        (None, "pairs=None"),
        ([PAIR, Row("a")], "pair 2: Row"),
        ([["a", "b"]], r"pair 1: \['a', 'b'\].*list"),
    ],
)
def test_an_error_names_the_unsupported_type(items: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_pairs(items)


def test_an_error_about_a_mapping_has_its_number_and_suggests_an_argument() -> None:
    with pytest.raises(InputError, match=r"pair 2: .*mapping='code=snippet'"):
        as_pairs([ROW, {"query": "a", "snippet": "x"}])


@pytest.mark.parametrize("mapping", [{"query": "question", "code": "snippet"}, "query=question,code=snippet"])
async def test_a_mapping_renames_the_fields_of_every_kind_of_items(mapping: Any) -> None:
    row = {"question": "add", "snippet": "def add(): pass", "votes": 3}

    async def rows() -> AsyncIterator[dict[str, Any]]:
        yield row

    assert as_pairs([row], mapping) == list(as_pairs(pandas.DataFrame([row]), mapping)) == [PAIR]  # type: ignore[arg-type]
    assert [pair async for pair in as_pairs(rows(), mapping)] == [PAIR]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="'key'"):
        as_pairs([ROW], {"id": "key"})
    with pytest.raises(ConfigError):
        as_pairs([row], {"title": "question"})
