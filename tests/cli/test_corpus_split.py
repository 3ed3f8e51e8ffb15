"""`agent corpus split`: output forms, records, retrieval on a part, and wrong usage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from agent.cli.exit_codes import DONE, WRONG_USAGE
from agent.retrieval.benchmark import open_benchmark
from agent.types import Pair
from tests.cli.commands import Commands
from tests.exports.runs import make_run, read_lines
from tests.exports.test_hugging_face import load_dataset, read_card

PARTS = ("train", "validation", "test")
WORDS = ("sort", "join", "parse", "open", "zip", "hash", "split", "plot", "mail", "trim")
ROWS: list[dict[str, Any]] = [
    {
        "id": f"p{number}",
        "query": f"{WORDS[number // 3]} things {'with' * (number // 3)}",
        "code": f"def {WORDS[number % 15 % 10]}(): return {number % 15}",
        "label": (1, 0, None)[number % 3],
        "repository": f"r{number % 7}",
        "created": f"2024-01-{number + 1:02}",
        "reason": "x",
    }
    for number in range(30)
]


@pytest.fixture
def corpus(agent: Commands) -> Commands:
    """The command in a folder with pairs in a file and in a run with two pairs that are not annotated."""
    agent.write("pairs.jsonl", ROWS)
    pairs = [Pair(id=row["id"], query=row["query"], code=row["code"], meta={"label": 1}) for row in ROWS]
    run = make_run(agent.folder / "run", pairs, {row["id"]: {"label": row["label"]} for row in ROWS})
    lines = (run / "annotations.jsonl").read_bytes().splitlines(keepends=True)
    (run / "annotations.jsonl").write_bytes(b"".join(lines[:-2]))
    return agent


def read_parts(folder: Path, name: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Iterate over the rows of each part."""
    for part in PARTS:
        path = folder / name.format(part)
        if path.suffix == ".parquet":
            yield part, pyarrow.parquet.read_table(path).to_pylist()
        else:
            yield part, read_lines(path)


@pytest.mark.parametrize(
    ("form", "name", "by"),
    [
        ("hf", "data/{}.parquet", "query"),
        ("parquet", "{}.parquet", "code"),
        ("jsonl", "{}.jsonl", "repository"),
    ],
)
def test_parts_and_removed_pairs_are_the_input(corpus: Commands, form: str, name: str, by: str) -> None:
    options = (
        "--by",
        by,
        "--to",
        form,
        "--json",
        "--seed",
        "4",
        "--ratios",
        "1:1:1" if by == "repository" else "3:1:1",
    )
    document = corpus("corpus", "split", "pairs.jsonl", "-o", "new/out", *options).json
    parts, removed = (
        dict(read_parts(corpus.folder / "new/out", name)),
        read_lines(corpus.folder / "new/out/removed.jsonl"),
    )
    ids = [row["id"] for row in (*(row for rows in parts.values() for row in rows), *removed)]
    assert sorted(ids) == sorted(row["id"] for row in ROWS)
    labels = {row["id"]: row["label"] for row in ROWS}
    for part, rows in parts.items():
        counts = document["parts"][part]
        counted = Counter(row["label"] for row in rows)
        assert (counts["pairs"], counts["matches"], counts["undecided"]) == (len(rows), counted[1], counted[None])
        assert (counts["queries"], counts["codes"]) == tuple(
            len({r[field] for r in rows}) for field in ("query", "code")
        )
        assert all(row["label"] == labels[row["id"]] and row["reason"] == "x" for row in rows)
        assert not {"decided_by", "input_label", "input_reason"} & set(rows[0])
    dropped = document.get("dropped", {})
    assert sum(dropped.values()) == len(removed)
    assert document["share_kept"] == pytest.approx(1 - len(removed) / 30)
    assert {row["removed_by"] for row in removed} == dropped.keys()
    stored = json.loads((corpus.folder / "new/out/split.json").read_bytes())
    assert stored == {key: value for key, value in document.items() if key != "out"}
    assert (stored["rules"]["seed"], stored["rules"]["by"]) == (4, by)
    assert not [value for value in (*stored.values(), *stored["rules"].values()) if value in (None, "", [], {})]


@pytest.mark.slow
def test_load_dataset_reads_the_splits(corpus: Commands) -> None:
    assert corpus("corpus", "split", "run", "-o", "hf", "--ratios", "2:1:1").code == DONE
    splits = load_dataset(corpus.folder / "hf", corpus.folder / "cache")
    assert splits == dict(read_parts(corpus.folder / "hf", "data/{}.parquet"))
    metadata, sections = read_card(corpus.folder / "hf")
    assert [file["split"] for file in metadata["configs"][0]["data_files"]] == list(PARTS)
    assert f"| test | {len(splits['test'])} |" in sections["Splits"]
    assert sections["Labels"].endswith(": 2 not annotated yet.")
    assert "Annotation process" in sections


def test_the_card_of_a_file_does_not_describe_an_annotation(corpus: Commands) -> None:
    assert corpus("corpus", "split", "pairs.jsonl", "-o", "hf").code == DONE
    metadata, sections = read_card(corpus.folder / "hf")
    assert "annotations_creators" not in metadata
    assert [*sections][1:] == ["Labels", "Splits", "Sources and licences", "Columns"]
    assert "| 1, match | 10 |" in sections["Labels"]


