"""Every statistic of a dataset agrees with pandas and SciPy."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from agent.corpus.describe import Description, DescriptionBuilder, describe
from agent.corpus.labelled import LabelledPair
from agent.errors import InputError
from agent.runs.store.run_folder import RunFolder
from agent.types import CaseOutcome, CaseResult, Cause, Pair, Status, TestReport
from tests.views.runs import IDENTITY, commit, make_pairs

TOKEN = r"\w+|[^\w\s]"
META = ("rank", "repository", "source", "licence", "license")
COLUMNS = ("query", "code", "label", *META, "part")


def compute_with_pandas(frame: pd.DataFrame) -> dict[str, Any]:
    """Compute the document of a description. Missing values are NaN or None."""
    labelled = frame.dropna(subset="label")
    matches = labelled[labelled["label"] == 1].drop_duplicates(["query", "code"])
    by_code = matches.groupby("code").size()
    ranked = labelled.dropna(subset="rank")
    used = ranked[ranked["label"].groupby(ranked["part"].fillna("")).transform("min") == 0]
    ranks = [
        {"rank": rank, "pairs": len(group), "matches": int(group.sum()), "share": group.mean(),
         "interval": compute_wilson(int(group.sum()), len(group))}
        for rank, group in used.groupby("rank")["label"]
    ]  # fmt: skip
    labels = frame["label"].map({1: "1", 0: "0"}).fillna("none")
    counted = labels.value_counts().reindex(["1", "0", *({"none"} & set(labels))], fill_value=0)
    parts = [part for part in frame["part"].unique() if part is not None]
    texts = ("query", "code")
    last = ranks[-1]["interval"] if ranks else None
    return {
        "pairs": len(frame),
        "not_annotated": 0,
        "labels": counted.to_dict(),
        "queries": compute_texts(frame["query"]),
        "codes": compute_texts(frame["code"]),
        "programs": 0,
        "cases_per_program": None,
        "executed_share": None,
        "queries_by_matches": count_matches(labelled["query"], matches["query"]),
        "codes_by_matches": count_matches(labelled["code"], matches["code"]),
        "several_share": (by_code > 1).mean() if len(by_code) else None,
        "ranks": ranks,
        "unused_ranks": len(ranked) - len(used),
        "next_rank_matches": ranks[-1]["share"] * ranks[-1]["pairs"] if ranks else None,
        "next_rank_interval": last and {side: bound * ranks[-1]["pairs"] for side, bound in last.items()},
        "parts": {
            part: {
                "pairs": len(own),
                "queries": own["query"].nunique(),
                "codes": own["code"].nunique(),
                "labels": labels[own.index].value_counts().reindex(counted.index, fill_value=0).to_dict(),
            }
            for part in parts
            for own in [frame[frame["part"] == part]]
        },
        "leaks": [
            {"parts": both, "queries": counts["query"], "codes": counts["code"]}
            for both in combinations(parts, 2)
            for own in [frame[frame["part"].isin(both)]]
            for counts in [{name: int((own.groupby(name)["part"].nunique() == 2).sum()) for name in texts}]
        ],
        "sources": frame["repository"].fillna(frame["source"]).fillna("missing").value_counts().to_dict(),
        "licences": frame["licence"].fillna(frame["license"]).fillna("missing").value_counts().to_dict(),
    }


def compute_wilson(matches: int, pairs: int) -> dict[str, float]:
    interval = binomtest(matches, pairs).proportion_ci(0.95, method="wilson")
    return {"low": interval.low, "high": interval.high}


def compute_texts(texts: pd.Series) -> dict[str, Any]:
    distinct = texts.drop_duplicates()
    return {
        "count": texts.nunique(),
        "characters": distinct.str.len().mean(),
        "tokens": distinct.str.count(TOKEN).mean(),
        "vocabulary": distinct.str.findall(TOKEN).explode().nunique(),
    }


def count_matches(texts: pd.Series, matches: pd.Series) -> dict[int, int]:
    numbers = matches.value_counts().reindex(texts.unique(), fill_value=0)
    return numbers.value_counts().sort_index().to_dict()  # type: ignore[no-any-return]


def assert_equal(description: Description, expected: dict[str, Any]) -> None:
    document = asdict(description)
    assert document.keys() == expected.keys()
    for name, value in expected.items():
        assert flatten(document[name]) == pytest.approx(flatten(value), abs=1e-12), name


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a document, keyed by path."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {path: leaf for name, item in items for path, leaf in flatten(item, f"{prefix}/{name}").items()}
    return {prefix: value}


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["cosqa_dev.jsonl", "gold_59.jsonl"])
def test_real_pairs_have_the_statistics_that_pandas_computes(real_data: Path, name: str) -> None:
    frame = pd.read_json(real_data / name, lines=True).rename(columns={"doc": "query"}).reindex(columns=COLUMNS)
    assert_equal(describe(real_data / name), compute_with_pandas(frame.astype(object).where(frame.notna(), None)))


@pytest.mark.real_data
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_split_of_real_pairs_has_the_statistics_that_pandas_computes(
    real_data: Path, tmp_path: Path, form: str
) -> None:
    frame = pd.read_json(real_data / "cosqa_dev.jsonl", lines=True).rename(columns={"doc": "query"})
    frame = frame[["query", "code", "label"]].convert_dtypes()
    number = frame.index.to_series()
    # Queries with several codes, ranks, sources and licences, which CoSQA does not have.
    frame["query"] = frame["query"].iloc[number // 4 * 4].to_numpy()
    frame["rank"] = (number % 4 + 1).astype("Int64")
    frame["label"] = frame["label"].mask(number % 17 == 0)
    frame["repository"] = ("https://example.org/" + (number % 9).astype(str)).where(number % 3 > 0)
    frame["source"] = "web"
    frame["licence"] = number.mod(3).map({0: "MIT", 1: "Apache-2.0"})
    frame["part"] = pd.cut(number, [-1, 201, 239, 276], labels=["train", "validation", "test"]).astype(object)
    folder = tmp_path if form == "jsonl" else tmp_path / "data"
    folder.mkdir(exist_ok=True)
    (tmp_path / "split.json").write_text("{}")
    for part, own in frame.groupby("part"):
        own, path = own.drop(columns="part"), folder / f"{part}.{form}"
        own.to_parquet(path) if form == "parquet" else own.to_json(path, orient="records", lines=True)
    frame = frame.reindex(columns=COLUMNS).astype(object)
    description = describe(tmp_path)
    assert_equal(description, compute_with_pandas(frame.where(frame.notna(), None)))
    assert [len(description.ranks), len(description.leaks), len(description.sources)] == [4, 3, 7]
    assert sum(leak.codes for leak in description.leaks) > 0 < sum(leak.queries for leak in description.leaks)
    assert max(description.queries_by_matches) > 2 < max(description.codes_by_matches)


def optional(*values: object) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *values])


rows = st.lists(
    st.tuples(
        st.sampled_from(["a query", "A query?", "ß x_1"]), st.sampled_from(["f(x)", "F(x)", "f( x )", "1"]),
        optional(0, 1, 1), optional(1, 2, 30), optional("r", "s"), optional("s"), optional("MIT"), optional("X", "MIT"),
        optional("train", "validation", "test"),
    ),
    min_size=1,
)  # fmt: skip


@given(rows)
def test_any_pairs_have_the_statistics_that_pandas_computes(rows: list[tuple[Any, ...]]) -> None:
    builder = DescriptionBuilder()
    for number, (query, code, label, *meta, part) in enumerate(rows):
        pair = Pair(id=str(number), query=query, code=code, meta=dict(zip(META, meta, strict=True)))
        builder.add(LabelledPair(pair, label), part)
    assert_equal(builder.build(), compute_with_pandas(pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)))


def describe_pairs(*pairs: tuple[str, str, int | None, Any], parts: Sequence[str | None] = ()) -> Description:
    builder = DescriptionBuilder()
    for number, ((query, code, label, rank), part) in enumerate(zip_longest(pairs, parts)):
        builder.add(LabelledPair(Pair(id=str(number), query=query, code=code, meta={"rank": rank}), label), part)
    return builder.build()


def test_one_more_rank_adds_matches_only_to_queries_that_have_the_last_rank() -> None:
    pairs = [(f"q{number}", f"c{number}", number % 2, 7) for number in range(10)]
    description = describe_pairs(*pairs, ("q0", "d", 1, 1), ("q", "d", None, 7), ("r", "d", 1, None), ("s", "d", 0, 6))
    assert description.next_rank_matches == 5
    interval = asdict(description)["next_rank_interval"]
    assert interval == pytest.approx({"low": 2.3659, "high": 7.6341}, abs=1e-4)


def test_parts_with_positives_only_have_no_shares_by_rank() -> None:
    pairs = [("q", str(number), int(number != 1), number % 2 + 1) for number in range(4)]
    description = describe_pairs(*pairs, parts=["train", "train", "test", "test"])
    assert [(row.rank, row.pairs, row.share) for row in description.ranks] == [(1, 1, 1.0), (2, 1, 0.0)]
    assert description.unused_ranks == 2


@pytest.mark.parametrize(("rank", "expected"), [("3", 3), (3.0, 3), (0, None), (-1, None), (True, None), ([1], None)])
def test_only_positive_integers_are_ranks(rank: object, expected: int | None) -> None:
    assert [row.rank for row in describe_pairs(("q", "c", 0, rank)).ranks] == ([expected] if expected else [])


def test_a_run_has_labels_by_majority_and_test_programs(tmp_path: Path) -> None:
    pairs = make_pairs(12)
    case = CaseResult(name="test_0", outcome=CaseOutcome.NOT_RUN)
    broken = TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY, cases=(case,))
    with RunFolder(tmp_path / "run", identity=IDENTITY, pairs=pairs, environment={}) as folder:
        for number, pair in enumerate(pairs[:10]):
            commit(folder, number, pair, **({"test": broken, "label": 0} if number == 9 else {}))
    description = describe(tmp_path / "run")
    assert (description.pairs, description.not_annotated) == (10, 2)
    assert description.labels == {"1": 4, "0": 4, "undecided": 1, "error": 1}
    assert description.programs == 4
    assert description.cases_per_program == pytest.approx((3 * 4 + 1) / 4)
    assert description.executed_share == 0.75
    assert (description.sources, description.licences) == ({"made": 10}, {"missing": 10})


def test_a_run_without_annotations_has_no_statistics(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", identity=IDENTITY, pairs=make_pairs(3), environment={}):
        pass
    (tmp_path / "run/annotations.jsonl").touch()
    with pytest.raises(InputError):
        describe(tmp_path / "run")


def test_a_link_out_of_a_split_folder_is_not_a_part(tmp_path: Path) -> None:
    folder = tmp_path / "split"
    folder.mkdir()
    (folder / "split.json").write_text("{}")
    (tmp_path / "secret.jsonl").write_text('{"query": "q", "code": "c"}\n')
    (folder / "train.jsonl").symlink_to(tmp_path / "secret.jsonl")
    with pytest.raises(InputError):
        describe(folder)
    (folder / "test.jsonl").write_text('{"query": "q", "code": "c"}\n')
    assert describe(folder).parts.keys() == {"test"}


def test_texts_and_tokens_are_not_stored() -> None:
    builder = DescriptionBuilder()
    tracemalloc.start()
    for number in range(500):
        text = f"{number}" + "x" * 20_000 + "\ud800"
        builder.add(LabelledPair(Pair(id=str(number), query=text, code=text), 1))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 1_000_000
    assert (builder.build().codes.count, builder.build().codes.vocabulary) == (500, 501)
