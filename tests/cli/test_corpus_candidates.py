"""`agent corpus candidates`: output, reused vectors, stops and wrong usage."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from agent.cli.exit_codes import DONE, STOPPED
from agent.datasets.reading import read_pairs
from agent.types import Origin
from tests.cli.commands import Commands
from tests.cli.processes import wait_until
from tests.corpus.test_combine import compute_scores
from tests.exports.runs import read_lines
from tests.llm.server import Answer, ChatServer
from tests.retrieval.pooled import CODES, QUERIES, write_benchmark
from tests.retrieval.searchers.test_endpoint import answer_vectors, hash_vector, refuse

SHA = "0123456789abcdef0123456789abcdef01234567"
URL = f"https://github.com/o/r/blob/{SHA}/a/b.py#L3-L4"
COMMAND = ("corpus", "candidates", "queries.jsonl", "codes.jsonl", "-o", "new/pairs.jsonl", "--searcher")


@pytest.fixture
def corpus(agent: Commands) -> Commands:
    """The command in a folder with three queries and five codes."""
    write_benchmark(agent.folder)
    return agent


def read_pair_scores(corpus: Commands) -> dict[str, Any]:
    return {pair.id: pair.meta["score"] for pair in read_pairs(corpus.folder / "new/pairs.jsonl")}


def test_any_searchers_are_fused_by_rank(corpus: Commands) -> None:
    options = ("bm25", "--searcher", "lsa", "--combine", "rrf", "--top", "2", "--max-uses", "1")
    summary = corpus(*COMMAND, *options, "--json").json
    assert (summary["queries"], summary["codes"], list(summary["overlap"])) == (3, 5, ["bm25", "lsa"])
    pairs = list(read_pairs(corpus.folder / "new/pairs.jsonl"))
    assert (pairs[0].id, pairs[0].meta["score"]) == ("q1/c1", round(2 / 61, 15))
    assert pairs[0].meta["scores"].keys() == {"bm25", "lsa"}
    assert summary["pairs"] == len(pairs) == summary["codes_by_uses"]["1"]
    lines = (corpus.folder / "new/pairs.removed.jsonl").read_text().splitlines()
    assert summary["removed"] == {"max-uses": len(lines)}
    assert (
        corpus(*COMMAND, *options, "--force").out.splitlines()[-1]
        == "Next: agent annotate new/pairs.jsonl --model MODEL"
    )


def test_the_origin_of_a_row_of_codesearchnet_is_in_pairs_runs_and_exports(agent: Commands) -> None:
    code = "def size(self, unit):\n    return self.length / unit"
    row = {"repository_name": "o/r", "func_path_in_repository": "a/b.py", "func_name": "Box.size", "language": "python"}
    agent.write("rows.jsonl", [{**row, "whole_func_string": code, "func_code_url": URL}])
    agent.write("q.jsonl", [{"id": "q", "query": "size of a box"}])
    agent("corpus", "code", "rows.jsonl", "-o", "codes.jsonl", "--map", "code=whole_func_string")
    agent("corpus", "candidates", "q.jsonl", "codes.jsonl", "-o", "p.jsonl", "--searcher", "bm25", "--combine", "rrf")
    agent("annotate", "p.jsonl", "--variant", "ps_fa", "--model", "heuristic", "-o", "run")
    assert agent("export", "run", "--to", "jsonl", "-o", "labelled.jsonl").code == DONE
    origin = {"repository": "o/r", "commit": SHA, "path": "a/b.py", "lines": [3, 4], "class": "Box", "name": "size"}
    assert read_lines(agent.folder / "labelled.jsonl")[0]["origin"] == origin
    for file in ("p.jsonl", "run/input.jsonl.gz", "labelled.jsonl"):
        (pair,) = read_pairs(agent.folder / file)
        assert pair.origin == Origin.model_validate(origin)


def test_prefixes_are_sent_with_each_text(corpus: Commands) -> None:
    with ChatServer(answer_vectors) as server:
        model = ("openai:m", "--base-url", server.url, "--query-prefix", "find: ", "--code-prefix", "code: ")
        assert corpus(*COMMAND, *model).code == DONE
        texts = [text for request in server.requests for text in request.body["input"]]
    assert sorted({text.partition(" ")[0] for text in texts}) == ["code:", "find:"]


def test_vectors_of_retrieval_run_are_reused(corpus: Commands) -> None:
    with ChatServer(answer_vectors) as server:
        model = ("openai:m", "--base-url", server.url)
        run = ("retrieval", "run", "queries.jsonl", "--codes", "codes.jsonl", "-o", "r", "--searcher")
        assert corpus(*run, *model).code == DONE
        requests = len(server.requests)
        assert corpus(*COMMAND, *model, "--embeddings", "r/embeddings", "--top", "9").code == DONE
        assert len(server.requests) == requests
    queries, codes = [hash_vector(text) for text, *_ in QUERIES.values()], list(map(hash_vector, CODES.values()))
    rows = zip(QUERIES, compute_scores([(np.array(queries), np.array(codes))], "mean").tolist(), strict=True)
    expected = {f"{query}/{code}": score for query, row in rows for code, score in zip(CODES, row, strict=True)}
    assert read_pair_scores(corpus) == pytest.approx(expected, abs=1e-6)


def test_a_stopped_command_leaves_no_pairs(corpus: Commands) -> None:
    with ChatServer([Answer(wait=300)]) as server:
        running = corpus.start(*COMMAND, "openai:m", "--base-url", server.url)
        wait_until(lambda: bool(server.requests), "a request")
        result = running.stop()
    assert (result.code, "Traceback" in result.err) == (STOPPED, False), result.err
    with ChatServer([refuse(401)]) as server:
        assert corpus(*COMMAND, "openai:m", "--base-url", server.url).code == STOPPED
    assert list(corpus.folder.glob("new/*.jsonl")) == []


def test_a_pilot_is_drawn_without_replacement(corpus: Commands) -> None:
    options = ("lsa", "--top", "1", "--json", "--force", "--pilot")
    assert corpus(*COMMAND, *options, "2", "--seed", "3").json["queries"] == 2
    drawn = sorted(random.Random(3).sample(range(3), 2))
    assert [pair.split("/")[0] for pair in read_pair_scores(corpus)] == [f"q{number + 1}" for number in drawn]
    assert corpus(*COMMAND, *options, "9").json["queries"] == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("lsa", "--searcher", "bm25"), "--combine rrf"),
        (("lsa", "--searcher", "lsa"), "lsa, lsa"),
        (("bm25", "--combine", "rrf", "--min-similarity", "0.5"), "--min-similarity"),
        (("lsa", "-o", "codes.jsonl", "--force"), "codes.jsonl"),
    ],
)
def test_wrong_usage_leaves_no_files(corpus: Commands, options: tuple[str, ...], text: str) -> None:
    corpus.check_refused(text, *COMMAND, *options)
    assert not list(corpus.folder.rglob("pairs*"))