def test_a_run_is_split_with_its_majority_labels(corpus: Commands) -> None:
    result = corpus("corpus", "split", "run", "-o", "out", "--to", "jsonl", "--json")
    assert " 2 " in result.err
    document = result.json
    rows = [row for _, part in read_parts(corpus.folder / "out", "{}.jsonl") for row in part]
    assert (document["pairs"], document["not_annotated"], len(rows)) == (28, 2, 28)
    assert {row["id"]: row["label"] for row in rows} == {row["id"]: row["label"] for row in ROWS[:-2]}
    assert {row["decided_by"] for row in rows} == {"screen"}


@pytest.mark.parametrize("form", ["hf", "parquet", "csv", "jsonl", "beir"])
def test_searchers_are_measured_on_a_part(corpus: Commands, form: str) -> None:
    options = ("--to", form, "--json", "--ratios", "2:1:1")
    document = corpus("corpus", "split", "pairs.jsonl", "-o", "out", *options).json
    for part in ("test", "validation"):
        benchmark = open_benchmark(corpus.folder / "out", split=part)
        assert (len(benchmark.queries), len(benchmark.codes)) == (
            document["parts"][part]["queries"],
            10 if form == "beir" else 15,
        )
        matches = {(benchmark.queries[q], benchmark.codes[c]) for q, g in benchmark.grades.items() for c in g if g[c]}
        assert len(matches) == document["parts"][part]["matches"]
        assert matches <= {(row["query"], row["code"]) for row in ROWS if row["label"] == 1}
    run = corpus("retrieval", "run", "out", "--searcher", "bm25", "-o", "r", "--json").json
    assert run["benchmark"]["queries"] == document["parts"]["test"]["queries"]
    assert corpus("retrieval", "run", "out", "--split", "dev", "--searcher", "bm25", "-o", "s").code == WRONG_USAGE


def test_a_part_of_cosqa_plus_is_measured_by_itself(corpus: Commands) -> None:
    assert corpus("corpus", "split", "pairs.jsonl", "-o", "out", "--to", "cosqa-plus").code == DONE
    assert corpus("retrieval", "run", "out", "--searcher", "bm25").code == WRONG_USAGE
    assert open_benchmark(corpus.folder / "out/test").queries


@pytest.mark.parametrize("by", ["pair", "time"])
def test_rules_that_share_queries_warn_of_them(corpus: Commands, by: str) -> None:
    result = corpus("corpus", "split", "pairs.jsonl", "-o", "out", "--by", by, "--ratios", "4:1:1")
    assert "warning" in result.out
    shared = json.loads((corpus.folder / "out/split.json").read_bytes())["shared_between_parts"]
    assert shared.keys() == {"queries", "codes"}
    assert all(shared.values())
    assert "warning" not in corpus("corpus", "split", "pairs.jsonl", "-o", "by-query").out


def test_an_earlier_split_is_replaced_with_force(corpus: Commands) -> None:
    command = ("corpus", "split", "pairs.jsonl", "-o", "out", "--ratios")
    assert corpus(*command, "8:1:1").code == DONE
    assert corpus(*command, "8:0:2").code == WRONG_USAGE
    assert corpus(*command, "8:0:2", "--by", "time", "--force").code == DONE
    assert {path.name for path in (corpus.folder / "out/data").iterdir()} == {"train.parquet", "test.parquet"}


@pytest.mark.parametrize(
    "options",
    [
        ("--ratios", "8:1:1", "--sizes", "1,1"), ("--ratios", "a:b:c"), ("--sizes", "1.5,1"), ("--field", "created"),
        ("--by", "repository", "--field", "none"), ("--by", "code", "--sizes", "1,28"), ("--force", "-o", "."),
    ],
)  # fmt: skip
def test_wrong_usage_leaves_no_folder(corpus: Commands, options: tuple[str, ...]) -> None:
    corpus.check_refused("", "corpus", "split", "pairs.jsonl", "-o", "out", *options)
    assert not (corpus.folder / "out").exists()
    assert (corpus.folder / "pairs.jsonl").exists()


def test_pairs_without_labels_are_wrong_usage(corpus: Commands) -> None:
    corpus.write("new.jsonl", [{**row, "label": None} for row in ROWS])
    (corpus.folder / "empty").mkdir()
    for path in ("new.jsonl", "empty"):
        corpus.check_refused("agent annotate", "corpus", "split", path, "-o", "out")


def test_a_part_without_pairs_is_wrong_usage(corpus: Commands) -> None:
    corpus.write("one.jsonl", [{**row, "query": "the same query"} for row in ROWS])
    assert corpus("corpus", "split", "one.jsonl", "-o", "out").code == WRONG_USAGE
    assert corpus("corpus", "split", "one.jsonl", "-o", "out", "--by", "time").code == DONE
    assert corpus("corpus", "split", "out/data/train.parquet", "-o", "out", "--force").code == WRONG_USAGE
