"""`agent retrieval run`, `score` and `compare`: what they print and keep, and that the same command goes on."""

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

from agent.cli import DONE, STOPPED, WRONG_USAGE
from agent.retrieval.folder import RetrievalFolder
from agent.retrieval.searchers.registry import SEARCHERS
from tests.cli.commands import Commands, environment
from tests.cli.processes import until
from tests.disks import remount, tiny_disk
from tests.retrieval.pooled import CODES, QUERIES, add_rankings, make_folder, write_benchmark
from tests.views.runs import HOSTILE

BENCHMARK = ("queries.jsonl", "--codes", "codes.jsonl", "-o", "r")
LEXICAL = ("--searcher", "bm25", "--searcher", "bm25-lucene")
LIBRARIES = ("bm25s", "faiss", "gensim", "numpy", "scipy", "sklearn", "torch", "sentence_transformers")
# A searcher that says that it searches, and goes on for ever.
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
    subprocess.run(command, cwd=folder, env=environment(), check=True)
    return folder


@pytest.fixture
def ranked(agent: Commands, _ranked: Path) -> Commands:
    """A folder `r` in which two searchers ranked three queries; one query has no relevant code."""
    shutil.copytree(_ranked, agent.folder, dirs_exist_ok=True)
    return agent


def kept(agent: Commands, name: str) -> Any:
    """Return a document of the folder `r`."""
    return json.loads((agent.folder / "r" / f"{name}.json").read_text())


