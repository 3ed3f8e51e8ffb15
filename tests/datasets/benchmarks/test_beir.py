"""Benchmarks in the formats of BEIR, MTEB and CoIR."""

from __future__ import annotations

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
from tests.evaluation.runs import write_lines
from tests.exports.runs import export_run, make_run

CORPUS = [
    {"_id": "d1", "title": "", "text": "    def a(): pass"},
    {"_id": "d2", "title": "b", "text": "def b(): pass", "metadata": {"n": 1}},
    {"_id": "d3", "text": "def c(): pass"},
]
QUERIES = [{"_id": "q1", "text": "do a"}, {"_id": "q2", "text": "do b"}, {"_id": "q3", "text": "do c"}]
CODES = {"d1": "    def a(): pass", "d2": "b def b(): pass", "d3": "def c(): pass"}


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def make_qrels(*judgements: tuple[str, str, float], hyphen: str = "-") -> list[dict[str, Any]]:
    return [{f"query{hyphen}id": query, f"corpus{hyphen}id": code, "score": score} for query, code, score in judgements]


def write_beir(folder: Path, tsv: str = "q1\td1\t2\nq1\td2\t0\nq2\td2\t1\n", split: str = "test") -> Path:
    write_lines(folder / "corpus.jsonl", CORPUS)
    write_lines(folder / "queries.jsonl", QUERIES)
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / f"qrels/{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{tsv}")
    return folder


def test_queries_without_a_grade_in_the_split_are_skipped(tmp_path: Path) -> None:
    benchmark = open_benchmark(write_beir(tmp_path / "scifact"))
    assert benchmark.queries == {"q1": "do a", "q2": "do b"}
    assert benchmark.codes == CODES
    assert benchmark.grades == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1}}
    assert (benchmark.name, benchmark.language, "BEIR" in benchmark.notes[0]) == ("scifact-test", "python", True)


def test_an_option_chooses_the_split(tmp_path: Path) -> None:
    write_beir(tmp_path), write_beir(tmp_path, "q3\td3\t-1\nq3\td1\t1\n", "dev")
    benchmark = open_benchmark(tmp_path, split="dev", language="go")
    assert (benchmark.queries, benchmark.grades, benchmark.language) == (
        {"q3": "do c"},
        {"q3": {"d3": 0, "d1": 1}},
        "go",
    )
    with pytest.raises(UsageError, match=r"'train'.*--split: dev, test"):
        open_benchmark(tmp_path, split="train")


