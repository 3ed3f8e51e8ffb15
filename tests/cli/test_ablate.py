"""`agent ablate` as a user meets it: what it asks for, what it prints, what it saves, and that it goes on."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from agent.config import PipelineConfig
from agent.graph import list_variants
from tests.cli.commands import Commands, pairs, reply
from tests.cli.processes import until
from tests.cli.unclear import role, third_unclear_of
from tests.llm.server import Answer, ChatServer, Request, slow
from tests.scripts import label

ROOT = Path(__file__).parents[2]
COUNT = 9
OFFLINE = ("--model", "heuristic", "--variants", "single_llm,ps_fa", "--gold", "gold.jsonl")


def bodies(requests: list[Request]) -> Counter[str]:
    return Counter(json.dumps(request.body) for request in requests)


def number_of(request: Request) -> int:
    return next(number for number in range(COUNT) if f"way {number}\n" in request.prompt)


third_unclear = third_unclear_of(number_of)


def prepare(agent: Commands, count: int = COUNT, candidates: int = 1) -> Path:
    """Write pairs, so many candidates for each query, and gold of which two thirds are a match."""
    agent.write("gold.jsonl", [{"id": f"p{number}", "label": int(number % 3 > 0)} for number in range(count)])
    made = pairs(count)
    for number, pair in enumerate(made):
        pair["query"] = made[number // candidates]["query"]
        pair["code"] += "# again\n" * (number % candidates)
    return agent.write("p.jsonl", made)


def served(server: ChatServer, *more: str) -> tuple[str, ...]:
    return ("--model", "m", "--base-url", server.url, *more)


@pytest.mark.bwrap
@pytest.mark.slow
def test_over_all_variants_no_question_is_asked_twice_and_each_costs_what_it_costs_apart(agent: Commands) -> None:
    file = prepare(agent, candidates=3)
    with ChatServer(third_unclear) as server:
        options = served(server, "--sandbox", "bwrap")
        done = agent("ablate", file, "--gold", "gold.jsonl", *options, "-o", "all", "--cache", "all.sqlite", "--json")
        asked = list(server.requests)
        by_variant = {}
        for name in list_variants():
            before = len(server.requests)
            apart = agent("annotate", file, *options, "--variant", name, "--cache", f"{name}.sqlite", "-o", name)
            assert apart.code == 0
            by_variant[name] = len(server.requests) - before
        separate = server.requests[len(asked) :]
    assert done.code == 0
    repeated = {body: count for body, count in bodies(asked).items() if count > 1}
    votes = [request for request in asked if json.dumps(request.body) in repeated]
    assert {role(request) for request in votes} == {"arbitrate"}
    assert set(repeated.values()) == {PipelineConfig().votes}
    assert bodies(asked).keys() == bodies(separate).keys()
    calls = done.json["calls"]
    assert (calls["made"], calls["earlier"], calls["separate"]) == (len(asked), 0, len(separate))
    assert calls["asked"] == calls["made"] + calls["shared"]
    assert calls["asked"] > len(separate)
    assert {row["variant"]: row["calls_per_pair"] * COUNT for row in done.json["rows"]} == pytest.approx(by_variant)
    assert len(asked) < 0.6 * len(separate)
    assert sorted(row["variant"] for row in done.json["rows"]) == list_variants()
    for row in done.json["rows"]:
        together = (agent.folder / "all" / row["run"] / "labels.jsonl").read_text()
        assert together == (agent.folder / row["variant"] / "labels.jsonl").read_text()


@pytest.mark.bwrap
@pytest.mark.long
@pytest.mark.real_data
def test_on_real_pairs_every_different_question_is_asked_once(agent: Commands, real_data: Path) -> None:
    gold = real_data / "gold_40.jsonl"
    queries = [json.loads(line)["query"].strip() for line in gold.read_text(encoding="utf-8").splitlines()]

    def place(request: Request) -> int:
        found = re.search(r'<query id="[0-9a-f]+">\n(.*?)\n</query', request.prompt, re.DOTALL)
        return queries.index(found[1].strip() if found else "")

    with ChatServer(third_unclear_of(place)) as server:
        options = ("--gold", str(gold), *served(server, "--sandbox", "bwrap", "--cache", "c.sqlite", "--json"))
        others = ",".join(name for name in list_variants() if name != "full_plus")
        eight = agent("ablate", gold, *options, "-o", "eight", "--variants", others)
        asked = bodies(server.requests)
        nine = agent("ablate", gold, *options, "-o", "nine")
    assert (eight.code, nine.code) == (0, 0)
    assert set(asked.values()) == {1}
    of_eight, of_nine = eight.json["calls"], nine.json["calls"]
    assert of_eight["made"] == asked.total()
    assert of_eight["made"] + of_nine["made"] == len(server.requests)
    page = " ".join((ROOT / "docs/variants.md").read_text(encoding="utf-8").split())
    assert re.findall(r"needed (\d+) (?:calls )?instead of (\d+)", page) == [
        (str(len(server.requests)), str(of_nine["separate"])),
        (str(of_eight["made"]), str(of_eight["separate"])),
    ]


@pytest.mark.bwrap
def test_what_is_noise_in_a_programs_output_makes_no_question_new(agent: Commands) -> None:
    file = prepare(agent)
    with ChatServer(third_unclear) as server:
        options = served(server, "--sandbox", "bwrap", "--gold", "gold.jsonl", "-o", "out", "--json")
        agent("ablate", file, *options, "--variants", "full")
        asked = len(server.requests)
        # another process: it remembers no execution, and runs the programs again
        again = agent("ablate", file, *options, "--variants", "full,ps_tpg_te_fa,rule_arbiter")
    assert len(server.requests) == asked
    assert again.json["executions"] == {"asked": 9, "made": 6}


def test_the_table_is_printed_in_parts_of_120_columns_and_says_what_scripted_replies_mean(agent: Commands) -> None:
    done = agent("ablate", prepare(agent), *OFFLINE, "-o", "out")
    assert done.code == 0
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 120
    assert "(heuristic)" in lines[0]
    assert sum(line.startswith("variant ") for line in lines) == 2
    assert lines[-3:] == ["out/ablation.json", "out/ablation.csv", "out/ablation.md"]
    document = json.loads((agent.folder / "out/ablation.json").read_text())
    assert "(heuristic)" in document["note"]
    assert "(heuristic)" in (agent.folder / "out/ablation.md").read_text()


def test_without_full_nothing_is_tested_and_the_folder_is_told_from_a_runs(agent: Commands) -> None:
    assert agent("ablate", prepare(agent), *OFFLINE, "-o", "out", "--json").json["against"] is None
    refused = agent("show", "out")
    assert (refused.code, "ablation" in refused.err) == (2, True)
    assert refused.err.strip().endswith(": out/ps_fa, out/single_llm")


def test_a_link_in_the_place_of_a_variants_folder_is_refused(agent: Commands) -> None:
    (agent.folder / "elsewhere").mkdir()
    (agent.folder / "out").mkdir()
    (agent.folder / "out/ps_fa").symlink_to(agent.folder / "elsewhere")
    refused = agent("ablate", prepare(agent), *OFFLINE, "-o", "out")
    assert (refused.code, "out/ps_fa: is a link" in " ".join(refused.err.split())) == (2, True)
    assert not any((agent.folder / "elsewhere").iterdir())


def test_json_is_the_table_alone(agent: Commands) -> None:
    done = agent("ablate", prepare(agent), *OFFLINE, "-o", "out", "--json")
    assert done.json == json.loads((agent.folder / "out/ablation.json").read_text())
    assert (done.json["pairs"], done.json["gold"], done.json["criterion"]) == (COUNT, {"1": 6, "0": 3}, "exact")


def test_what_a_variant_costs_does_not_depend_on_who_paid_for_it(agent: Commands) -> None:
    prepare(agent)
    with ChatServer(third_unclear) as server:
        options = served(server, "--gold", "gold.jsonl", "--variants", "ps_fa", "--json")
        first = agent("ablate", "p.jsonl", *options, "-o", "one").json
        second = agent("ablate", "p.jsonl", *options, "-o", "two").json
    assert (first["calls"]["made"], second["calls"]["made"], second["calls"]["earlier"]) == (12, 0, 12)
    assert (first["paid"]["calls"], second["paid"]["calls"]) == (12, 0)
    assert first["rows"][0]["tokens_per_pair"] == 2010 * 12 / 9
    assert second["rows"] == first["rows"]


def test_gold_may_be_the_labels_of_the_pairs_themselves_and_that_is_said(agent: Commands) -> None:
    file = agent.write("p.jsonl", [{**pair, "label": 1} for pair in pairs(3)])
    done = agent("ablate", file, "--model", "heuristic", "--variants", "single_llm", "-o", "out", "--json")
    assert done.json["gold"] == {"1": 3, "0": 0}
    assert "gold: the field `label` of the pairs themselves (no --gold was given)" in done.err


def test_pairs_and_their_gold_may_be_in_tables_and_several_files(agent: Commands) -> None:
    rows = "".join(
        f'{pair["id"]},"{pair["query"]}","{pair["code"]}",{label}\n'
        for pair, label in zip(pairs(3), ("1", "0", ""), strict=True)
    )
    agent.write("a.csv", f"key,query,code,label\n{rows}")
    agent.write("b.jsonl", [{**pair, "key": "last", "label": 1} for pair in pairs(1)])
    options = ("--map", "id=key", "--model", "heuristic", "--variants", "single_llm", "--json")
    done = agent("ablate", "*.csv", "b.jsonl", *options)
    assert (done.json["gold"], done.json["unlabelled"]) == ({"1": 2, "0": 1}, 1)
    assert (agent.folder / "runs" / "a-ablation-heuristic" / "ablation.json").is_file()
    agent.write("gold.csv", "id,label\np0,0\nlast,0\n")
    scored = agent("ablate", "a.csv", "b.jsonl", *options, "--gold", "gold.csv", "-o", "other")
    assert scored.json["gold"] == {"1": 0, "0": 2}
    agent.write("c.csv", "key,query,code,label\nz,q,c,maybe\n")
    refused = agent("ablate", "c.csv", *options)
    assert (refused.code, "pair 'z'" in refused.err, "'maybe'" in refused.err) == (2, True, True)


def test_an_interrupted_ablation_goes_on_and_asks_nothing_twice(agent: Commands) -> None:
    file = prepare(agent)
    with ChatServer(lambda request: slow(0.05, third_unclear(request))) as server:
        options = served(server, "--gold", "gold.jsonl", "--variants", "single_llm,ps_fa", "-o", "out")
        command = ("ablate", file, *options, "--concurrency", "1")
        process = agent.start(*command)
        until(lambda: len(server.requests) > COUNT + 3, "the second variant")
        os.kill(process.pid, signal.SIGINT)
        stopped = process.wait()
        asked = Counter(json.dumps(request.body) for request in server.requests)
        assert stopped.code == 3
        judged = len((agent.folder / "out/ps_fa/annotations.jsonl").read_text().splitlines())
        assert f"Finished and stored in out: single_llm {COUNT} pairs · ps_fa {judged} pair" in stopped.err
        assert f"The same command goes on from there:\n  agent {' '.join(map(str, command))}\n" in stopped.err
        assert not (agent.folder / "out/ablation.json").exists()
        for reading in ("show", "score", "report", "review"):
            refused = agent(reading, "out")
            assert refused.code == 2
            assert refused.err.strip().endswith(": out/ps_fa, out/single_llm")
        assert ": out/ps_fa, out/single_llm" in agent("replay", "out", "--all").err
        done = agent(*command, "--json")
    assert done.code == 0
    again = Counter(json.dumps(request.body) for request in server.requests)
    # only the call in progress was lost
    assert sum(again.values()) - len(again) <= 1
    assert len(asked) <= len(again) == COUNT + COUNT + 3


def test_a_smaller_ablation_does_not_take_the_place_of_a_larger_one(agent: Commands) -> None:
    prepare(agent)
    common = ("ablate", "p.jsonl", "--model", "heuristic", "--gold", "gold.jsonl", "-o", "out")
    assert agent(*common, "--variants", "ps_fa,single_llm", "--limit", "6", "--rounds", "2").code == 0
    table = (agent.folder / "out/ablation.json").read_bytes()
    for smaller, told in (
        (("--variants", "ps_tpg_fa,ps_fa", "--limit", "6", "--rounds", "2"), "it lacks single_llm."),
        (("--variants", "single_llm,ps_fa", "--limit", "5", "--rounds", "2"), "it has 5 pairs of 6 (--limit)."),
        (("--variants", "single_llm,ps_fa", "--limit", "6"), "it has 1 round of 2 (--rounds)."),
        (("--variants", "ps_fa", "--limit", "1", "--rounds", "2"), "lacks single_llm; it has 1 pair of 6 (--limit)."),
    ):
        refused = agent(*common, *smaller)
        assert (refused.code, refused.out) == (2, "")
        assert told in refused.err
        assert "-o NEW" in refused.err
        assert (agent.folder / "out/ablation.json").read_bytes() == table
    assert not (agent.folder / "out/ps_tpg_fa").exists()
    larger = agent(*common, "--variants", "ps_fa,single_llm,ps_tpg_fa", "--rounds", "2", "--json")
    assert (larger.code, larger.json["pairs"], len(larger.json["rows"])) == (0, COUNT, 3)


def test_rounds_are_compared_by_their_majority(agent: Commands) -> None:
    prepare(agent)
    done = agent("ablate", "p.jsonl", *OFFLINE, "--rounds", "2", "--criterion", "half", "-o", "out", "--json")
    assert done.json["criterion"] == "half"
    first = done.json["rows"][0]
    assert (done.json["rounds"], first["agreement"], first["rounds_alpha"]) == (2, 1.0, None)
    assert done.json["rows"][0]["calls_per_pair"] == 2.0
    assert done.err.count("in every round") == 1


def test_a_budget_is_for_all_variants_together(agent: Commands) -> None:
    prepare(agent)
    agent.write("prices.yaml", "m: {input: 1000, output: 0}\n")
    with ChatServer(third_unclear) as server:
        options = served(server, "--gold", "gold.jsonl", "--prices", "prices.yaml", "--budget", "19", "-o", "out")
        options = (*options, "--variants", "single_llm,ps_fa", "--concurrency", "1")
        stopped = agent("ablate", "p.jsonl", *options)
        again = agent("ablate", "p.jsonl", *options)
    assert (stopped.code, again.code) == (3, 3)
    assert "the budget of $19 is used up" in stopped.err
    assert "($20.0000 spent, $20.0000 of it before this start)" in again.err
    assert "The same command with a larger budget (--budget) goes on from there:\n  agent ablate" in again.err
    assert len(server.requests) == 10  # at two dollars each


def test_tokens_and_deadline_are_those_of_all_variants_together(agent: Commands) -> None:
    prepare(agent)
    with ChatServer(third_unclear) as server:
        options = served(server, "--gold", "gold.jsonl", "-o", "out", "--concurrency", "1")
        ablate = ("ablate", "p.jsonl", *options, "--variants", "single_llm,ps_fa")
        for _ in range(2):
            stopped = agent(*ablate, "--max-tokens-total", "20000")
            assert (stopped.code, len(server.requests)) == (3, 10), stopped.err
        assert "(20,100 spent, 20,100 " in stopped.err
        over = agent(*ablate, "--deadline", "2026-01-01T07:00")
        assert (over.code, len(server.requests)) == (3, 10)
        assert agent(*ablate, "--deadline", "1h").code == 0


def test_what_a_budget_counts_of_an_ablation_is_each_question_once(agent: Commands) -> None:
    prepare(agent)
    agent.write("prices.yaml", "m: {input: 1000, output: 0}\n")
    with ChatServer(third_unclear) as server:
        options = served(server, "--gold", "gold.jsonl", "--prices", "prices.yaml", "-o", "out", "--concurrency", "1")
        assert agent("ablate", "p.jsonl", *options, "--variants", "ps_fa").code == 0
        paid = 2 * len(server.requests)
        more = agent("ablate", "p.jsonl", *options, "--variants", "ps_fa,ps_tpg_fa", "--budget", str(paid + 1))
    assert more.code == 3
    assert f"(${paid + 2}.0000 spent, ${paid}.0000 of it before this start)" in more.err
    assert 2 * len(server.requests) == paid + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--variants", "fulll"), "unknown variant 'fulll'"),
        (("--variants", ""), "--variants"),
        (("--variants", "single_llm,,ps_fa"), "--variants"),
        (("--gold", "gone.jsonl"), "gone.jsonl"),
        (("--gold", "other.jsonl"), "has gold for none of the pairs"),
        (("-o", "run"), "is the folder of a single run"),
        (("--against", "full"), "(single_llm, ps_fa)"),
        (("--model", "x"), "two models for all roles"),
        (("--rounds", "0"), "--rounds"),
    ],
)
def test_wrong_usage_is_one_message_and_exit_code_2(agent: Commands, arguments: tuple[str, ...], message: str) -> None:
    prepare(agent, 1)
    agent.write("other.jsonl", [{"id": "another", "label": 1}])
    (agent.folder / "run").mkdir()
    (agent.folder / "run/manifest.json").touch()
    ended = agent("ablate", "p.jsonl", *OFFLINE, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert not list(agent.folder.glob("runs/*/*/manifest.json"))


def test_pairs_without_labels_need_a_gold_file(agent: Commands) -> None:
    ended = agent("ablate", agent.write("p.jsonl", pairs(1)), "--model", "heuristic", "--variants", "single_llm")
    assert ended.code == 2
    assert "no gold: give --gold FILE" in ended.err


def test_pairs_that_end_in_errors_are_counted_wrong_and_make_it_1(agent: Commands) -> None:
    prepare(agent, 3)

    def refuse(request: Request) -> Answer:
        return reply("I would rather not." if "way 1\n" in request.prompt else label(1))

    with ChatServer(refuse) as server:
        options = served(server, "--gold", "gold.jsonl", "--variants", "single_llm", "-c", "pipeline.reasks=0")
        done = agent("ablate", "p.jsonl", *options, "-o", "out", "--json")
    assert done.code == 1
    row = done.json["rows"][0]
    assert (row["errors"], row["coverage"], row["accuracy"]["value"]) == (1, 2 / 3, 1 / 3)
    assert "--retry-errors" in done.err
