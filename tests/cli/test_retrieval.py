"""`agent retrieval run`, `score` and `compare`: output, files and resuming."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.cli.exit_codes import DONE, STOPPED, WRONG_USAGE
from agent.retrieval.folder import RetrievalFolder
from agent.retrieval.searchers.registry import SEARCHERS
from tests.cli.commands import Commands, make_environment
from tests.cli.processes import wait_until
from tests.disks import remount, tiny_disk
from tests.retrieval.pooled import CODES, QUERIES, make_folder, write_benchmark
from tests.retrieval.test_blindness import FUNCTIONS, write_mutants
from tests.views.runs import HOSTILE

BENCHMARK = ("queries.jsonl", "--codes", "codes.jsonl", "-o", "r")
LEXICAL = ("--searcher", "bm25", "--searcher", "bm25-lucene")
LIBRARIES = ("bm25s", "faiss", "gensim", "numpy", "scipy", "sklearn", "torch", "sentence_transformers")
# a searcher that never ends
ENDLESS = """
import sys, time
from agent.retrieval.searchers import registry
import agent.cli
class Endless:
    name, about, settings = "bm25-lucene", "endless", {}
    def index(self, codes, progress):
        print("begun", file=sys.stderr, flush=True)
    def search(self, queries, depth, progress):
        while True:
            time.sleep(0.01)
            yield from ()