@pytest.mark.parametrize(
    ("tsv", "cause"),
    [
        ("q1\td1\t1\nq9\td1\t1\n", "test.tsv:3: row 2: "),
        ("q1\td9\t1\n", "'d9'"),
        ("q1\td1\t0.5\n", "test.tsv:2: row 1: 'score' is '0.5'"),
        ("q1\t\t1\n", "test.tsv:2: row 1: field 'corpus-id'"),
        ("q1\td1\n", "test.tsv:2: row 1: 2 cells"),
    ],
)
def test_an_error_locates_a_bad_judgement(tsv: str, cause: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        open_benchmark(write_beir(tmp_path, tsv))
    assert cause in str(caught.value)


def test_a_snippet_needs_a_text_field_which_may_be_empty_next_to_a_title(tmp_path: Path) -> None:
    write_beir(tmp_path)
    write_lines(
        tmp_path / "corpus.jsonl", [*CORPUS, {"_id": "d4", "title": "d", "text": ""}, {"_id": "d5", "code": "pass"}]
    )
    with pytest.raises(InputError, match=r"corpus.jsonl:5: .*'text'.*'code'"):
        open_benchmark(tmp_path)


@pytest.mark.parametrize("part", ["corpus", "queries"])
def test_an_error_names_the_missing_part(tmp_path: Path, part: str) -> None:
    (write_beir(tmp_path) / f"{part}.jsonl").unlink()
    with pytest.raises(UsageError, match=rf"no {part}\b"):
        open_benchmark(tmp_path)


def test_all_queries_of_a_folder_without_judgements_are_used(tmp_path: Path) -> None:
    write_lines(tmp_path / "small/corpus.jsonl", CORPUS)
    write_lines(tmp_path / "small/queries.jsonl", QUERIES)
    benchmark = open_benchmark(tmp_path / "small")
    assert (benchmark.name, list(benchmark.queries), benchmark.grades) == ("small", ["q1", "q2", "q3"], {})
    assert benchmark.codes == CODES
    assert ["agent retrieval judge" in note for note in benchmark.notes] == [False, True]
    assert benchmark.sha256 != open_benchmark(write_beir(tmp_path / "judged")).sha256


def test_all_splits_of_a_folder_without_judgements_are_used(tmp_path: Path) -> None:
    for split, index in (("test", 0), ("dev", 1)):
        write_parquet(tmp_path / f"corpus/{split}-00000-of-00001.parquet", CORPUS[index : index + 1])
        write_parquet(tmp_path / f"queries/{split}-00000-of-00001.parquet", QUERIES[index : index + 1])
    benchmark = open_benchmark(tmp_path)
    assert (set(benchmark.queries), set(benchmark.codes)) == ({"q1", "q2"}, {"d1", "d2"})


def test_a_requested_split_without_judgements_is_rejected(tmp_path: Path) -> None:
    write_lines(tmp_path / "corpus.jsonl", CORPUS)
    write_lines(tmp_path / "queries.jsonl", QUERIES)
    with pytest.raises(UsageError, match="'test'"):
        open_benchmark(tmp_path, split="test")


def test_a_folder_with_judgements_for_another_split_or_language_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--split: dev"):
        open_benchmark(write_beir(tmp_path / "splits", split="dev"))
    for language in ("go", "python"):
        write_parquet(tmp_path / f"languages/{language}-corpus/0.parquet", CORPUS)
        write_parquet(tmp_path / f"languages/{language}-queries/0.parquet", QUERIES)
    write_parquet(tmp_path / "languages/python-qrels/test-00000-of-00001.parquet", make_qrels(("q1", "d1", 1)))
    with pytest.raises(UsageError, match="'test'"):
        open_benchmark(tmp_path / "languages", language="go")


def test_a_dataset_of_mteb_is_read(tmp_path: Path) -> None:
    write_parquet(tmp_path / "corpus/corpus-00000-of-00002.parquet", CORPUS[:2])
    write_parquet(tmp_path / "corpus/corpus-00001-of-00002.parquet", CORPUS[2:])
    write_parquet(tmp_path / "queries/queries-00000-of-00001.parquet", QUERIES)
    write_parquet(tmp_path / "data/test-00000-of-00001.parquet", make_qrels(("q1", "d1", 2.0), ("q2", "d2", 1.0)))
    write_parquet(tmp_path / "data/dev-00000-of-00001.parquet", make_qrels(("q3", "d3", 1.0)))
    (tmp_path / "README.md").write_text("# a dataset from the Hub\n")
    benchmark = open_benchmark(tmp_path)
    assert (benchmark.codes, benchmark.grades) == (CODES, {"q1": {"d1": 2}, "q2": {"d2": 1}})


def test_parts_with_splits_are_read_for_the_chosen_split(tmp_path: Path) -> None:
    for split, index in (("test", 0), ("dev", 1)):
        write_parquet(tmp_path / f"corpus/{split}-00000-of-00001.parquet", CORPUS[index : index + 1])
        write_parquet(tmp_path / f"queries/{split}-00000-of-00001.parquet", QUERIES[index : index + 1])
        ids = QUERIES[index]["_id"], CORPUS[index]["_id"]
        write_parquet(tmp_path / f"qrels/{split}-00000-of-00001.parquet", make_qrels((*ids, 1)))
    benchmark = open_benchmark(tmp_path, split="dev")
    assert (list(benchmark.queries), list(benchmark.codes), benchmark.grades) == (["q2"], ["d2"], {"q2": {"d2": 1}})


def test_a_language_chooses_among_configurations(tmp_path: Path) -> None:
    for language in ("go", "python"):
        write_parquet(tmp_path / f"{language}-corpus/test-00000-of-00001.parquet", [{"id": 1, "text": language}])
        write_parquet(tmp_path / f"{language}-queries/test-00000-of-00001.parquet", [{"id": 5, "text": "q"}])
        write_parquet(tmp_path / f"{language}-qrels/test-00000-of-00001.parquet", make_qrels(("5", "1", 1)))
    with pytest.raises(UsageError, match="--language: go, python"):
        open_benchmark(tmp_path)
    benchmark = open_benchmark(tmp_path, language="go")
    assert (benchmark.codes, benchmark.grades, benchmark.language) == ({"1": "go"}, {"5": {"1": 1}}, "go")


def test_the_two_datasets_of_coir_are_read_from_one_folder(tmp_path: Path) -> None:
    write_parquet(tmp_path / "cosqa-queries-corpus/data/corpus-00000-of-00001-6ab5c5eda798a0f9.parquet", CORPUS)
    write_parquet(tmp_path / "cosqa-queries-corpus/data/queries-00000-of-00001-0123.parquet", QUERIES)
    write_parquet(tmp_path / "cosqa-qrels/data/test-00000-of-00001.parquet", make_qrels(("q1", "d1", 1), hyphen="_"))
    write_parquet(tmp_path / "cosqa-qrels/data/train-00000-of-00001.parquet", make_qrels(("q3", "d3", 1), hyphen="_"))
    benchmark = open_benchmark(tmp_path)
    assert (benchmark.codes, benchmark.grades) == (CODES, {"q1": {"d1": 1}})


texts = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=8).filter(str.strip)


