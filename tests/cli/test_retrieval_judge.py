"""`agent retrieval judge`: judges each pair once, resumes, and computes the changes correctly."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.retrieval.folder import RetrievalFolder
from agent.runs.store.reviews import Review, ReviewLog
from tests.cli.commands import Commands, read_annotations, reply
from tests.llm.server import Answer, ChatServer, Request, broken
from tests.retrieval.pooled import CODES, JUDGED, QUERIES, RANKINGS, add_rankings, make_folder
from tests.retrieval.test_judging import propose
from tests.scripts import label

MODEL = ("--model", "gpt-4o-mini", "--variant", "single_llm", "--concurrency", "1")
BEFORE = {"one": {"RR": 3 / 4, "Success@1": 1 / 2, "R@10": 1}, "two": {"RR": 5 / 12, "Success@1": 0, "R@10": 1}}
AFTER = {"one": {"RR": 5 / 6, "Success@1": 2 / 3, "R@10": 1}, "two": {"RR": 3 / 4, "Success@1": 1 / 2, "R@10": 1}}
"""Computed by hand. In `two`, c3 and c4 tie at the top for q1, and one of them is relevant."""


def find_pair(request: Request) -> tuple[str, str]:
    """Return the query and code of a request."""
    query = next(name for name, (text, _, _) in QUERIES.items() if text in request.prompt)
    return query, next(name for name, text in CODES.items() if text.strip() in request.prompt)


def answer_request(request: Request) -> Answer:
    return reply(label(JUDGED[find_pair(request)]))


@pytest.fixture
def folder(agent: Commands) -> Path:
    return make_folder(agent.folder)


def select_values(changes: dict[str, dict[str, dict[str, float]]], when: str) -> dict[str, dict[str, float]]:
    return {name: {metric: means[metric][when] for metric in BEFORE["one"]} for name, means in changes.items()}


def approximately(expected: dict[str, dict[str, float]]) -> object:
    return {name: pytest.approx(metrics) for name, metrics in expected.items()}


def test_metrics_before_and_after_match_manual_results(agent: Commands, folder: Path) -> None:
    with ChatServer(answer_request) as server:
        result = agent("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", server.url, "--json")
        assert result.code == 0
        assert sorted(map(find_pair, server.requests)) == sorted(JUDGED)
    document = result.json
    assert select_values(document["searchers"], "before") == approximately(BEFORE)
    assert select_values(document["searchers"], "after") == approximately(AFTER)
    assert document["queries"] == {"before": 2, "after": 3, "gained": 1}
    assert {name: document[name] for name in ("pool", "judge", "relevant", "irrelevant", "undecided", "errors")} == {
        "pool": 4, "judge": "single_llm/gpt-4o-mini", "relevant": 2, "irrelevant": 2, "undecided": 0, "errors": 0
    }  # fmt: skip
    scored = agent("retrieval", "score", folder, "--json").json
    assert {
        searcher["searcher"]: searcher["values"]["RR"]["mean"] for searcher in scored["searchers"]
    } == pytest.approx({name: metrics["RR"] for name, metrics in AFTER.items()})
    assert [re.findall(r"\b\d\b", note) for note in scored["notes"]] == [["3", "4"]]
    assert (scored["missing_judgements"], "single_llm/gpt-4o-mini" in scored["notes"][0]) == (0, True)
    alone = agent("retrieval", "score", folder, "--judge", "benchmark", "--json").json
    assert {searcher["searcher"]: searcher["values"]["RR"]["mean"] for searcher in alone["searchers"]} == pytest.approx(
        {name: metrics["RR"] for name, metrics in BEFORE.items()}
    )
    assert (alone["judge"], alone["notes"]) == ("benchmark", [])


def test_a_review_of_a_proposed_pair_is_a_judgement(agent: Commands, folder: Path) -> None:
    proposed = str(propose(folder))
    with ChatServer(answer_request) as server:
        judge = ("retrieval", "judge", folder, "--depth", "2", "--pairs", proposed, *MODEL, "--base-url", server.url)
        assert agent(*judge, "--json").json["reviewed"] == 0
        log = ReviewLog(folder / "judged" / "reviews.jsonl")
        for pair_id in ("q1/c3", "q1/c4"):
            log.append(
                Review(id=pair_id, label=0, reviewer="ann", at=datetime.now(UTC), blind=True, source="queue")  # type: ignore[arg-type]
            )
        assert agent(*judge, "--json").json["reviewed"] == 1
        assert len(server.requests) == len(JUDGED)
    judgements = {
        (query, code): (grade, judge) for query, code, grade, judge in RetrievalFolder(folder).iterate_judgements()
    }
    assert judgements["q1", "c3"] == (0, "review")
    assert judgements["q1", "c4"] == (0, "single_llm/gpt-4o-mini")


def test_new_searchers_and_depth_judge_only_new_pairs(agent: Commands) -> None:
    folder = make_folder(agent.folder, {"one": RANKINGS["one"]})
    with ChatServer(answer_request) as server:
        judge = ("retrieval", "judge", folder, *MODEL, "--base-url", server.url, "--cache", "none.sqlite")
        assert agent(*judge, "--depth", "1").code == 0
        assert list(map(find_pair, server.requests)) == [("q1", "c3")]
        add_rankings(folder, {"two": RANKINGS["two"]})
        assert agent(*judge, "--depth", "2").code == 0
        assert sorted(map(find_pair, server.requests)) == sorted(JUDGED)
        result = agent(*judge, "--depth", "2")
        assert result.code == 0
        assert len(server.requests) == len(JUDGED)
        assert re.search(r"^\d+ pairs .*, 0 ", result.err, re.M)


def test_judging_stopped_by_the_budget_resumes(agent: Commands, folder: Path) -> None:
    with ChatServer(answer_request) as server:
        judge = ("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", server.url, "--json")
        result = agent(*judge, "--budget", "0.0007")
        assert result.code == 3
        assert "\n  agent retrieval judge " in result.err
        paid = len(server.requests)
        assert 0 < paid < 4
        assert result.json["pending"] == 4 - paid
        assert len(list(RetrievalFolder(folder).iterate_judgements())) == 3 + paid
        scored = agent("retrieval", "score", folder, "--json")
        assert scored.json["missing_judgements"] == 4 - paid
        assert f"agent retrieval judge {folder}" in scored.err
        resumed = agent(*judge, "--budget", "1")
        assert resumed.code == 0
        assert len(server.requests) == 4
        assert select_values(resumed.json["searchers"], "after") == approximately(AFTER)


def test_errors_are_counted_and_are_not_judgements(agent: Commands, folder: Path) -> None:
    def fail_for_c4(request: Request) -> Answer:
        return broken(400) if find_pair(request)[1] == "c4" else answer_request(request)

    with ChatServer(fail_for_c4) as server:
        result = agent("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", server.url)
        assert result.code == 1
    judged_line = next(line for line in result.out.splitlines() if line.startswith("judged by "))
    assert re.findall(r"\b\d\b", judged_line.partition(": ")[2]) == ["2", "1", "0", "1", "0"]
    judgements = {(query, code): judge for query, code, _, judge in RetrievalFolder(folder).iterate_judgements()}
    assert ("q1", "c4") not in judgements
    assert judgements["q1", "c1"] == "benchmark"
    assert judgements["q1", "c3"] == "single_llm/gpt-4o-mini"


def test_contradicting_rounds_are_undecided(agent: Commands, folder: Path) -> None:
    asked_pairs: list[tuple[str, str]] = []

    def waver_at_c4(request: Request) -> Answer:
        asked_pairs.append(find_pair(request))
        return (
            reply(label(asked_pairs.count(find_pair(request)) % 2))
            if find_pair(request)[1] == "c4"
            else answer_request(request)
        )

    with ChatServer(waver_at_c4) as server:
        judge = ("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", server.url, "--rounds", "2")
        document = agent(*judge, "--json").json
    assert (document["relevant"], document["irrelevant"], document["undecided"]) == (2, 1, 1)
    assert len(list(RetrievalFolder(folder).iterate_judgements())) == 3 + 3


def test_dry_run_prints_pool_size_and_cost(agent: Commands, folder: Path) -> None:
    before = {file: file.read_bytes() for file in folder.rglob("*.*") if file.name != ".lock"}
    judge = ("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", "http://127.0.0.1:9/v1", "--dry-run")
    document = agent(*judge, "--json").json
    assert (document["pool"], document["new"], document["annotations"]) == (4, 4, 4)
    assert document["cost_usd"] > 0
    assert "cost" in agent(*judge).out
    assert {file: file.read_bytes() for file in folder.rglob("*.*") if file.name != ".lock"} == before


def test_judgements_mark_earlier_scores_as_outdated(agent: Commands, folder: Path) -> None:
    agent("retrieval", "score", folder)
    result = agent("retrieval", "judge", folder, "--depth", "2", "--model", "heuristic", "--variant", "ps_fa")
    assert (result.code, f"agent retrieval score {folder}" in result.err) == (0, True)
    assert json.loads((folder / "scores.json").read_text())["out_of_date"] is True


def test_judging_with_another_variant_is_rejected(agent: Commands, folder: Path) -> None:
    judge = ("retrieval", "judge", folder, "--depth", "2", "--model", "heuristic", "--variant")
    assert agent(*judge, "ps_fa").code == 0
    before = (folder / "judgements.tsv").read_text()
    agent.check_refused(str(folder / "judged"), *judge, "single_llm")
    assert (folder / "judgements.tsv").read_text() == before


def test_the_heuristic_judges_without_network(agent: Commands, folder: Path) -> None:
    result = agent("retrieval", "judge", folder, "--depth", "2", "--model", "heuristic", "--variant", "ps_fa")
    assert result.code == 0
    assert len(read_annotations(folder / "judged")) == 4
    assert re.search(r"^one +before +after ", result.out, re.MULTILINE)
    assert re.search(r"^Judged@10 +0\.667 +1\.000 +\+0\.333$", result.out, re.MULTILINE)
    assert " ps_fa/heuristic: " in result.out


def test_fully_judged_pool_needs_no_model(agent: Commands) -> None:
    folder = make_folder(agent.folder, {"one": {"q2": {"c2": 1.0}}})
    result = agent("retrieval", "judge", folder)
    assert result.code == 0
    assert result.err.startswith("0 pairs ")
    assert not (folder / "pool.jsonl").exists()


@pytest.mark.parametrize("option", ["--out", "--map"])
def test_rejected_options_are_not_in_the_help(agent: Commands, folder: Path, option: str) -> None:
    assert option not in agent("retrieval", "judge", "--help").out
    agent.check_refused(option, "retrieval", "judge", folder, "--model", "heuristic", option, "a=b")
    assert not (folder / "pool.jsonl").exists()


def test_aroma_judges_by_similarity(agent: Commands, folder: Path) -> None:
    scored = agent("retrieval", "score", folder, "--judge", "aroma", "--json").json
    assert (scored["judge"], scored["which"], scored["scored"]) == ("aroma", "all", 2)
    assert "recall" in scored["notes"][0]
    assert " 1 query " in scored["notes"][1]
    compared = agent("retrieval", "compare", folder, "--json")
    assert compared.code == 0
    assert compared.json["queries"] == 2


class TestWithoutLabels:
    """A benchmark that consists of queries and codes only."""

    JUDGE = ("retrieval", "judge", "r", "--depth", "2", "--model", "heuristic", "--variant", "single_llm")

    @pytest.fixture
    def searched(self, agent: Commands) -> Commands:
        (agent.folder / "small").mkdir()
        agent.write("small/corpus.jsonl", [{"_id": code, "text": text} for code, text in CODES.items()])
        agent.write("small/queries.jsonl", [{"_id": "q1", "text": "add"}, {"_id": "q2", "text": "multiply"}])
        result = agent("retrieval", "run", "small", "--searcher", "bm25", "--searcher", "tfidf", "-o", "r")
        assert (result.code, result.out.endswith("agent retrieval judge r\n")) == (0, True), result.err
        assert "agent retrieval judge" in result.err
        return agent

    def test_scores_require_judgements(self, searched: Commands) -> None:
        for options in ((), ("--queries", "all"), ("--judge", "benchmark"), ("--judge", "aroma")):
            searched.check_refused("agent retrieval judge r\n", "retrieval", "score", "r", *options)
        searched.check_refused("agent retrieval judge r\n", "retrieval", "compare", "r")
        assert list(searched.folder.glob("r/scores*")) == []

    def test_the_annotator_provides_all_judgements(self, searched: Commands) -> None:
        result = searched(*self.JUDGE)
        assert result.code == 0, result.err
        assert re.search(r"^Judged@10 +– +\d\.\d{3} +–$", result.out, re.MULTILINE)
        document = searched(*self.JUDGE, "--json").json
        assert (document["queries"]["before"], document["queries"]["after"] > 0) == (0, True)
        means = [mean for metrics in document["searchers"].values() for mean in metrics.values()]
        assert (len(document["searchers"]), {mean["before"] for mean in means}) == (2, {None})
        scored = searched("retrieval", "score", "r", "--json")
        assert {row["searcher"]: row["values"]["RR"]["mean"] for row in scored.json["searchers"]} == {
            name: metrics["RR"]["after"] for name, metrics in document["searchers"].items()
        }
        assert searched("retrieval", "compare", "r").code == 0
        searched.check_refused("--judge benchmark", "retrieval", "score", "r", "--judge", "benchmark")
        again = searched("retrieval", "run", "small", "--searcher", "bm25", "-o", "r")
        assert again.out.endswith("agent retrieval score r\n")