make = registry.make_searcher
registry.make_searcher = lambda name, options: Endless() if name == "bm25-lucene" else make(name, options)
agent.cli.main()
"""


@pytest.fixture(scope="module")
def _ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranked")
    write_benchmark(folder)
    command = [sys.executable, "-m", "agent", "retrieval", "run", *BENCHMARK, *LEXICAL]
    subprocess.run(command, cwd=folder, env=make_environment(), check=True)
    return folder


@pytest.fixture
def ranked(agent: Commands, _ranked: Path) -> Commands:
    """A folder `r` in which two searchers ranked three queries; one query has no relevant code."""
    shutil.copytree(_ranked, agent.folder, dirs_exist_ok=True)
    return agent


def read_document(agent: Commands, name: str) -> Any:
    """Read a JSON document of the folder `r`."""
    return json.loads((agent.folder / "r" / f"{name}.json").read_text())


class TestRun:
    def test_prints_results_and_cost_of_each_searcher(self, agent: Commands) -> None:
        write_benchmark(agent.folder)
        result = agent("retrieval", "run", *BENCHMARK, *LEXICAL)
        assert (result.code, "3 queries, 5 snippets" in result.err) == (DONE, True)
        heads, *rows, _, last = result.out.splitlines()
        assert heads.split("  ")[0] == "searcher"
        assert [row.split()[0] for row in rows] == ["bm25", "bm25-lucene"]
        assert last.endswith("agent retrieval score r")

    def test_generated_code_is_searched_only_on_request_and_in_later_commands(self, agent: Commands) -> None:
        codes = {"reverse a list": "web", "sort a list": "generated"}
        agent.write("p.jsonl", [{"query": q, "code": q, "label": 1, "source": s} for q, s in codes.items()])
        search = ("retrieval", "run", "p.jsonl", "--searcher", "bm25", "--json", "-o")
        assert agent(*search, "without").json["benchmark"]["codes"] == 1
        assert agent(*search, "with", "--with-generated").json["benchmark"]["codes"] == 2
        agent.write("mine.trec", "1 Q0 2 1 2.5 mine\n")  # the second code is generated
        assert agent("retrieval", "score", "with", "--ranking", "mine=mine.trec").code == DONE
        assert agent("retrieval", "score", "without", "--ranking", "mine=mine.trec").code == WRONG_USAGE
        assert agent(*search, "without", "--with-generated").code == WRONG_USAGE

    def test_finished_searchers_are_not_run_again(self, ranked: Commands) -> None:
        manifest = (ranked.folder / "r/manifest.json").read_bytes()
        result = ranked("retrieval", "run", *BENCHMARK, *LEXICAL)
        assert re.findall(r"^(\S+): finished", result.err, re.M) == ["bm25", "bm25-lucene"]
        assert (ranked.folder / "r/manifest.json").read_bytes() == manifest
        more = ranked("retrieval", "run", *BENCHMARK, *LEXICAL, "--searcher", "tfidf", "--json").json
        assert list(more["searchers"]) == ["bm25", "bm25-lucene", "tfidf"]
        assert (more["benchmark"]["queries"], more["code_view"], more["depth"]) == (3, "full", 1000)

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ((*BENCHMARK, "--searcher", "bm52"), "'bm52'"),
            ((*BENCHMARK, "--searcher", "bm25", "--searcher", "bm25"), "--searcher: bm25, bm25"),
            ((*BENCHMARK, "--searcher", "bm25", "--max-tokens", "64"), "--max-tokens"),
            pytest.param((*BENCHMARK, "--searcher", "minilm:."), "minilm:FOLDER", marks=pytest.mark.embed),
            (("none.jsonl", "--searcher", "bm25"), "none.jsonl: "),
            (
                ("queries.jsonl", "--codes", "codes.jsonl", "--searcher", "bm25", "-o", "codes.jsonl"),
                "-o: codes.jsonl ",
            ),
        ],
    )
    def test_wrong_usage_leaves_no_files(self, agent: Commands, arguments: tuple[str, ...], text: str) -> None:
        write_benchmark(agent.folder)
        agent.check_refused(text, "retrieval", "run", *arguments)
        assert agent.read_files().keys() == {"codes.jsonl", "queries.jsonl"}

    def test_a_default_folder_is_named_after_the_benchmark(self, agent: Commands) -> None:
        write_benchmark(agent.folder)
        agent("retrieval", "run", *BENCHMARK[:-2], "--searcher", "bm25")
        assert (agent.folder / "runs/retrieval-queries/manifest.json").is_file()
        assert agent("runs", "--json").json["runs"] == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_command_resumes_after_ctrl_c_or_a_kill(self, agent: Commands, number: signal.Signals) -> None:
        write_benchmark(agent.folder)
        command = ["retrieval", "run", *BENCHMARK, *LEXICAL]
        with subprocess.Popen(
            [sys.executable, "-c", ENDLESS, *command],
            cwd=agent.folder, env=make_environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            wait_until(lambda: process.stderr.readline() == "begun\n", "the search")  # type: ignore[union-attr]
            wait_until(lambda: any(agent.folder.glob("r/rankings/.bm25-*")), "the draft")
            os.kill(process.pid, number)
            err = process.stderr.read()
        if number is signal.SIGINT:
            assert process.returncode == STOPPED
            assert re.match(r"Interrupted\.\n.* r: bm25\.\n.*\n  agent retrieval ", err[err.index("Interrupted") :])
        result = agent(*command)
        assert (result.code, "bm25: finished" in result.err) == (DONE, True)
        assert sorted(path.name for path in agent.folder.glob("r/rankings/*")) == ["bm25-lucene.trec", "bm25.trec"]
        assert list(agent.folder.glob("r/rankings/.*")) == []

    @pytest.mark.parametrize("searcher", ["bm25", "bm25-lucene"])
    def test_missing_extra_is_named(self, agent: Commands, searcher: str) -> None:
        write_benchmark(agent.folder)
        code = f"import sys\nfor name in {LIBRARIES!r}: sys.modules[name] = None\nimport agent.cli; agent.cli.main()"
        result = agent.run_python(code, "retrieval", "run", *BENCHMARK, "--searcher", searcher)
        assert (result.code, "Traceback" in result.err) == (WRONG_USAGE, False)
        assert "test-driven-annotator[retrieval]" in result.err

    def test_help_and_docs_name_every_searcher(self, agent: Commands) -> None:
        help_text = "".join(agent("retrieval", "run", "--help").out.split())
        page = (Path(__file__).parents[2] / "docs/measuring-searchers.md").read_text()
        assert [name for name in SEARCHERS if f"{name}," not in help_text or f"`{name}`" not in page] == []

    def test_full_disk_stops_the_search_and_more_space_resumes_it(self, agent: Commands) -> None:
        write_benchmark(agent.folder)
        rows = [{"query-idx": n, "query": "add return a b", "code-idx": "c1", "label": 1} for n in range(5000)]
        agent.write("queries.jsonl", rows)
        with tiny_disk(agent.folder / "tiny") as disk:
            command = ("retrieval", "run", *BENCHMARK[:-1], "tiny/r", "--searcher", "bm25")
            stopped = agent(*command)
            assert (stopped.code, "disk" in stopped.err) == (STOPPED, True), stopped.err
            assert list(disk.glob("r/rankings/*")) == []
            remount(disk, "size=64m")
            assert agent(*command).code == DONE


class TestScore:
    def test_scores_are_written_and_printed(self, ranked: Commands) -> None:
        result = ranked("retrieval", "score", "r", "--metric", "RR", "--metric", "R@10")
        assert re.search(r"^searcher +RR +R@10$", result.out, re.MULTILINE)
        assert re.search(r"\b2 of 3 queries\b.*\b1\b", result.out)
        document = read_document(ranked, "scores")
        assert document == ranked("retrieval", "score", "r", "--metric", "RR", "--metric", "R@10", "--json").json
        assert [row["searcher"] for row in document["searchers"]] == ["bm25", "bm25-lucene"]

    def test_rankings_are_imported(self, ranked: Commands) -> None:
        ranked.write("mine.trec", "q1 Q0 c1 1 9 x\nq2 Q0 c3 1 9 x\nq2 Q0 c2 1 8 x\n")
        document = ranked("retrieval", "score", "r", "--ranking", "mine=mine.trec", "--metric", "RR", "--json").json
        assert {row["searcher"]: row["values"]["RR"]["mean"] for row in document["searchers"]}["mine"] == 0.75
        assert ranked("retrieval", "score", "r", "--metric", "RR", "--json").json == document

    @pytest.mark.parametrize(("ranking", "text"), [("mine=mine.trec", "mine.trec:2"), ("mine.trec", "NAME=FILE")])
    def test_invalid_rankings_are_rejected(self, ranked: Commands, ranking: str, text: str) -> None:
        ranked.write("mine.trec", "q1 Q0 c1 1 9 x\nq1 Q0 c9 1 9 x\n")
        ranked.check_refused(text, "retrieval", "score", "r", "--ranking", ranking)
        assert "mine" not in RetrievalFolder(ranked.folder / "r").rankings

    def test_cutoff_beyond_the_depth_is_noted(self, agent: Commands) -> None:
        write_benchmark(agent.folder)
        agent("retrieval", "run", *BENCHMARK, "--searcher", "bm25", "--depth", "2")
        result = agent("retrieval", "score", "r", "--metric", "R@2", "--metric", "R@3")
        assert re.search(r"R@3: .*\b2 .*--depth", result.err)

    def test_rankings_of_different_depths_are_noted(self, ranked: Commands) -> None:
        ranked.write("mine.trec", "".join(f"q{q} Q0 c{c} 1 {9 - c} x\n" for q in (1, 2) for c in (1, 2)))
        assert ranked("retrieval", "score", "r", "--json").json["notes"] == []
        for command in (("score", "r", "--ranking", "mine=mine.trec"), ("compare", "r")):
            result = ranked("retrieval", *command, "--json")
            (note,) = result.json["notes"]
            assert "bm25 5, bm25-lucene 5, mine 2" in note
            assert note in result.err

    @pytest.mark.parametrize("sizes", [(1, 2, 3), (5, 5, 4)])
    def test_rankings_with_the_codes_that_a_tool_found_have_no_depth(
        self, ranked: Commands, sizes: tuple[int, ...]
    ) -> None:
        lines = [f"q{q} Q0 c{c + 1} 1 {9 - c} x\n" for q, size in enumerate(sizes, 1) for c in range(size)]
        ranked.write("mine.trec", "".join(lines))
        document = ranked("retrieval", "score", "r", "--ranking", "mine=mine.trec", "--json").json
        assert (len(document["searchers"]), document["notes"]) == (3, [])

    def test_alpha_adds_stability(self, ranked: Commands) -> None:
        assert "stability" not in ranked("retrieval", "score", "r", "--json").json
        result = ranked("retrieval", "score", "r", "--stability")
        assert (result.code, "alpha" in result.out, read_document(ranked, "scores")["stability"]) == (DONE, True, [])

    def test_unknown_metric_changes_no_rankings_or_scores(self, ranked: Commands) -> None:
        ranked("retrieval", "score", "r", "--metric", "RR")
        before = read_document(ranked, "scores")
        (ranked.folder / "mine.trec").write_text("q1 Q0 c1 1 1 x\n")
        score = ("retrieval", "score", "r", "--ranking", "mine=mine.trec", "--metric", "nonsense")
        ranked.check_refused("nonsense", *score)
        assert read_document(ranked, "scores") == before
        assert "mine" not in RetrievalFolder(ranked.folder / "r").rankings

    def test_folder_without_rankings_names_the_command(self, agent: Commands) -> None:
        folder = make_folder(agent.folder, {})
        assert "agent retrieval run" in agent("retrieval", "score", folder).err
        assert "none" in agent.check_refused("agent retrieval run", "retrieval", "score", "none")

    def test_mutants_measure_blindness_instead_of_scores(self, ranked: Commands) -> None:
        write_mutants(ranked.folder / "m.jsonl", *FUNCTIONS)
        result = ranked("retrieval", "score", "r", "--mutants", "m.jsonl")
        assert re.search(r"^bm25 +accuracy +wrong query +gap +contrasts$", result.out, re.MULTILINE)
        command = ("retrieval", "score", "r", "--mutants", "m.jsonl", "--searcher", "bm25-lucene", "--searcher", "bm25")
        document = ranked(*command, "--json").json
        assert document == read_document(ranked, "blindness")
        assert [row["searcher"] for row in document["searchers"]] == ["bm25-lucene", "bm25"]
        assert [row["total"]["gap_difference"] for row in document["searchers"]] == [
            None,
            {"mean": 0, "interval": None},
        ]
        assert not (ranked.folder / "r" / "scores.json").exists()
        assert "score --mutants" in ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf").err
        ranked.check_refused("--mutants", *command, "--metric", "RR")
        ranked.check_refused("--mutants", "retrieval", "score", "r", "--searcher", "bm25")
        ranked.check_refused("none.jsonl", "retrieval", "score", "r", "--mutants", "none.jsonl")


class TestCompare:
    def test_compare_uses_the_metrics_of_the_scores(self, ranked: Commands) -> None:
        ranked("retrieval", "score", "r", "--metric", "RR", "--seed", "7", "--queries", "all")
        result = ranked("retrieval", "compare", "r")
        assert result.out.startswith("Differences in RR\n")
        assert re.search(r"^bm25 − bm25-lucene +[+-]0\.\d{3}", result.out, re.MULTILINE)
        document = ranked("retrieval", "compare", "r", "--json").json
        assert (document["queries"], document["seed"], document["against"]) == (3, 7, None)
        assert [(row["metric"], row["first"], row["second"]) for row in document["comparisons"]] == [
            ("RR", "bm25", "bm25-lucene")
        ]  # fmt: skip
        assert document == read_document(ranked, "comparison")

    def test_all_searchers_are_compared_with_one(self, ranked: Commands) -> None:
        ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf")
        document = ranked("retrieval", "compare", "r", "--metric", "AP", "--against", "bm25", "--json").json
        assert [(row["first"], row["second"]) for row in document["comparisons"]] == [
            ("bm25-lucene", "bm25"), ("tfidf", "bm25")
        ]  # fmt: skip
        ranked.check_refused(" none ", "retrieval", "compare", "r", "--against", "none")

    def test_only_named_searchers_are_compared(self, ranked: Commands) -> None:
        ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf")
        compare = ("retrieval", "compare", "r", "--metric", "RR", "--json")
        for options, pairs in (
            (("--searcher", "bm25", "--searcher", "tfidf"), [("bm25", "tfidf")]),
            (("--searcher", "tfidf", "--against", "bm25"), [("tfidf", "bm25")]),
        ):
            document = ranked(*compare, *options).json
            assert [(row["first"], row["second"]) for row in document["comparisons"]] == pairs
        ranked.check_refused(" none", *compare, "--searcher", "bm25", "--searcher", "none")

    def test_outdated_scores_are_kept_and_marked(self, ranked: Commands) -> None:
        ranked("retrieval", "score", "r", "--metric", "RR")
        assert ranked("retrieval", "compare", "r", "--json").json["out_of_date"] is False
        documents = {name: read_document(ranked, name) for name in ("scores", "comparison")}
        result = ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf")
        assert {name: read_document(ranked, name) for name in documents} == {
            name: {**document, "out_of_date": True} for name, document in documents.items()
        }
        for command in ("score", "compare"):
            assert f"agent retrieval {command} r" in result.err
            assert ranked("retrieval", command, "r", "--json").json["out_of_date"] is False
        assert "agent retrieval" not in ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf").err


def test_hostile_searcher_names_are_escaped(ranked: Commands) -> None:
    hostile = HOSTILE.replace("\x00", "").replace("\ud800", "").replace("=", "")
    ranked.write("mine.trec", "q1 Q0 c1 1 9 x\n")
    for command in (("score", "r", "--ranking", f"{hostile}=mine.trec"), ("compare", "r")):
        result = ranked("retrieval", *command)
        assert (result.code, set("\x1b\u202e") & set(result.out)) == (DONE, set())
    assert {path.name for path in ranked.folder.glob("[!.]*")} == {"codes.jsonl", "mine.trec", "queries.jsonl", "r"}


@pytest.mark.parametrize("code", ["import agent", "import agent.cli; sys.argv[1:] = ['--help']; agent.cli.main()"])
def test_extras_are_imported_lazily(agent: Commands, code: str) -> None:
    imported = f"sorted(set(sys.modules) & set({LIBRARIES!r}))"
    result = agent.run_python(f"import atexit, sys\natexit.register(lambda: print({imported}))\n{code}")
    assert result.out.splitlines()[-1] == "[]", result.err


def test_rankings_of_a_run_are_written_to_its_folder(agent: Commands) -> None:
    rows = [{"id": code, "query": f"how to {QUERIES['q1'][0]} {code}", "code": text} for code, text in CODES.items()]
    pairs = agent.write("p.jsonl", rows)
    agent("annotate", pairs, "--model", "heuristic", "--variant", "single_llm", "-o", "run")
    assert agent("retrieval", "run", "run", "--searcher", "bm25").code == DONE
    assert (agent.folder / "run/retrieval/rankings/bm25.trec").is_file()
    assert agent("retrieval", "score", "run/retrieval", "--queries", "all").code == DONE
    assert "Searchers" in (agent("report", "run").out and (agent.folder / "run/report.html").read_text())
