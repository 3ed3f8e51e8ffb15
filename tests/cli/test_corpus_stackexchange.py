"""`agent corpus stackexchange`: the folder, what reads it, and wrong usage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agent.cli.exit_codes import DONE, STOPPED, WRONG_USAGE
from agent.errors import InputError
from agent.retrieval.benchmark import open_benchmark
from agent.training.data import read_training_data
from tests.cli.commands import ROOT, Commands
from tests.disks import remount, tiny_disk
from tests.exports.runs import read_lines
from tests.exports.test_hugging_face import load_dataset, read_card

DUMP = ROOT / "examples/corpus/Posts.xml"
NO_ANSWER = b'<posts><row Id="1" PostTypeId="1" Tags="&lt;c&gt;" /></posts>'
DAMAGED = [b"", DUMP.read_bytes()[:5000], b"<!DOCTYPE posts>" + DUMP.read_bytes()[38:], NO_ANSWER]
FILES = {"README.md", "stackexchange.json", "test.jsonl", "train.jsonl", "validation.jsonl"}
WRONG = ["qa --languages py", "qa --languages ,", "qa --site https://x.org", "in --force"]
SIZES = {"c": {"train": 6, "validation": 1, "test": 1}, "python": {"train": 2, "validation": 1, "test": 1}}
ROWS = {"train": 8, "validation": 2, "test": 2}


@pytest.fixture
def triples(agent: Commands) -> Commands:
    """The command in a folder with the triples of the example."""
    assert agent("corpus", "stackexchange", DUMP, "-o", "qa", "--languages", "c,python").code == DONE
    return agent


def list_files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_summary_counts_what_was_kept_and_removed(agent: Commands) -> None:
    document = agent("corpus", "stackexchange", DUMP, "-o", "new/qa", "--json").json
    stored = json.loads((agent.folder / "new/qa/stackexchange.json").read_text())
    assert document == {"out": "new/qa", **stored}
    assert {name: sizes for name, sizes in stored["triples"].items() if sizes["train"]} == SIZES
    assert list(stored["triples"])[:4] == ["c", "c++", "java", "python"]
    assert len(stored["triples"]) == 11
    assert sum(stored["removed"].values()) == 4
    assert (stored["questions"], stored["answers"], stored["orphans"], stored["several_languages"]) == (16, 16, 1, 1)
    assert list_files(agent.folder / "new/qa") == FILES


def test_standard_input_any_tag_and_other_sites_are_read(agent: Commands) -> None:
    command = [sys.executable, "-m", "agent", "corpus", "stackexchange", "-", "-o", "qa", "--json"]
    command += ["--languages", "shell, SHELL", "--site", "example.org"]
    dump = DUMP.read_bytes().replace(b"&lt;python&gt;", b"&lt;shell&gt;")
    done = subprocess.run(command, cwd=agent.folder, input=dump, capture_output=True, check=True)
    assert json.loads(done.stdout)["triples"] == {"shell": SIZES["python"]}
    assert len(open_benchmark(agent.folder / "qa", language="shell").queries) == SIZES["python"]["test"]
    assert {row["url"].split("/")[2] for row in read_lines(agent.folder / "qa/test.jsonl")} == {"example.org"}


class TestReaders:
    def test_load_dataset_reads_the_parts(self, triples: Commands) -> None:
        dataset = load_dataset(triples.folder / "qa", triples.folder / "cache")
        assert {name: len(rows) for name, rows in dataset.items()} == ROWS
        assert dataset["test"][0]["tags"] == ["c", "bit-manipulation"]
        assert dataset["test"][0]["created"] == "2019-01-17T09:30:00.000+00:00"

    def test_decontaminate_reads_a_part_and_describe_all_parts(self, triples: Commands) -> None:
        test = read_lines(triples.folder / "qa/test.jsonl")[0]
        triples.write("benchmark.jsonl", [{"query": "power of two", "code": test["code"], "label": 1}])
        options = "--benchmark", "benchmark.jsonl", "-o", "clean.jsonl", "--json"
        assert triples("corpus", "decontaminate", "qa/train.jsonl", *options).json["kept"] == ROWS["train"]
        assert read_lines(triples.folder / "clean.jsonl") == read_lines(triples.folder / "qa/train.jsonl")
        again = triples("corpus", "decontaminate", "qa/test.jsonl", *options, "--force").json
        assert again["removed"]["query"] == 1
        document = triples("corpus", "describe", "qa", "--json").json
        assert {name: part["pairs"] for name, part in document["parts"].items()} == ROWS
        assert document["licences"] == {"CC BY-SA 4.0": sum(ROWS.values())}

    def test_training_reads_all_languages_of_a_file_or_one_language_of_the_folder(self, triples: Commands) -> None:
        data = read_training_data(triples.folder / "qa/train.jsonl", progress=lambda *_: None)
        assert Counter(data.languages) == {"c": 6, "python": 2}
        assert (data.labels, data.licences) == ({"1": 8, "0": 0, "undecided": 0}, {"CC BY-SA 4.0": 8})
        data = read_training_data(triples.folder / "qa", language="c", progress=lambda *_: None)
        assert data.validation is not None
        assert (data.languages, data.validation.name, data.tests[0].name) == (["c"] * 6, "qa-c-validation", "qa-c-test")

    def test_searchers_are_measured_on_a_language(self, triples: Commands) -> None:
        command = "retrieval", "run", "qa", "--searcher", "bm25", "-o", "run"
        for options in ((), ("--language", "rust"), ("--language", "c", "--split", "dev")):
            assert triples(*command, *options).code == WRONG_USAGE
        assert triples(*command, "--language", "c", "--split", "test").code == DONE
        scored = triples("retrieval", "score", "run", "--metric", "RR@10", "--metric", "R@100", "--json")
        assert (scored.code, "RR@10" in scored.out) == (DONE, True)


class TestBenchmark:
    def test_the_queries_of_a_part_search_the_answers_of_all_parts(self, triples: Commands) -> None:
        benchmark = open_benchmark(triples.folder / "qa", language="C")
        all_rows = (row for part in ROWS for row in read_lines(triples.folder / f"qa/{part}.jsonl"))
        rows = [row for row in all_rows if row["language"] == "c"]
        assert benchmark.codes == {row["answer_id"]: row["code"] for row in rows}
        question = rows[-1]
        assert benchmark.queries == {question["id"]: f"{question['question']}\n{question['description']}"}
        assert benchmark.grades == {question["id"]: {question["answer_id"]: 1}}
        assert (benchmark.language, benchmark.name) == ("c", "qa-c-test")

    def test_a_malformed_row_is_an_error_with_the_line(self, triples: Commands) -> None:
        rows = read_lines(triples.folder / "qa/test.jsonl")
        triples.write("qa/test.jsonl", [{**row, "answer_id": None} for row in rows])
        with pytest.raises(InputError) as error:
            open_benchmark(triples.folder / "qa", language="c")
        assert (Path(error.value.path or "").name, error.value.line) == ("test.jsonl", 1)


class TestOutput:
    def test_an_existing_folder_is_replaced_only_with_force(self, triples: Commands) -> None:
        assert triples("corpus", "stackexchange", DUMP, "-o", "qa").code == WRONG_USAGE
        assert triples("corpus", "stackexchange", DUMP, "-o", "qa", "--force", "--languages", "python").code == DONE
        assert {row["language"] for row in read_lines(triples.folder / "qa/test.jsonl")} == {"python"}
        triples.write("qa/notes.txt", "mine")
        assert triples("corpus", "stackexchange", DUMP, "-o", "qa", "--force").code == WRONG_USAGE
        assert list_files(triples.folder / "qa") == FILES | {"notes.txt"}

    @pytest.mark.parametrize("content", DAMAGED)
    def test_an_unusable_dump_leaves_no_output(self, agent: Commands, content: bytes) -> None:
        agent.write("Posts.xml", content)
        done = agent("corpus", "stackexchange", "Posts.xml", "-o", "qa")
        assert (done.code, "Posts.xml:" in done.err, list(agent.folder.glob("*qa*"))) == (WRONG_USAGE, True, [])
        assert (": 1)" in done.err, "--languages" in done.err) == (content == NO_ANSWER, False)

    @pytest.mark.parametrize("options", WRONG)
    def test_wrong_usage_leaves_no_output(self, agent: Commands, options: str) -> None:
        (agent.folder / "in").mkdir()
        agent.write("in/Posts.xml", DUMP.read_bytes())
        done = agent("corpus", "stackexchange", "in/Posts.xml", "-o", *options.split())
        assert (done.code, ": 16)" in done.err) == (WRONG_USAGE, options.endswith("py"))
        assert (list_files(agent.folder / "in"), (agent.folder / "qa").exists()) == ({"Posts.xml"}, False)

    def test_the_card_omits_empty_parts(self, agent: Commands) -> None:
        agent.write("Posts.xml", DUMP.read_bytes().replace(b"&lt;python&gt;", b"", 3))
        agent("corpus", "stackexchange", "Posts.xml", "-o", "qa", "--languages", "python")
        assert [file["split"] for file in read_card(agent.folder / "qa")[0]["configs"][0]["data_files"]] == ["test"]

    def test_a_folder_that_cannot_be_written_stops_the_command(self, agent: Commands) -> None:
        with tiny_disk(agent.folder / "tiny") as folder:
            (folder / "filler").write_bytes(b"x" * (508 << 10))
            full = agent("corpus", "stackexchange", DUMP, "-o", "tiny/qa")
            remount(folder, "ro")
            assert agent("corpus", "stackexchange", DUMP, "-o", "tiny/qa").code == WRONG_USAGE
        assert (full.code, "saved" in full.err) == (STOPPED, False)
