"""`agent corpus decontaminate`: summary, files, benchmarks with and without codes, and wrong usage."""

from __future__ import annotations

import os

import pytest

from agent.cli.exit_codes import STOPPED
from tests.cli.commands import Commands
from tests.cli.processes import wait_until
from tests.exports.runs import read_lines
from tests.retrieval.pooled import CODES, write_benchmark

COMMAND = ("corpus", "decontaminate", "pairs.jsonl", "-o", "new/clean.jsonl", "--benchmark")
PAIRS = [("take the FIRST one", "x"), ("y", CODES["c1"]), ("one two three!", "z"), ("-", "w")]
NO_CODES = {"short_queries": 0, "contaminated_codes": 0, "contaminated_codes_share": 0}


@pytest.fixture
def corpus(agent: Commands) -> Commands:
    """The command in a folder with four pairs, a benchmark without codes and a file of pairs."""
    write_benchmark(agent.folder)
    agent.write("pairs.jsonl", [{"id": f"p{i}", "query": query, "code": code} for i, (query, code) in enumerate(PAIRS)])
    agent.write("other.jsonl", [{"query": "one two three", "code": "other"}])
    return agent


def test_a_summary_counts_pairs_by_reason_and_by_benchmark(corpus: Commands) -> None:
    options = ("queries.jsonl", "--codes", "codes.jsonl", "--benchmark", "other.jsonl")
    assert corpus(*COMMAND, *options, "--json").json == {
        "out": "new/clean.jsonl", "removed_out": "new/clean.removed.jsonl", "read": 4, "kept": 1,
        "removed": {"query": 2, "code": 1, "near-duplicate code": 0},
        "benchmarks": [
            {"benchmark": "queries.jsonl", "queries": 3, "short_queries": 2, "contaminated_queries": 1,
             "contaminated_queries_share": pytest.approx(1 / 3), "codes": 5, "contaminated_codes": 1,
             "contaminated_codes_share": 0.2, "matching_pairs": 2, "matching_pairs_share": 0.5, "read": 4},
            {"benchmark": "other.jsonl", "queries": 1, "contaminated_queries": 1, "contaminated_queries_share": 1,
             "codes": 1, "matching_pairs": 1, "matching_pairs_share": 0.25, "read": 4, **NO_CODES},
        ],
    }  # fmt: skip
    assert [path.read_text().count("\n") for path in sorted(corpus.folder.glob("new/*"))] == [1, 3]
    lines = corpus(*COMMAND, *options, "--force").out.splitlines()
    assert [line.split()[-3:] for line in lines[1:3]] == [["1", "3", "33.3%"], ["1", "5", "20.0%"]]
    assert "annotate new/clean.jsonl" in lines[-1]


def test_the_next_step_for_labelled_pairs_is_the_split(corpus: Commands) -> None:
    corpus.write("pairs.jsonl", [{"query": "x", "code": "y", "label": 1}])
    assert "split new/clean.jsonl" in corpus(*COMMAND, "other.jsonl").out.splitlines()[-1]


def test_codes_alone_are_checked_with_their_docstrings_as_queries(corpus: Commands) -> None:
    function = 'def f(a):\n    """{} it."""\n    return a + {}\n'
    codes = [function.format("Take the first of", 1), function.format("Sort", 2), f"{CODES['c1']}", "x = 3"]
    corpus.write("codes.jsonl", [{"key": f"k{n}", "text": code} for n, code in enumerate(codes)])
    corpus.write("b.jsonl", [{"id": "b7", "query": "take the first", "code": CODES["c1"]}])
    command = ("corpus", "decontaminate", "codes.jsonl", "--benchmark", "b.jsonl", "-o", "clean.jsonl")
    result = corpus(*command, "--map", "code=text,id=key")
    assert (result.code, "train clean.jsonl --pairs docstrings" in result.out) == (0, True)
    kept, removed = (read_lines(corpus.folder / name) for name in ("clean.jsonl", "clean.removed.jsonl"))
    assert kept == [{"id": f"k{n}", "code": codes[n], "language": "python"} for n in (1, 3)]
    matches = [(row["id"], row["removed_by"], row["matched_id"]) for row in removed]
    assert matches == [("k0", "query", "b7"), ("k2", "code", "b7")]


def test_matches_have_the_ids_of_the_pairs_of_a_run(corpus: Commands) -> None:
    corpus("annotate", "pairs.jsonl", "--model", "heuristic", "--variant", "ps_fa", "-o", "run")
    corpus.write("more.jsonl", [{"query": "so one two three", "code": "new"}])
    assert corpus("corpus", "decontaminate", "more.jsonl", "--benchmark", "run", "-o", "clean.jsonl").code == 0
    assert [row["matched_id"] for row in read_lines(corpus.folder / "clean.removed.jsonl")] == ["p2"]


def test_a_folder_is_not_a_file_of_pairs(corpus: Commands) -> None:
    command = ("corpus", "decontaminate", ".", "--benchmark", "other.jsonl", "-o", "clean.jsonl")
    corpus.check_refused("agent export", *command)


@pytest.mark.parametrize(
    "arguments",
    [
        "queries.jsonl",
        "other.jsonl --codes codes.jsonl",
        "other.jsonl --benchmark other.jsonl",
        "other.jsonl -o other.jsonl --force",
        "queries.jsonl --codes codes.jsonl -o codes.jsonl --force",
        "beir -o beir/clean.jsonl",
    ],
)
def test_wrong_usage_writes_no_files(corpus: Commands, arguments: str) -> None:
    (corpus.folder / "beir").mkdir()
    for name in ("corpus", "queries"):
        corpus.write(f"beir/{name}.jsonl", '{"_id": "1", "text": "text"}')
    before = corpus.read_files()
    corpus.check_refused("", *COMMAND, *arguments.split())
    assert corpus.read_files() == before


def test_ctrl_c_leaves_no_files(corpus: Commands) -> None:
    os.mkfifo(corpus.folder / "endless.jsonl")
    running = corpus.start("corpus", "decontaminate", "endless.jsonl", "--benchmark=other.jsonl", "-o", "new/c.jsonl")
    wait_until((corpus.folder / "new").is_dir, "the output folder")
    result = running.stop()
    assert (result.code, "Traceback" in result.err) == (STOPPED, False), result.err
    assert not list(corpus.folder.glob("new/*"))