class TestRun:
    def test_it_prints_what_each_searcher_found_and_took(self, agent: Commands) -> None:
        write_benchmark(agent.folder)
        ended = agent("retrieval", "run", *BENCHMARK, *LEXICAL)
        assert (ended.code, "queries: 3 queries, 5 codes" in ended.err) == (DONE, True)
        heads, *rows, last = ended.out.splitlines()
        assert heads.split("  ")[0] == "searcher"
        assert [row.split()[0] for row in rows] == ["bm25", "bm25-lucene"]
        assert last.endswith("next: agent retrieval score r")

    def test_what_was_finished_is_not_run_again(self, ranked: Commands) -> None:
        manifest = (ranked.folder / "r/manifest.json").read_bytes()
        ended = ranked("retrieval", "run", *BENCHMARK, *LEXICAL)
        assert "bm25: finished earlier\nbm25-lucene: finished earlier\n" in ended.err
        assert (ranked.folder / "r/manifest.json").read_bytes() == manifest
        more = ranked("retrieval", "run", *BENCHMARK, *LEXICAL, "--searcher", "tfidf", "--json").json
        assert list(more["searchers"]) == ["bm25", "bm25-lucene", "tfidf"]
        assert (more["benchmark"]["queries"], more["code_view"], more["depth"]) == (3, "full", 1000)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((*BENCHMARK, "--searcher", "bm52"), "'bm52'"),
            ((*BENCHMARK, "--searcher", "bm25", "--searcher", "bm25"), "each may be named once"),
            (("none.jsonl", "--searcher", "bm25"), "none.jsonl: "),
            (("queries.jsonl", "--codes", "codes.jsonl", "--searcher", "bm25", "-o", "codes.jsonl"), "is a file"),
        ],
    )
    def test_wrong_usage_is_said_and_leaves_nothing(
        self, agent: Commands, arguments: tuple[str, ...], said: str
    ) -> None:
        write_benchmark(agent.folder)
        ended = agent("retrieval", "run", *arguments)
        assert (ended.code, said in ended.err, "Traceback" in ended.err) == (WRONG_USAGE, True, False), ended.err
        assert sorted(each.name for each in agent.folder.iterdir() if each.name[0] != ".") == [
            "codes.jsonl", "queries.jsonl"
        ]  # fmt: skip

    def test_a_default_folder_is_named_after_the_benchmark(self, agent: Commands) -> None:
        write_benchmark(agent.folder)
        agent("retrieval", "run", *BENCHMARK[:-2], "--searcher", "bm25")
        assert (agent.folder / "runs/retrieval-queries/manifest.json").is_file()
        assert agent("runs").out == "runs holds no runs\n"

    @pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGKILL])
    def test_after_ctrl_c_or_a_kill_the_same_command_goes_on(self, agent: Commands, signalled: signal.Signals) -> None:
        write_benchmark(agent.folder)
        command = ["retrieval", "run", *BENCHMARK, *LEXICAL]
        with subprocess.Popen(
            [sys.executable, "-c", ENDLESS, *command],
            cwd=agent.folder, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            until(lambda: process.stderr.readline() == "begun\n", "the search")  # type: ignore[union-attr]
            until(lambda: any(agent.folder.glob("r/rankings/.bm25-*")), "the draft")
            os.kill(process.pid, signalled)
            said = process.stderr.read()
        if signalled is signal.SIGINT:
            assert process.returncode == STOPPED
            assert "Interrupted.\nFinished in r: bm25.\nThe same command goes on from there:\n  agent retrieval" in said
        ended = agent(*command)
        assert (ended.code, "bm25: finished earlier" in ended.err) == (DONE, True)
        assert sorted(each.name for each in agent.folder.glob("r/rankings/*")) == ["bm25-lucene.trec", "bm25.trec"]
        assert list(agent.folder.glob("r/rankings/.*")) == []

    @pytest.mark.parametrize("searcher", ["bm25", "bm25-lucene"])
    def test_without_the_extra_it_says_what_to_install(self, agent: Commands, searcher: str) -> None:
        write_benchmark(agent.folder)
        code = f"import sys\nfor each in {LIBRARIES!r}: sys.modules[each] = None\nimport agent.cli; agent.cli.main()"
        command = [sys.executable, "-c", code, "retrieval", "run", *BENCHMARK, "--searcher", searcher]
        ended = subprocess.run(command, cwd=agent.folder, env=environment(), capture_output=True, text=True)
        assert ended.returncode == WRONG_USAGE
        assert "pip install 'test-driven-annotator[retrieval]'" in ended.stderr
        assert "Traceback" not in ended.stderr

    def test_every_searcher_is_named_by_the_help_and_the_docs(self, agent: Commands) -> None:
        told = "".join(agent("retrieval", "run", "--help").out.split())
        page = (Path(__file__).parents[2] / "docs/measuring-searchers.md").read_text()
        assert [name for name in SEARCHERS if f"{name}," not in told or f"`{name}`" not in page] == []

    def test_a_full_disk_stops_it_and_more_room_lets_it_go_on(self, agent: Commands) -> None:
        write_benchmark(agent.folder)
        rows = [{"query-idx": n, "query": "add return a b", "code-idx": "c1", "label": 1} for n in range(5000)]
        agent.write("queries.jsonl", rows)
        with tiny_disk(agent.folder / "tiny") as disk:
            command = ("retrieval", "run", *BENCHMARK[:-1], "tiny/r", "--searcher", "bm25")
            stopped = agent(*command)
            assert (stopped.code, "the disk is full" in stopped.err) == (STOPPED, True), stopped.err
            assert list(disk.glob("r/rankings/*")) == []
            remount(disk, "size=64m")
            assert agent(*command).code == DONE


class TestScore:
    def test_scores_are_kept_and_printed(self, ranked: Commands) -> None:
        ended = ranked("retrieval", "score", "r", "--metric", "RR", "--metric", "R@10")
        assert re.search(r"^ +RR +R@10", ended.out)
        assert "2 of 3 queries; 1 without a relevant code are left out." in ended.out
        found = kept(ranked, "scores")
        assert found == ranked("retrieval", "score", "r", "--metric", "RR", "--metric", "R@10", "--json").json
        assert [each["searcher"] for each in found["searchers"]] == ["bm25", "bm25-lucene"]

    def test_rankings_of_others_are_taken_in(self, ranked: Commands) -> None:
        ranked.write("mine.trec", "q1 Q0 c1 1 9 x\nq2 Q0 c3 1 9 x\nq2 Q0 c2 1 8 x\n")
        found = ranked("retrieval", "score", "r", "--ranking", "mine=mine.trec", "--metric", "RR", "--json").json
        assert {each["searcher"]: each["values"]["RR"]["mean"] for each in found["searchers"]}["mine"] == 0.75
        assert ranked("retrieval", "score", "r", "--metric", "RR", "--json").json == found

    @pytest.mark.parametrize(("ranking", "named"), [("mine=mine.trec", "mine.trec:2"), ("mine.trec", "NAME=FILE")])
    def test_what_cannot_be_taken_in_is_named(self, ranked: Commands, ranking: str, named: str) -> None:
        ranked.write("mine.trec", "q1 Q0 c1 1 9 x\nq1 Q0 c9 1 9 x\n")
        ended = ranked("retrieval", "score", "r", "--ranking", ranking)
        assert (ended.code, named in ended.err) == (WRONG_USAGE, True), ended.err
        assert "mine" not in RetrievalFolder(ranked.folder / "r").rankings

    def test_a_cut_off_beyond_the_depth_is_remarked_on(self, agent: Commands) -> None:
        write_benchmark(agent.folder)
        agent("retrieval", "run", *BENCHMARK, "--searcher", "bm25", "--depth", "2")
        ended = agent("retrieval", "score", "r", "--metric", "R@2", "--metric", "R@3")
        assert re.search(r"note: R@3: .*--depth", ended.err)

    def test_rankings_of_different_depths_are_noted(self, ranked: Commands) -> None:
        ranked.write("mine.trec", "q1 Q0 c1 1 9 x\nq2 Q0 c3 1 9 x\nq2 Q0 c2 1 8 x\n")
        assert ranked("retrieval", "score", "r", "--json").json["notes"] == []
        for command in (("score", "r", "--ranking", "mine=mine.trec"), ("compare", "r")):
            ended = ranked("retrieval", *command, "--json")
            (note,) = ended.json["notes"]
            assert "bm25 5, bm25-lucene 5, mine 2" in note
            assert note in ended.err

    def test_alpha_is_there_when_it_is_asked_for(self, ranked: Commands) -> None:
        assert "stability" not in ranked("retrieval", "score", "r", "--json").json
        ended = ranked("retrieval", "score", "r", "--alpha")
        assert (ended.code, "alpha" in ended.out, kept(ranked, "scores")["stability"]) == (DONE, True, [])

    def test_a_wrong_metric_leaves_rankings_and_scores_as_they_are(self, ranked: Commands) -> None:
        ranked("retrieval", "score", "r", "--metric", "RR")
        before = kept(ranked, "scores")
        (ranked.folder / "mine.trec").write_text("q1 Q0 c1 1 1 x\n")
        ended = ranked("retrieval", "score", "r", "--ranking", "mine=mine.trec", "--metric", "nonsense")
        assert (ended.code, "nonsense" in ended.err) == (WRONG_USAGE, True)
        assert kept(ranked, "scores") == before
        assert "mine" not in RetrievalFolder(ranked.folder / "r").rankings

    def test_a_folder_without_rankings_says_what_to_do(self, agent: Commands) -> None:
        folder = make_folder(agent.folder, {})
        for path in (str(folder), "none"):
            error = agent("retrieval", "score", path).err
            assert (path in error, "agent retrieval run" in error) == (True, True)

    def test_no_cell_is_cut_on_a_narrow_terminal(self, ranked: Commands) -> None:
        name = "hf:" + "long-name-" * 9
        add_rankings(ranked.folder / "r", {name: {"q1": {"c1": 1.0}}})
        for command in (("score", "r"), ("compare", "r")):
            printed = ranked("retrieval", *command, COLUMNS="80").out
            assert "…" not in printed
            assert name in re.sub(r"\s", "", printed)


class TestCompare:
    def test_pairs_of_searchers_are_tested_by_the_metrics_of_the_scores(self, ranked: Commands) -> None:
        ranked("retrieval", "score", "r", "--metric", "RR", "--seed", "7", "--queries", "all")
        ended = ranked("retrieval", "compare", "r")
        assert re.search(r"^RR +difference +95% interval", ended.out)
        assert re.search(r"^bm25 − bm25-lucene +[+-]0\.\d{3}", ended.out, re.MULTILINE)
        found = ranked("retrieval", "compare", "r", "--json").json
        assert (found["queries"], found["seed"], found["against"]) == (3, 7, None)
        assert [(each["metric"], each["first"], each["second"]) for each in found["comparisons"]] == [
            ("RR", "bm25", "bm25-lucene")
        ]  # fmt: skip
        assert found == kept(ranked, "comparison")

    def test_one_searcher_can_be_tested_against_all_others(self, ranked: Commands) -> None:
        ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf")
        found = ranked("retrieval", "compare", "r", "--metric", "AP", "--against", "bm25", "--json").json
        assert [(each["first"], each["second"]) for each in found["comparisons"]] == [
            ("bm25-lucene", "bm25"), ("tfidf", "bm25")
        ]  # fmt: skip
        ended = ranked("retrieval", "compare", "r", "--against", "none")
        assert (ended.code, bool(re.search(r"\bnone\b.*bm25", ended.err))) == (WRONG_USAGE, True)

    def test_named_searchers_alone_are_compared(self, ranked: Commands) -> None:
        ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf")
        compare = ("retrieval", "compare", "r", "--metric", "RR", "--json")
        for named, pairs in (
            (("--searcher", "bm25", "--searcher", "tfidf"), [("bm25", "tfidf")]),
            (("--searcher", "tfidf", "--against", "bm25"), [("tfidf", "bm25")]),
        ):
            found = ranked(*compare, *named).json
            assert [(each["first"], each["second"]) for each in found["comparisons"]] == pairs
        ended = ranked(*compare, "--searcher", "bm25", "--searcher", "none")
        assert (ended.code, bool(re.search(r"\bnone\b.*bm25", ended.err))) == (WRONG_USAGE, True)

    def test_scores_of_other_rankings_stay_and_are_marked(self, ranked: Commands) -> None:
        ranked("retrieval", "score", "r", "--metric", "RR")
        assert ranked("retrieval", "compare", "r", "--json").json["out_of_date"] is False
        before = {name: kept(ranked, name) for name in ("scores", "comparison")}
        ended = ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf")
        assert {name: kept(ranked, name) for name in before} == {
            name: {**document, "out_of_date": True} for name, document in before.items()
        }
        for command in ("score", "compare"):
            assert f"agent retrieval {command} r" in ended.err
            assert ranked("retrieval", command, "r", "--json").json["out_of_date"] is False
        assert "out of date" not in ranked("retrieval", "run", *BENCHMARK, "--searcher", "tfidf").err


def test_names_of_others_do_not_reach_the_terminal_as_they_are(ranked: Commands) -> None:
    hostile = HOSTILE.replace("\x00", "").replace("\ud800", "").replace("=", "")
    ranked.write("mine.trec", "q1 Q0 c1 1 9 x\n")
    ended = ranked("retrieval", "score", "r", "--ranking", f"{hostile}=mine.trec")
    assert ended.code == DONE, ended.err
    for printed in (ended.out, ranked("retrieval", "compare", "r").out, ranked("retrieval", "score", "r").out):
        assert "\x1b" not in printed
        assert "\u202e" not in printed
    assert sorted(each.name for each in ranked.folder.iterdir() if each.name[0] != ".") == [
        "codes.jsonl", "mine.trec", "queries.jsonl", "r"
    ]  # fmt: skip


@pytest.mark.parametrize("code", ["import agent", "import agent.cli; sys.argv[1:] = ['--help']; agent.cli.main()"])
def test_nothing_of_the_extras_is_imported_before_it_is_needed(code: str) -> None:
    script = (
        f"import atexit, sys\natexit.register(lambda: print(sorted(set(sys.modules) & set({LIBRARIES!r}))))\n{code}"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment())
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr


def test_a_finished_run_is_searched_in_its_own_folder(agent: Commands) -> None:
    rows = [{"id": code, "query": f"how to {QUERIES['q1'][0]} {code}", "code": text} for code, text in CODES.items()]
    pairs = agent.write("p.jsonl", rows)
    agent("annotate", pairs, "--model", "heuristic", "--variant", "single_llm", "-o", "run")
    assert agent("retrieval", "run", "run", "--searcher", "bm25").code == DONE
    assert (agent.folder / "run/retrieval/rankings/bm25.trec").is_file()
    assert agent("retrieval", "score", "run/retrieval", "--queries", "all").code == DONE
    assert "Searchers" in (agent("report", "run").out and (agent.folder / "run/report.html").read_text())
