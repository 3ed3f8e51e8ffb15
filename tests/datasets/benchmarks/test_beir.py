"""Folders of BEIR's form, and as MTEB and CoIR publish them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent.errors import InputError, UsageError
from agent.exports.rows import escape_surrogates
from agent.retrieval.benchmark import open_benchmark
from agent.types import Pair
from tests.exports.runs import exported, make_run

CORPUS = [
    {"_id": "d1", "title": "", "text": "    def a(): pass"},
    {"_id": "d2", "title": "b", "text": "def b(): pass", "metadata": {"n": 1}},
    {"_id": "d3", "text": "def c(): pass"},
]
QUERIES = [{"_id": "q1", "text": "do a"}, {"_id": "q2", "text": "do b"}, {"_id": "q3", "text": "do c"}]
CODES = {"d1": "    def a(): pass", "d2": "b def b(): pass", "d3": "def c(): pass"}


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def qrels(*judged: tuple[str, str, float], hyphen: str = "-") -> list[dict[str, Any]]:
    return [{f"query{hyphen}id": query, f"corpus{hyphen}id": code, "score": score} for query, code, score in judged]


def beir(folder: Path, tsv: str = "q1\td1\t2\nq1\td2\t0\nq2\td2\t1\n", split: str = "test") -> Path:
    lines(folder / "corpus.jsonl", CORPUS)
    lines(folder / "queries.jsonl", QUERIES)
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / f"qrels/{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{tsv}")
    return folder


def test_grades_are_kept_and_queries_without_any_in_the_split_left_out(tmp_path: Path) -> None:
    found = open_benchmark(beir(tmp_path / "scifact"))
    assert found.queries == {"q1": "do a", "q2": "do b"}
    assert found.codes == CODES
    assert found.grades == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1}}
    assert (found.name, found.language, "BEIR" in found.notes[0]) == ("scifact-test", "python", True)


def test_another_split_is_chosen_by_an_option(tmp_path: Path) -> None:
    beir(tmp_path), beir(tmp_path, "q3\td3\t-1\nq3\td1\t1\n", "dev")
    found = open_benchmark(tmp_path, split="dev", language="go")
    assert (found.queries, found.grades, found.language) == ({"q3": "do c"}, {"q3": {"d3": 0, "d1": 1}}, "go")
    with pytest.raises(UsageError, match=r"of the split 'train'; there is dev, test; choose by --split"):
        open_benchmark(tmp_path, split="train")


@pytest.mark.parametrize(
    ("tsv", "cause"),
    [
        ("q1\td1\t1\nq9\td1\t1\n", "test.tsv:3: row 2: grades the query 'q9', which is not among the queries"),
        ("q1\td9\t1\n", "test.tsv:2: row 1: grades the code 'd9', which is not among the codes"),
        ("q1\td1\t0.5\n", "test.tsv:2: row 1: 'score' is '0.5'; a whole number up to 100 expected"),
        ("q1\t\t1\n", "test.tsv:2: row 1: no field 'corpus-id' or 'corpus_id'"),
        ("q1\td1\n", "test.tsv:2: row 1: 2 cells"),
    ],
)
def test_a_bad_judgement_is_named_with_its_line(tsv: str, cause: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        open_benchmark(beir(tmp_path, tsv))
    assert cause in str(caught.value)


def test_a_code_without_text_is_refused_and_an_empty_one_with_a_title_is_not(tmp_path: Path) -> None:
    beir(tmp_path)
    lines(tmp_path / "corpus.jsonl", [*CORPUS, {"_id": "d4", "title": "d", "text": ""}, {"_id": "d5", "code": "pass"}])
    with pytest.raises(InputError, match=r"corpus.jsonl:5: no field 'text' \(fields here: '_id', 'code'\)"):
        open_benchmark(tmp_path)


@pytest.mark.parametrize("part", ["corpus", "queries"])
def test_a_folder_without_a_part_is_told_which(tmp_path: Path, part: str) -> None:
    (beir(tmp_path) / f"{part}.jsonl").unlink()
    with pytest.raises(UsageError, match=f"has no {part} "):
        open_benchmark(tmp_path)


def test_a_folder_without_judgements_is_refused(tmp_path: Path) -> None:
    lines(tmp_path / "corpus.jsonl", CORPUS)
    lines(tmp_path / "queries.jsonl", QUERIES)
    with pytest.raises(UsageError, match="there are none at all"):
        open_benchmark(tmp_path)


def test_a_dataset_of_mteb_is_read(tmp_path: Path) -> None:
    table(tmp_path / "corpus/corpus-00000-of-00002.parquet", CORPUS[:2])
    table(tmp_path / "corpus/corpus-00001-of-00002.parquet", CORPUS[2:])
    table(tmp_path / "queries/queries-00000-of-00001.parquet", QUERIES)
    table(tmp_path / "data/test-00000-of-00001.parquet", qrels(("q1", "d1", 2.0), ("q2", "d2", 1.0)))
    table(tmp_path / "data/dev-00000-of-00001.parquet", qrels(("q3", "d3", 1.0)))
    (tmp_path / "README.md").write_text("# a dataset of the Hub\n")
    found = open_benchmark(tmp_path)
    assert (found.codes, found.grades) == (CODES, {"q1": {"d1": 2}, "q2": {"d2": 1}})


def test_of_parts_with_splits_that_of_the_split_is_taken(tmp_path: Path) -> None:
    for split, place in (("test", 0), ("dev", 1)):
        table(tmp_path / f"corpus/{split}-00000-of-00001.parquet", CORPUS[place : place + 1])
        table(tmp_path / f"queries/{split}-00000-of-00001.parquet", QUERIES[place : place + 1])
        ids = QUERIES[place]["_id"], CORPUS[place]["_id"]
        table(tmp_path / f"qrels/{split}-00000-of-00001.parquet", qrels((*ids, 1)))
    found = open_benchmark(tmp_path, split="dev")
    assert (list(found.queries), list(found.codes), found.grades) == (["q2"], ["d2"], {"q2": {"d2": 1}})


def test_a_dataset_of_a_configuration_per_language_takes_one(tmp_path: Path) -> None:
    for language in ("go", "python"):
        table(tmp_path / f"{language}-corpus/test-00000-of-00001.parquet", [{"id": 1, "text": language}])
        table(tmp_path / f"{language}-queries/test-00000-of-00001.parquet", [{"id": 5, "text": "q"}])
        table(tmp_path / f"{language}-qrels/test-00000-of-00001.parquet", qrels(("5", "1", 1)))
    with pytest.raises(UsageError, match=r"several configurations \(go, python\); choose one by --language"):
        open_benchmark(tmp_path)
    found = open_benchmark(tmp_path, language="go")
    assert (found.codes, found.grades, found.language) == ({"1": "go"}, {"5": {"1": 1}}, "go")


def test_the_two_datasets_of_coir_are_read_from_one_folder(tmp_path: Path) -> None:
    table(tmp_path / "cosqa-queries-corpus/data/corpus-00000-of-00001-6ab5c5eda798a0f9.parquet", CORPUS)
    table(tmp_path / "cosqa-queries-corpus/data/queries-00000-of-00001-0123.parquet", QUERIES)
    table(tmp_path / "cosqa-qrels/data/test-00000-of-00001.parquet", qrels(("q1", "d1", 1), hyphen="_"))
    table(tmp_path / "cosqa-qrels/data/train-00000-of-00001.parquet", qrels(("q3", "d3", 1), hyphen="_"))
    found = open_benchmark(tmp_path)
    assert (found.codes, found.grades) == (CODES, {"q1": {"d1": 1}})


texts = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=8).filter(str.strip)


@given(st.lists(st.tuples(texts, texts, st.sampled_from([0, 1, None])), min_size=1, max_size=12))
def test_an_export_of_a_run_is_read_back(pairs: list[tuple[str, str, int | None]]) -> None:
    """Against the pairs themselves: of one query and code the label, where all of its pairs have the same."""
    assume(any(label is not None for *_, label in pairs))
    labels: dict[tuple[str, str], set[int | None]] = {}
    for query, code, label in pairs:
        if label is not None:
            labels.setdefault((escape_surrogates(query), escape_surrogates(code)), set()).add(label)
    expected: dict[str, dict[str, int | None]] = {}
    for (query, code), found in labels.items():
        if len(found) == 1:
            expected.setdefault(query, {})[code] = next(iter(found))
    expected = {query: judged for query, judged in expected.items() if 1 in judged.values()}
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(
            Path(folder) / "run",
            [Pair(id=str(number), query=query, code=code) for number, (query, code, _) in enumerate(pairs)],
            {str(number): {"label": label} for number, (*_, label) in enumerate(pairs)},
        )
        exported(run, "beir", Path(folder) / "beir")
        if not expected:
            with pytest.raises((InputError, UsageError), match="holds no"):
                open_benchmark(Path(folder) / "beir")
            return
        read = open_benchmark(Path(folder) / "beir")
    assert {code for _, code in labels} == set(read.codes.values())
    assert expected == {
        read.queries[query]: {read.codes[code]: grade for code, grade in grades.items()}
        for query, grades in read.grades.items()
    }
