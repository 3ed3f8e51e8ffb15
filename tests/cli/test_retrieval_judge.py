"""`agent retrieval judge`: nobody's label is paid twice, the same command goes on, and changes are as by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent.retrieval.folder import RetrievalFolder
from tests.cli.commands import Commands, annotations, reply
from tests.llm.server import Answer, ChatServer, Request, broken
from tests.retrieval.pooled import CODES, JUDGED, QUERIES, RANKINGS, add_rankings, make_folder
from tests.scripts import label

MODEL = ("--model", "gpt-4o-mini", "--variant", "single_llm", "--concurrency", "1")
BEFORE = {"one": {"RR": 3 / 4, "Success@1": 1 / 2, "R@10": 1}, "two": {"RR": 5 / 12, "Success@1": 0, "R@10": 1}}
AFTER = {"one": {"RR": 5 / 6, "Success@1": 2 / 3, "R@10": 1}, "two": {"RR": 3 / 4, "Success@1": 1 / 2, "R@10": 1}}
"""By hand: of `two` c3 and c4 tie at the top for q1, and one of them is relevant."""


def of(request: Request) -> tuple[str, str]:
    """Return the query and code that are asked about."""
    query = next(name for name, (text, _, _) in QUERIES.items() if text in request.prompt)
    return query, next(name for name, text in CODES.items() if text.strip() in request.prompt)


def judges(request: Request) -> Answer:
    return reply(label(JUDGED[of(request)]))


@pytest.fixture
def folder(agent: Commands) -> Path:
    return make_folder(agent.folder)


def values(changes: dict[str, dict[str, dict[str, float]]], when: str) -> dict[str, dict[str, float]]:
    return {name: {metric: of[metric][when] for metric in BEFORE["one"]} for name, of in changes.items()}


def approximately(expected: dict[str, dict[str, float]]) -> object:
    return {name: pytest.approx(metrics) for name, metrics in expected.items()}


def test_metrics_before_and_after_are_those_computed_by_hand(agent: Commands, folder: Path) -> None:
    with ChatServer(judges) as server:
        ended = agent("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", server.url, "--json")
        assert ended.code == 0
        assert sorted(map(of, server.requests)) == sorted(JUDGED)
    found = ended.json
    assert values(found["searchers"], "before") == approximately(BEFORE)
    assert values(found["searchers"], "after") == approximately(AFTER)
    assert found["queries"] == {"before": 2, "after": 3, "gained": 1}
    assert {name: found[name] for name in ("pool", "judge", "relevant", "irrelevant", "undecided", "errors")} == {
        "pool": 4, "judge": "single_llm/gpt-4o-mini", "relevant": 2, "irrelevant": 2, "undecided": 0, "errors": 0
    }  # fmt: skip
    scored = agent("retrieval", "score", folder, "--json").json
    assert {each["searcher"]: each["values"]["RR"]["mean"] for each in scored["searchers"]} == pytest.approx(
        {name: metrics["RR"] for name, metrics in AFTER.items()}
    )
    (note,) = scored["notes"]
    assert re.search(r"\b3\b.*benchmark.*\b4\b.*single_llm/gpt-4o-mini", note)
    assert scored["missing_judgements"] == 0
    alone = agent("retrieval", "score", folder, "--judge", "benchmark", "--json").json
    assert {each["searcher"]: each["values"]["RR"]["mean"] for each in alone["searchers"]} == pytest.approx(
        {name: metrics["RR"] for name, metrics in BEFORE.items()}
    )
    assert (alone["judge"], alone["notes"]) == ("benchmark", [])


def test_another_searcher_and_more_depth_are_paid_for_what_is_new_alone(agent: Commands) -> None:
    folder = make_folder(agent.folder, {"one": RANKINGS["one"]})
    with ChatServer(judges) as server:
        judge = ("retrieval", "judge", folder, *MODEL, "--base-url", server.url, "--cache", "none.sqlite")
        assert agent(*judge, "--depth", "1").code == 0
        assert list(map(of, server.requests)) == [("q1", "c3")]
        add_rankings(folder, {"two": RANKINGS["two"]})
        assert agent(*judge, "--depth", "2").code == 0
        assert sorted(map(of, server.requests)) == sorted(JUDGED)
        ended = agent(*judge, "--depth", "2")
        assert ended.code == 0
        assert len(server.requests) == len(JUDGED)
        assert "0 of them new" in ended.err


def test_what_the_budget_stops_goes_on_by_the_same_command(agent: Commands, folder: Path) -> None:
    with ChatServer(judges) as server:
        judge = ("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", server.url, "--json")
        ended = agent(*judge, "--budget", "0.0007")
        assert ended.code == 3
        assert "goes on from there" in ended.err
        paid = len(server.requests)
        assert 0 < paid < 4
        assert ended.json["pending"] == 4 - paid
        assert len(list(RetrievalFolder(folder).iterate_judgements())) == 3 + paid
        scored = agent("retrieval", "score", folder, "--json")
        assert scored.json["missing_judgements"] == 4 - paid
        assert f"agent retrieval judge {folder}" in scored.err
        again = agent(*judge, "--budget", "1")
        assert again.code == 0
        assert len(server.requests) == 4
        assert values(again.json["searchers"], "after") == approximately(AFTER)


def test_errors_are_no_judgements_and_are_counted(agent: Commands, folder: Path) -> None:
    def fails_for_c4(request: Request) -> Answer:
        return broken(400) if of(request)[1] == "c4" else judges(request)

    with ChatServer(fails_for_c4) as server:
        ended = agent("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", server.url)
        assert ended.code == 1
    assert "2 relevant, 1 not; no judgement: 0 undecided, 1 error, 0 not yet" in ended.out
    judged = {(query, code): who for query, code, _, who in RetrievalFolder(folder).iterate_judgements()}
    assert ("q1", "c4") not in judged
    assert judged["q1", "c1"] == "benchmark"
    assert judged["q1", "c3"] == "single_llm/gpt-4o-mini"


def test_rounds_that_contradict_each_other_are_no_judgement(agent: Commands, folder: Path) -> None:
    seen: list[tuple[str, str]] = []

    def wavers_at_c4(request: Request) -> Answer:
        seen.append(of(request))
        return reply(label(seen.count(of(request)) % 2)) if of(request)[1] == "c4" else judges(request)

    with ChatServer(wavers_at_c4) as server:
        judge = ("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", server.url, "--rounds", "2")
        found = agent(*judge, "--json").json
    assert (found["relevant"], found["irrelevant"], found["undecided"]) == (2, 1, 1)
    assert len(list(RetrievalFolder(folder).iterate_judgements())) == 3 + 3


def test_a_dry_run_tells_the_size_of_the_pool_and_the_cost_and_writes_nothing(agent: Commands, folder: Path) -> None:
    before = {file: file.read_bytes() for file in folder.rglob("*.*") if file.name != ".lock"}
    judge = ("retrieval", "judge", folder, "--depth", "2", *MODEL, "--base-url", "http://127.0.0.1:9/v1", "--dry-run")
    found = agent(*judge, "--json").json
    assert (found["pool"], found["new"], found["annotations"]) == (4, 4, 4)
    assert found["cost_usd"]["value"] > 0
    assert "cost" in agent(*judge).out
    assert {file: file.read_bytes() for file in folder.rglob("*.*") if file.name != ".lock"} == before
    assert agent(*judge[:-1], "--like", folder).code == 2


def test_judgements_mark_earlier_scores_as_out_of_date(agent: Commands, folder: Path) -> None:
    agent("retrieval", "score", folder)
    ended = agent("retrieval", "judge", folder, "--depth", "2", "--model", "heuristic", "--variant", "ps_fa")
    assert (ended.code, f"agent retrieval score {folder}" in ended.err) == (0, True)
    assert json.loads((folder / "scores.json").read_text())["out_of_date"] is True


def test_judgements_by_another_model_need_a_run_of_their_own(agent: Commands, folder: Path) -> None:
    judge = ("retrieval", "judge", folder, "--depth", "2", "--model", "heuristic", "--variant")
    assert agent(*judge, "ps_fa").code == 0
    before = (folder / "judgements.tsv").read_text()
    ended = agent(*judge, "single_llm")
    assert ended.code == 2
    assert f"move {folder / 'judged'} away" in ended.err
    assert (folder / "judgements.tsv").read_text() == before


def test_the_heuristic_judges_without_network(agent: Commands, folder: Path) -> None:
    ended = agent("retrieval", "judge", folder, "--depth", "2", "--model", "heuristic", "--variant", "ps_fa")
    assert ended.code == 0
    assert len(annotations(folder / "judged")) == 4
    assert re.search(r"^one +before +after +change$", ended.out, re.MULTILINE)
    assert re.search(r"^Judged@10 +0\.667 +1\.000 +\+0\.333$", ended.out, re.MULTILINE)
    assert "judged by ps_fa/heuristic:" in ended.out


def test_where_all_is_judged_nobody_is_asked(agent: Commands) -> None:
    folder = make_folder(agent.folder, {"one": {"q2": {"c2": 1.0}}})
    ended = agent("retrieval", "judge", folder)
    assert ended.code == 0
    assert "0 pairs to judge" in ended.err
    assert not (folder / "pool.jsonl").exists()


@pytest.mark.parametrize("option", ["--out", "--map"])
def test_the_help_lists_no_option_that_is_refused(agent: Commands, folder: Path, option: str) -> None:
    assert option not in agent("retrieval", "judge", "--help").out
    ended = agent("retrieval", "judge", folder, "--model", "heuristic", option, "a=b")
    assert ended.code == 2
    assert not (folder / "pool.jsonl").exists()


def test_similarity_to_answers_judges_instead_of_labels(agent: Commands, folder: Path) -> None:
    scored = agent("retrieval", "score", folder, "--judge", "aroma", "--json").json
    assert (scored["judge"], scored["which"], scored["scored"]) == ("aroma", "all", 2)
    assert "recall" in scored["notes"][0]
    assert "1 query" in scored["notes"][1]
    compared = agent("retrieval", "compare", folder, "--json")
    assert compared.code == 0
    assert compared.json["queries"] == 2
