"""`agent ablate`: calls, output, files and resuming."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from agent.evaluation.ablation import choose_variants
from tests.cli.commands import Commands, pairs, reply
from tests.cli.processes import wait_until
from tests.cli.unclear import make_answer
from tests.llm.server import Answer, ChatServer, Request, slow
from tests.scripts import label

ROOT = Path(__file__).parents[2]
COUNT = 9
COMPARED = [variant.name for variant in choose_variants()]
OFFLINE = ("--model", "heuristic", "--variants", "single_llm,ps_fa", "--gold", "gold.jsonl")


def count_bodies(requests: list[Request]) -> Counter[str]:
    return Counter(json.dumps(request.body) for request in requests)


def find_number(request: Request) -> int:
    return next(number for number in range(COUNT) if f"way {number}\n" in request.prompt)


third_unclear = make_answer(find_number)


def prepare(agent: Commands, count: int = COUNT, candidates: int = 1) -> Path:
    """Write pairs with `candidates` snippets per query, and gold labels of which two thirds are 1."""
    agent.write("gold.jsonl", [{"id": f"p{number}", "label": int(number % 3 > 0)} for number in range(count)])
    rows = pairs(count)
    for number, pair in enumerate(rows):
        pair["query"] = rows[number // candidates]["query"]
        pair["code"] += "# again\n" * (number % candidates)
    return agent.write("p.jsonl", rows)


def build_options(server: ChatServer, *more: str) -> tuple[str, ...]:
    return ("--model", "m", "--base-url", server.url, *more)


@pytest.mark.bwrap
@pytest.mark.slow
def test_variants_share_calls_and_are_charged_as_if_run_alone(agent: Commands) -> None:
    file = prepare(agent, candidates=3)
    with ChatServer(third_unclear) as server:
        options = build_options(server, "--sandbox", "bwrap")
        done = agent("ablate", file, "--gold", "gold.jsonl", *options, "-o", "all", "--cache", "all.sqlite", "--json")
        requests_before = list(server.requests)
        by_variant = {}
        for name in COMPARED:
            before = len(server.requests)
            apart = agent("annotate", file, *options, "--variant", name, "--cache", f"{name}.sqlite", "-o", name)
            assert apart.code == 0
            by_variant[name] = len(server.requests) - before
        separate = server.requests[len(requests_before) :]
    assert done.code == 0
    assert set(count_bodies(requests_before).values()) == {1}
    assert count_bodies(requests_before).keys() == count_bodies(separate).keys()
    calls = done.json["calls"]
    assert (calls["executed"], calls["cached_before"], calls["if_run_alone"]) == (
        len(requests_before),
        0,
        len(separate),
    )
    assert calls["requested"] == calls["executed"] + calls["shared"]
    assert calls["requested"] > len(separate)
    assert {row["variant"]: row["calls_per_pair"] * COUNT for row in done.json["rows"]} == pytest.approx(by_variant)
    assert len(requests_before) < 0.6 * len(separate)
    assert {row["variant"] for row in done.json["rows"]} == by_variant.keys()
    for row in done.json["rows"]:
        together = (agent.folder / "all" / row["run"] / "labels.jsonl").read_text()
        assert together == (agent.folder / row["variant"] / "labels.jsonl").read_text()


@pytest.mark.bwrap
@pytest.mark.long
@pytest.mark.real_data
def test_real_pairs_need_each_distinct_call_once(agent: Commands, real_data: Path) -> None:
    gold = real_data / "gold_40.jsonl"
    queries = [json.loads(line)["query"].strip() for line in gold.read_text(encoding="utf-8").splitlines()]

    def find_place(request: Request) -> int:
        match = re.search(r'<query id="[0-9a-f]+">\n(.*?)\n</query', request.prompt, re.DOTALL)
        return queries.index(match[1].strip() if match else "")

    with ChatServer(make_answer(find_place)) as server:
        options = ("--gold", str(gold), *build_options(server, "--sandbox", "bwrap", "--cache", "c.sqlite", "--json"))
        done = agent("ablate", gold, *options, "-o", "eight")
    assert done.code == 0
    assert set(count_bodies(server.requests).values()) == {1}
    calls = done.json["calls"]
    assert calls["executed"] == len(server.requests)
    page = " ".join((ROOT / "docs/variants.md").read_text(encoding="utf-8").split())
    assert re.findall(r"needed (\d+) (?:calls )?instead of (\d+)", page) == [
        (str(calls["executed"]), str(calls["if_run_alone"])),
    ]


@pytest.mark.bwrap
def test_noise_in_program_output_causes_no_new_calls(agent: Commands) -> None:
    file = prepare(agent)
    with ChatServer(third_unclear) as server:
        options = build_options(server, "--sandbox", "bwrap", "--gold", "gold.jsonl", "-o", "out", "--json")
        agent("ablate", file, *options, "--variants", "full")
        calls_before = len(server.requests)
        # a new process has no executions in memory and runs the programs again
        second_result = agent("ablate", file, *options, "--variants", "full,ps_tpg_te_fa,rule_arbiter")
    assert len(server.requests) == calls_before
    assert second_result.json["executions"] == {"requested": 9, "executed": 6}


def test_table_fits_120_columns_and_notes_scripted_replies(agent: Commands) -> None:
    done = agent("ablate", prepare(agent), *OFFLINE, "-o", "out")
    assert done.code == 0
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 120
    assert "(heuristic)" in lines[0]
    assert sum(line.startswith("single_llm ") for line in lines) >= 2
    assert lines[-3:] == ["out/ablation.json", "out/ablation.csv", "out/ablation.md"]
    document = json.loads((agent.folder / "out/ablation.json").read_text())
    assert "(heuristic)" in document["note"]
    assert document["note"] in (agent.folder / "out/ablation.md").read_text()


def test_without_full_there_is_no_reference_and_show_lists_the_runs(agent: Commands) -> None:
    assert agent("ablate", prepare(agent), *OFFLINE, "-o", "out", "--json").json["against"] is None
    agent.check_refused("out/ps_fa, out/single_llm", "show", "out")


def test_symbolic_link_as_variant_folder_is_rejected(agent: Commands) -> None:
    (agent.folder / "elsewhere").mkdir()
    (agent.folder / "out").mkdir()
    (agent.folder / "out/ps_fa").symlink_to(agent.folder / "elsewhere")
    agent.check_refused("out/ps_fa: ", "ablate", prepare(agent), *OFFLINE, "-o", "out")
    assert not any((agent.folder / "elsewhere").iterdir())


def test_json_output_equals_the_written_table(agent: Commands) -> None:
    done = agent("ablate", prepare(agent), *OFFLINE, "-o", "out", "--json")
    assert done.json == json.loads((agent.folder / "out/ablation.json").read_text())
    assert (done.json["pairs"], done.json["gold"], done.json["criterion"]) == (COUNT, {"1": 6, "0": 3}, "exact")


def test_cost_of_a_variant_includes_cached_replies(agent: Commands) -> None:
    prepare(agent)
    with ChatServer(third_unclear) as server:
        options = build_options(server, "--gold", "gold.jsonl", "--variants", "ps_fa", "--json")
        first = agent("ablate", "p.jsonl", *options, "-o", "one").json
        second = agent("ablate", "p.jsonl", *options, "-o", "two").json
    assert (first["calls"]["executed"], second["calls"]["executed"], second["calls"]["cached_before"]) == (12, 0, 12)
    assert (first["paid"]["calls"], second["paid"]["calls"]) == (12, 0)
    assert first["rows"][0]["tokens_per_pair"] == 2010 * 12 / 9
    assert second["rows"] == first["rows"]


def test_labels_of_the_pairs_serve_as_gold(agent: Commands) -> None:
    file = agent.write("p.jsonl", [{**pair, "label": 1} for pair in pairs(3)])
    done = agent("ablate", file, "--model", "heuristic", "--variants", "single_llm", "-o", "out", "--json")
    assert done.json["gold"] == {"1": 3, "0": 0}
    assert "--gold" in done.err


def test_pairs_and_gold_from_tables_and_several_files(agent: Commands) -> None:
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
    assert "'maybe'" in agent.check_refused("c.csv:2: ", "ablate", "c.csv", *options)


def test_interrupted_ablation_resumes_without_repeating_calls(agent: Commands) -> None:
    file = prepare(agent)
    with ChatServer(lambda request: slow(0.05, third_unclear(request))) as server:
        options = build_options(server, "--gold", "gold.jsonl", "--variants", "single_llm,ps_fa", "-o", "out")
        command = ("ablate", file, *options, "--concurrency", "1")
        process = agent.start(*command)
        wait_until(lambda: len(server.requests) > COUNT + 3, "the second variant")
        stopped = process.stop()
        bodies_before = Counter(json.dumps(request.body) for request in server.requests)
        assert stopped.code == 3
        judged = len((agent.folder / "out/ps_fa/annotations.jsonl").read_text().splitlines())
        assert f"single_llm {COUNT} pairs · ps_fa {judged} pair" in stopped.err
        assert f"\n  agent {' '.join(map(str, command))}\n" in stopped.err
        assert not (agent.folder / "out/ablation.json").exists()
        for reading in ("show", "score", "report", "review", "replay"):
            agent.check_refused("out/ps_fa, out/single_llm", reading, "out")
        done = agent(*command, "--json")
    assert done.code == 0
    requests_by_body = Counter(json.dumps(request.body) for request in server.requests)
    # only the call in progress was lost
    assert sum(requests_by_body.values()) - len(requests_by_body) <= 1
    assert len(bodies_before) <= len(requests_by_body) == COUNT + COUNT + 3


def test_smaller_ablation_does_not_replace_a_larger_one(agent: Commands) -> None:
    prepare(agent)
    common = ("ablate", "p.jsonl", "--model", "heuristic", "--gold", "gold.jsonl", "-o", "out")
    assert agent(*common, "--variants", "ps_fa,single_llm", "--limit", "6", "--rounds", "2").code == 0
    table = (agent.folder / "out/ablation.json").read_bytes()
    for smaller, words in (
        (("--variants", "ps_tpg_fa,ps_fa", "--limit", "6", "--rounds", "2"), "lacks single_llm"),
        (("--variants", "single_llm,ps_fa", "--limit", "5", "--rounds", "2"), "5 of 6 pairs (--limit)"),
        (("--variants", "single_llm,ps_fa", "--limit", "6"), "1 of 2 rounds (--rounds)"),
        (("--variants", "ps_fa", "--limit", "1", "--rounds", "2"), "1 of 6 pairs (--limit)"),
    ):
        assert "-o NEW" in agent.check_refused(words, *common, *smaller)
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
    assert sum("heuristic" in line and "round" in line for line in done.err.splitlines()) == 1


def test_budget_covers_all_variants(agent: Commands) -> None:
    prepare(agent)
    agent.write("prices.yaml", "m: {input: 1000, output: 0}\n")
    with ChatServer(third_unclear) as server:
        options = build_options(
            server, "--gold", "gold.jsonl", "-c", "prices=prices.yaml", "--budget", "19", "-o", "out"
        )
        options = (*options, "--variants", "single_llm,ps_fa", "--concurrency", "1")
        stopped = agent("ablate", "p.jsonl", *options)
        resumed = agent("ablate", "p.jsonl", *options)
    assert (stopped.code, resumed.code) == (3, 3)
    assert "$19 " in stopped.err
    assert resumed.err.count("$20.0000") == 2
    assert "(--budget)" in resumed.err
    assert "\n  agent ablate" in resumed.err
    assert len(server.requests) == 10  # at two dollars each


def test_token_limit_and_deadline_cover_all_variants(agent: Commands) -> None:
    prepare(agent)
    with ChatServer(third_unclear) as server:
        options = build_options(server, "--gold", "gold.jsonl", "-o", "out", "--concurrency", "1")
        ablate = ("ablate", "p.jsonl", *options, "--variants", "single_llm,ps_fa")
        for _ in range(2):
            stopped = agent(*ablate, "-c", "runner.max_tokens_total=20000")
            assert (stopped.code, len(server.requests)) == (3, 10), stopped.err
        assert (stopped.err.count("20,000 "), stopped.err.count("20,100 ")) == (1, 2)
        result = agent(*ablate, "--deadline", "2026-01-01T07:00")
        assert (result.code, len(server.requests)) == (3, 10)
        assert agent(*ablate, "--deadline", "1h").code == 0


def test_budget_counts_shared_calls_once(agent: Commands) -> None:
    prepare(agent)
    agent.write("prices.yaml", "m: {input: 1000, output: 0}\n")
    with ChatServer(third_unclear) as server:
        options = build_options(
            server, "--gold", "gold.jsonl", "-c", "prices=prices.yaml", "-o", "out", "--concurrency", "1"
        )
        assert agent("ablate", "p.jsonl", *options, "--variants", "ps_fa").code == 0
        paid = 2 * len(server.requests)
        more = agent("ablate", "p.jsonl", *options, "--variants", "ps_fa,ps_tpg_fa", "--budget", str(paid + 1))
    assert more.code == 3
    assert all(f"${usd}.0000 " in more.err for usd in (paid + 2, paid))
    assert 2 * len(server.requests) == paid + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--variants", "fulll"), "'fulll'"),
        (("--variants", ""), "empty"),
        (("--variants", "single_llm,,ps_fa"), "empty"),
        (("--gold", "gone.jsonl"), "gone.jsonl"),
        (("--gold", "other.jsonl"), "other.jsonl: "),
        (("-o", "run"), "run: "),
        (("--against", "full"), "--against full: "),
        (("--model", "x"), "'x'"),
        (("--rounds", "0"), "--rounds"),
    ],
)
def test_wrong_usage_exits_with_2_and_one_message(agent: Commands, arguments: tuple[str, ...], message: str) -> None:
    prepare(agent, 1)
    agent.write("other.jsonl", [{"id": "another", "label": 1}])
    (agent.folder / "run").mkdir()
    (agent.folder / "run/manifest.json").touch()
    agent.check_refused(message, "ablate", "p.jsonl", *OFFLINE, *arguments)
    assert not list(agent.folder.glob("runs/*/*/manifest.json"))


def test_pairs_without_labels_need_a_gold_file(agent: Commands) -> None:
    options = ("--model", "heuristic", "--variants", "single_llm")
    agent.check_refused("--gold", "ablate", agent.write("p.jsonl", pairs(1)), *options)


def test_errors_count_as_wrong_and_exit_with_1(agent: Commands) -> None:
    prepare(agent, 3)

    def refuse(request: Request) -> Answer:
        return reply("I would rather not." if "way 1\n" in request.prompt else label(1))

    with ChatServer(refuse) as server:
        options = build_options(
            server, "--gold", "gold.jsonl", "--variants", "single_llm", "-c", "pipeline.format_retries=0"
        )
        done = agent("ablate", "p.jsonl", *options, "-o", "out", "--json")
    assert done.code == 1
    row = done.json["rows"][0]
    assert (row["errors"], row["coverage"], row["accuracy"]["value"]) == (1, 2 / 3, 1 / 3)
    assert "--retry-errors" in done.err