@given(st.lists(st.tuples(texts, texts, st.sampled_from([0, 1, None])), min_size=1, max_size=12))
def test_an_exported_run_is_read_back(pairs: list[tuple[str, str, int | None]]) -> None:
    """Compare with the pairs, except those with contradictory labels."""
    assume(any(label is not None for *_, label in pairs))
    labels: dict[tuple[str, str], set[int | None]] = {}
    for query, code, label in pairs:
        if label is not None:
            labels.setdefault((escape_surrogates(query), escape_surrogates(code)), set()).add(label)
    expected: dict[str, dict[str, int | None]] = {}
    for (query, code), values in labels.items():
        if len(values) == 1:
            expected.setdefault(query, {})[code] = next(iter(values))
    expected = {query: grades for query, grades in expected.items() if 1 in grades.values()}
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(
            Path(folder) / "run",
            [Pair(id=str(number), query=query, code=code) for number, (query, code, _) in enumerate(pairs)],
            {str(number): {"label": label} for number, (*_, label) in enumerate(pairs)},
        )
        export_run(run, "beir", Path(folder) / "beir")
        if not expected:
            with pytest.raises((InputError, UsageError), match="no"):
                open_benchmark(Path(folder) / "beir")
            return
        benchmark = open_benchmark(Path(folder) / "beir")
    assert {code for _, code in labels} == set(benchmark.codes.values())
    assert expected == {
        benchmark.queries[query]: {benchmark.codes[code]: grade for code, grade in grades.items()}
        for query, grades in benchmark.grades.items()
    }


@pytest.mark.parametrize("text", ["do a", "another text"])
def test_two_queries_with_one_id_are_an_error(tmp_path: Path, text: str) -> None:
    write_lines(write_beir(tmp_path) / "queries.jsonl", [*QUERIES, {"_id": "q1", "text": text}])
    with pytest.raises(InputError, match="'q1'"):
        open_benchmark(tmp_path)


def test_grades_in_text_may_be_floats_as_in_parquet(tmp_path: Path) -> None:
    assert open_benchmark(write_beir(tmp_path, "q1\td1\t2.0\nq1\td2\t0.0\n")).grades == {"q1": {"d1": 2, "d2": 0}}


def test_a_note_counts_the_queries_with_the_id_of_a_document(tmp_path: Path) -> None:
    names = len(open_benchmark(write_beir(tmp_path)).notes)
    write_lines(tmp_path / "corpus.jsonl", [*CORPUS, {"_id": "q1", "text": "x"}, {"_id": "q3", "text": "y"}])
    notes = open_benchmark(tmp_path).notes  # q3 has no judgement and is therefore not searched
    assert (len(notes), notes[-1].split()[0], "same id" in notes[-1]) == (names + 1, "1", True)
