"""`agent annotate`: exit codes, resuming, folders and models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import Commands, pairs, read_annotations, read_figures, reply
from tests.llm.server import Answer, ChatServer, Request, broken, fails, free_port, slow, unauthorized
from tests.scripts import label, screen

OFFLINE = ("--variant", "ps_fa", "--model", "heuristic")


def build_options(server: ChatServer, *more: str) -> tuple[str, ...]:
    return ("--variant", "single_llm", "--model", "m", "--base-url", server.url, *more)


def test_finished_run_exits_with_0_and_prints_a_summary(agent: Commands) -> None:
    done = agent("annotate", agent.write("p.jsonl", pairs(3)), *OFFLINE)
    assert done.code == 0
    assert re.search(r"^pairs +3 *$", done.out, re.M)
    assert done.out.rstrip().endswith("runs/p-ps_fa-heuristic/annotations.jsonl")
    assert "3 pairs · variant ps_fa" in done.err
    assert {a["id"] for a in read_annotations(agent.folder / "runs/p-ps_fa-heuristic")} == {"p0", "p1", "p2"}


def test_errors_exit_with_1_and_can_be_retried(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(3))

    def answer(request: Request) -> object:
        return reply("I would rather not." if "way 1\n" in request.prompt else label(1))

    with ChatServer(answer) as server:  # type: ignore[arg-type]
        options = build_options(server, "-o", "run", "-c", "pipeline.format_retries=0")
        done = agent("annotate", file, *options, "--json")
    assert (done.code, done.json["errors"], done.json["labels"]) == (1, {"ReplyError": 1}, {"1": 2, "0": 0, "null": 1})
    assert "p1: ReplyError: " in done.err
    assert "--retry-errors" in done.err
    assert agent("annotate", file, *options).code == 1
    assert len(read_annotations(agent.folder / "run")) == 3


def test_lost_server_stops_the_run_without_failing_pairs(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(60))
    is_down = True

    def answer(request: Request) -> Answer:
        return broken(503) if is_down and request.number >= 10 else reply(label(1))

    with ChatServer(answer) as server:
        options = build_options(
            server, "-o", "run", "-c", "attempts=1", "--concurrency", "4", "-c", "runner.llm_calls=4"
        )
        stopped = agent("annotate", file, *options)
        assert stopped.code == 3
        assert "HTTP 503" in stopped.err
        assert re.search(r"\d\d of .*\d\d .*'judge'", stopped.err)
        assert "10 pairs " in stopped.err
        assert len(read_annotations(agent.folder / "run")) == 10
        is_down = False
        done = agent("annotate", file, *options, "--json")
    assert (done.code, done.json["labels"], done.json["annotated_now"]) == (0, {"1": 60, "0": 0, "null": 0}, 50)


def test_rejected_request_option_stops_the_run_at_once(agent: Commands) -> None:
    with ChatServer(fails(400, "'response_format.type' must be text")) as server:
        options = build_options(server, "-o", "run", "--concurrency", "1")
        stopped = agent("annotate", agent.write("p.jsonl", pairs(3)), *options)
    assert (stopped.code, len(server.requests)) == (3, 1)
    assert "reply_format=text" in stopped.err


def test_retry_errors_repeats_only_calls_without_usable_reply(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(2))
    replies = [*(reply(screen("unclear")), reply("no"), reply("nor this")), reply(screen("unclear")), reply(label(1))]
    with ChatServer([*replies, reply(label(0))]) as server:
        options = ("--variant", "ps_fa", "--model", "m", "--base-url", server.url, "-o", "run", "--concurrency", "1")
        options = (*options, "-c", "pipeline.format_retries=1", "--cache", "c.sqlite", "--json")
        assert agent("annotate", file, *options).code == 1
        retried = agent("annotate", file, *options, "--retry-errors")
    assert (retried.code, retried.json["errors"], retried.json["annotated_now"]) == (0, {}, 1)
    assert len(server.requests) == 6
    assert server.requests[-1].prompt == server.requests[1].prompt
    assert [(a["id"], a["label"]) for a in read_annotations(agent.folder / "run")] == [("p1", 1), ("p0", 0)]


def test_run_resumes_at_another_address_and_counts_earlier_replies(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(3))
    typo = ("--variant", "single_llm", "--model", "m", "--base-url", f"http://127.0.0.1:{free_port()}/v1")
    lost = agent("annotate", file, *typo, "-c", "attempts=1", "-o", "run")
    assert (lost.code, lost.out, "reached" in lost.err) == (3, "", True)
    with ChatServer(reply(label(1))) as old, ChatServer(reply(label(0))) as new:
        first = agent("annotate", file, *build_options(old, "-o", "run", "--limit", "2", "--json"))
        moved = agent("annotate", file, *build_options(new, "-o", "run", "--json"))
        assert agent("annotate", file, *build_options(new, "-o", "again")).code == 0
    assert (first.json["replies_elsewhere"], moved.json["replies_elsewhere"]) == ({}, {old.url: 2})
    assert (len(old.requests), len(new.requests)) == (2, 1)
    assert all(f"'{url}'" in moved.err for url in (old.url, new.url))
    assert f" 2 {old.url}" in agent("show", "again").out


def test_run_without_finished_pairs_accepts_new_settings(agent: Commands) -> None:
    file, other = agent.write("p.jsonl", pairs(2)), agent.write("q.jsonl", pairs(3))
    with ChatServer(fails(404, "no such model")) as server:
        assert agent("annotate", file, *build_options(server, "-o", "run")).code == 3
    with ChatServer(reply(label(1))) as server:
        options = build_options(server, "-o", "run", "-c", "temperature=0.5")
        assert agent("annotate", other, *options, "--json").json["labels"]["1"] == 3
        changed = build_options(server, "-o", "run")
        agent.check_refused("model.default.parameters.temperature: 0.5", "annotate", other, *changed)


def test_run_with_limit_resumes_in_the_same_folder(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(5))
    with ChatServer(reply(label(1))) as server:
        first = agent("annotate", file, *build_options(server), "--limit", "2", "--json")
        assert (first.json["pairs"], len(server.requests)) == (2, 2)
        second = agent("annotate", file, *build_options(server), "--json")
        assert (second.json["pairs"], second.json["annotated_now"], len(server.requests)) == (5, 3, 5)
        assert "2 finished" in second.err
        third = agent("annotate", file, *build_options(server), "--json")
        assert (third.json["pairs"], third.json["annotated_now"], len(server.requests)) == (5, 0, 5)
    assert first.json["run"] == second.json["run"] == "runs/p-single_llm-m"
    assert first.json["wall_seconds"] > 0
    assert sorted(a["id"] for a in read_annotations(agent.folder / first.json["run"])) == [f"p{n}" for n in range(5)]


def test_summary_covers_the_selected_pairs_only(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(3))

    def answer(request: Request) -> object:
        return reply(label(1) if "way 0\n" in request.prompt else label(0))

    def run(server: ChatServer, *more: str) -> tuple[list[str], list[float], list[float]]:
        out = agent("annotate", file, *build_options(server, "-o", "run", "--cache", "c.sqlite", *more)).out
        rows = sorted(" ".join(row.split()) for row in re.findall(r"^(p\d .*?) judge", out, re.M))
        return rows, read_figures(out, "pairs"), read_figures(out, "labels")

    with ChatServer(answer) as server:  # type: ignore[arg-type]
        assert run(server) == (["p0 1", "p1 0", "p2 0"], [3], [1, 2, 0])
        assert run(server, "--limit", "1") == (["p0 1"], [1, 3], [1, 0, 0])
        run(server, "--rounds", "2")
        assert run(server, "--rounds", "2", "--limit", "1") == (["p0 0 1", "p0 1 1"], [1, 3, 2, 2, 6], [1, 0, 0])


def test_rounds_are_summarised_by_majority_and_agreement(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(2))

    def answer(request: Request) -> object:
        return reply(label(0 if "way 1\n" in request.prompt and request.number % 2 else 1))

    with ChatServer(answer) as server:  # type: ignore[arg-type]
        options = build_options(server, "-o", "run", "--concurrency", "1", "--rounds", "2", "-c", "temperature=0")
        done = agent("annotate", file, *options)
        resumed = agent("annotate", file, *options, "--json")
        shown = agent("show", "run", "--json")
    assert len(server.requests) == 4
    assert re.search(r"^2 pairs .*2 rounds .*single_llm", done.err, re.M)
    assert "temperature 0" in done.err
    assert (read_figures(done.out, "pairs"), read_figures(done.out, "labels")) == ([2, 2, 4], [1, 0, 1])
    assert read_figures(done.out, "agreement") == [50.0, 0.0]
    for document in (resumed.json, shown.json):
        assert (document["pairs"], document["annotations"], document["rounds"], document["agreement"]) == (2, 4, 2, 0.5)
        assert document["labels"] == {"1": 1, "0": 0, "null": 1}
    lines = (agent.folder / "run/labels.jsonl").read_text().splitlines()
    assert [(row["id"], row["votes"]) for row in map(json.loads, lines)] == [("p0", [1, 1]), ("p1", [1, 0])]


def test_the_default_folder_is_named_after_file_variant_and_model(agent: Commands) -> None:
    file = agent.write("my pairs.v2.jsonl", pairs(1))
    with ChatServer(reply(label(1))) as server:
        options = ("--base-url", server.url, "--model", "org/model:7b", "--variant", "ps_fa", "--without", "screen")
        done = agent("annotate", file, *options, "--json")
    assert done.json["run"] == "runs/my_pairs.v2-ps_fa-without-screen-org_model_7b"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--variant", "fulll"), "'fulll'"),
        (("--without", "arbitrate"), "arbitrate"),
        (("--model", "boss=heuristic"), "'boss'"),
        (("--model", "x"), "'x'"),
        (("--sandbox", "chroot"), "chroot"),
        (("--limit", "0"), "--limit"),
        (("-c", "prices=gone.yaml"), "gone.yaml"),
        (("--prompts", "gone"), "gone"),
        (("--map", "query"), "--map"),
        (("--map", "query=q,code=c"), "--map"),
        (("--cache", "p.jsonl"), "p.jsonl"),
        (("--cache", "/dev/null"), "--cache: /dev/null "),
        (("-o", "p.jsonl"), "-o: p.jsonl "),
        (("-o", "/proc/run"), "-o: /proc/run "),
        (("-o", "."), ".: "),
    ],
)
def test_wrong_usage_exits_with_2_and_one_message(agent: Commands, arguments: tuple[str, ...], message: str) -> None:
    agent.write("p.jsonl", pairs(1))
    agent.check_refused(message, "annotate", "p.jsonl", *OFFLINE, *arguments)
    assert not (agent.folder / "runs").exists() or not list((agent.folder / "runs").glob("*/manifest.json"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "replay:gone.jsonl"), "gone.jsonl: "),
        (("--model", "replay:p.jsonl"), "p.jsonl:1: "),
        (("--model", "replay:"), "replay:"),
        (("--model", "m", "--base-url", "not a url"), "not a url"),
    ],
)
def test_unavailable_model_is_reported(agent: Commands, arguments: tuple[str, ...], message: str) -> None:
    file = agent.write("p.jsonl", pairs(1))
    agent.check_refused(message, "annotate", file, "--variant", "ps_fa", *arguments)


def test_role_without_model_is_reported_before_any_call(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(1))
    with ChatServer(reply(label(1))) as server:
        options = ("--variant", "ps_fa", "--model", "screen=m", "--base-url", server.url)
        agent.check_refused("'arbitrate'", "annotate", file, *options)
    assert server.requests == []


def test_rejected_key_stops_the_run(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(3))
    with ChatServer(unauthorized()) as server:
        result = agent("annotate", file, *build_options(server), OPENAI_API_KEY="sk-secret-secret")
    assert result.code == 3
    assert "HTTP 401" in result.err
    assert f"agent annotate p.jsonl --variant single_llm --model m --base-url {server.url}" in result.err
    assert "sk-secret" not in result.err + result.out
    assert read_annotations(agent.folder / "runs/p-single_llm-m") == []


def test_folder_of_another_run_is_rejected_with_the_differences(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(2))
    assert agent("annotate", file, *OFFLINE, "-o", "run").code == 0
    before = read_annotations(agent.folder / "run")
    agent.check_refused("pipeline.criterion: 'exact' ", "annotate", file, *OFFLINE, "-o", "run", "--criterion", "half")
    assert read_annotations(agent.folder / "run") == before
    assert agent("annotate", file, *OFFLINE, "-o", "run").code == 0


def test_recorded_replies_of_identical_pairs_are_not_mixed_up(agent: Commands) -> None:
    same = pairs(1)[0]
    file = agent.write("p.jsonl", [{**same, "id": "a"}, {**same, "id": "b"}])
    agent.write("r.jsonl", [{"pair": name, "role": "judge", "reply": label(n)} for name, n in (("a", 1), ("b", 0))])
    for folder in ("one", "two"):
        options = ("--variant", "single_llm", "--model", "replay:r.jsonl", "-o", folder, "--cache", "c.sqlite")
        assert agent("annotate", file, *options).code == 0
        assert {row["id"]: row["label"] for row in read_annotations(agent.folder / folder)} == {"a": 1, "b": 0}


def test_budget_stops_the_run_and_a_larger_one_resumes_it(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(4))
    agent.write("prices.json", json.dumps({"m": {"input": 500, "output": 500}}))
    with ChatServer(reply(label(1), completion_tokens=0)) as server:
        options = build_options(server, "-c", "prices=prices.json", "--concurrency", "1", "-o", "run", "--json")
        stopped = agent("annotate", file, *options, "--budget", "1.5")
        assert (stopped.code, stopped.out, len(server.requests)) == (3, "", 2)
        assert all(text in stopped.err for text in ("\n2 pairs ", "(--budget)", "\n  agent annotate"))
        resumed = agent("annotate", file, *options, "--budget", "1.5")
        assert (resumed.code, resumed.out, len(server.requests)) == (3, "", 2)
        assert (resumed.err.count("$1.5 "), resumed.err.count("$2.0000 ")) == (1, 2)
        done = agent("annotate", file, *options, "--budget", "10")
    assert (done.code, done.json["pairs"], done.json["usage"]["cost_usd"]) == (0, 4, 4.0)


def test_budget_counts_retried_errors(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(1))
    agent.write("prices.json", json.dumps({"m": {"input": 500, "output": 500}}))
    with ChatServer(reply("no", completion_tokens=0)) as server:
        options = build_options(
            server, "-c", "prices=prices.json", "-c", "pipeline.format_retries=0", "-o", "run", "--retry-errors"
        )
        codes = []
        for attempt in range(4):
            options = (*options, "--cache", f"{attempt}.sqlite")
            codes.append(agent("annotate", file, *options, "--budget", "1.5").code)
    assert (codes, len(server.requests)) == ([1, 1, 3, 3], 2)
    document = agent("show", "run", "--json").json
    assert (document["usage"]["cost_usd"], document["spent_usd"]) == (1.0, 2.0)
    assert read_figures(agent("show", "run").out, "folder")[0] == 2


def test_budget_set_later_counts_earlier_calls(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(3))
    agent.write("prices.json", json.dumps({"m": {"input": 500, "output": 0}}))
    with ChatServer([reply("no"), *[reply(label(1), prompt_tokens=1000)] * 5]) as server:
        options = build_options(server, "-o", "run", "-c", "pipeline.format_retries=0", "--concurrency", "1")
        assert agent("annotate", file, *options, "--limit", "2").code == 1
        priced_options = (*options, "-c", "prices=prices.json", "--budget")
        refused = agent("annotate", file, *priced_options, "1")
        assert (refused.code, len(server.requests)) == (3, 2)
        assert "$1 " in refused.err
        done = agent("annotate", file, *priced_options, "9", "--retry-errors", "--json")
    assert (done.code, done.json["usage"]["calls"], len(server.requests)) == (0, 3, 4)


def test_unsupported_languages_are_rejected_judged_or_skipped(agent: Commands) -> None:
    row = {**pairs(1)[0], "language": "cobol"}
    options = (*OFFLINE, "--variant", "ps_tpg_fa")
    file = agent.write("p.jsonl", [row])
    agent.check_refused("'cobol'", "annotate", file, *options)
    skipped = agent("annotate", file, *options, "--unsupported", "skip", "-o", "skipped", "--json")
    assert (skipped.code, skipped.json["labels"]["null"], skipped.json["errors"]) == (0, 1, {})
    judged = agent("annotate", file, *options, "--unsupported", "judge", "-o", "judged", "--json")
    assert (judged.code, judged.json["decided_by"]) == (0, {"judge": 1})


def test_nothing_is_written_outside_the_run_and_the_cache(agent: Commands) -> None:
    file = agent.write("p.jsonl", pairs(1))
    agent("annotate", file, *OFFLINE, "-o", "out/run", "--cache", "out/cache.sqlite")
    assert {path.name for path in agent.folder.iterdir()} == {"p.jsonl", "out", ".out", ".err"}
    assert {Path(path).name for path in (agent.folder / "out").iterdir()} >= {"run", "cache.sqlite"}


def test_help_and_version_are_printed(agent: Commands) -> None:
    assert "annotate" in agent("--help").out
    assert "--retry-errors" in agent("annotate", "--help").out
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", agent("--version").out)
    assert agent("annotat").code == 2


def test_pairs_and_rounds_are_printed_in_input_order(agent: Commands) -> None:
    def answer(request: Request) -> Answer:
        return slow(3, reply(label(1))) if "way 0\n" in request.prompt else reply(label(1))

    with ChatServer(answer) as server:
        options = ("--model", "m", "--base-url", server.url, "--variant", "single_llm", "--rounds", "2", "-o", "run")
        shown = agent("annotate", agent.write("p.jsonl", pairs(3)), *options, "-c", "temperature=1").out
    rows = [line.split()[:2] for line in shown.splitlines() if line.startswith("p") and line[1].isdigit()]
    assert rows == [[f"p{number}", str(round)] for number in range(3) for round in range(2)]
    first = read_annotations(agent.folder / "run")[0]
    assert (first["id"], first["round"]) != ("p0", 0)
