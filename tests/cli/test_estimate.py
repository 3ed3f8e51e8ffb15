"""`agent annotate --dry-run` says what a run would take, and neither asks nor writes anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.commands import Commands, pairs
from tests.evaluation.counting import reply_with_usage
from tests.llm.server import ChatServer

OPTIONS = ("--variant", "ps_fa", "--model", "gpt-4o-mini")


@pytest.fixture
def server(agent: Commands) -> Iterator[ChatServer]:
    """A server that counts tokens, and 60 pairs."""
    agent.write(
        "p.jsonl", [{**row, "code": f"def add_{n}(a, b):\n    return a + b\n"} for n, row in enumerate(pairs(60))]
    )
    with ChatServer(reply_with_usage) as server:
        yield server


def files(agent: Commands) -> set[str]:
    return {str(path.relative_to(agent.folder)) for path in agent.folder.rglob("*") if not path.name.startswith(".")}


def test_nothing_is_asked_or_written_and_no_key_is_needed(agent: Commands, server: ChatServer) -> None:
    before = files(agent)
    ended = agent("annotate", "p.jsonl", *OPTIONS, "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    assert "60 pairs, 60 annotations" in ended.out
    assert agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "--dry-run").code == 0
    assert server.requests == []
    assert files(agent) == before


def test_a_run_that_has_begun_says_what_the_rest_takes(agent: Commands, server: ChatServer) -> None:
    annotate = ("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "run")
    agent(*annotate, "--limit", "30", "--cache", "other.sqlite")
    found = agent(*annotate, "--dry-run", "--json").json
    assert (found["annotations"], found["sampled"], found["tokens_from"]) == (30, 30, "earlier run")
    assert found["like"] == "run"
    asked = len(server.requests)
    paid = agent(*annotate, "--json").json["usage"]
    assert found["calls"]["low"] <= len(server.requests) - asked <= found["calls"]["high"]
    assert found["input_tokens"]["value"] == pytest.approx(paid["input_tokens"] / 2, rel=0.2)
    assert agent(*annotate, "--dry-run", "--json").json == {"annotations": 0}
    assert agent(*annotate, "--dry-run").out == "Nothing is left to annotate: all of it is in run.\n"
    assert agent(*annotate, "--dry-run", "--rounds", "2", "--json").json["annotations"] == 60
    other = agent("annotate", "p.jsonl", "--variant", "ps_fa", "--model", "gpt-4o", "-o", "run", "--dry-run")
    assert (other.code, other.out) == (2, "")
    assert "agent: run: " in other.err
    assert "gpt-4o" in other.err
    assert "--like run" in other.err


def test_another_run_says_what_a_new_one_takes_and_less_exactly_of_another_model(
    agent: Commands, server: ChatServer
) -> None:
    agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "run", "--limit", "20")
    estimate = ("annotate", "p.jsonl", "--variant", "ps_fa", "--dry-run", "--json", "--like", "run", "--model")
    same, other = agent(*estimate, "gpt-4o-mini"), agent(*estimate, "mine")
    found = same.json
    assert (found["annotations"], found["sampled"], found["tokens_from"]) == (60, 20, "earlier run")
    assert (found["like"], same.err) == ("run", "")
    assert "run used gpt-4o-mini, not mine" in other.err
    assert (other.json["tokens_from"], other.json["cost_usd"]) == ("assumption", None)
    widths = [each.json["input_tokens"]["high"] / each.json["input_tokens"]["low"] for each in (same, other)]
    assert widths[1] > 1.1 * widths[0]


@pytest.mark.usefixtures("server")
def test_by_batch_the_price_is_half_and_the_time_is_days(agent: Commands) -> None:
    estimate = ("annotate", "p.jsonl", *OPTIONS, "--dry-run", "--json")
    now, batch = agent(*estimate).json, agent(*estimate, "--batch").json
    assert batch["cost_usd"]["value"] == pytest.approx(now["cost_usd"]["value"] / 2)
    assert (now["seconds"]["value"] > 0, batch["seconds"], batch["calls"]) == (True, None, now["calls"])
    assert "up to a day" in agent("annotate", "p.jsonl", *OPTIONS, "--dry-run", "--batch").out
    refused = agent("annotate", "p.jsonl", "--model", "heuristic", "--dry-run", "--batch")
    assert (refused.code, refused.out) == (2, "")


def test_replies_in_the_cache_say_how_long_tokens_are(agent: Commands, server: ChatServer) -> None:
    agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "run", "--limit", "15")
    found = agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "new", "--dry-run", "--json").json
    assert (found["tokens_from"], found["in_cache"]) == ("reply cache", 0.25)
    assert 3 < found["characters_per_token"] < 3.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--like", "run"), "--like is for --dry-run"),
        (("--like", "gone", "--dry-run"), "gone: no such folder"),
        (("--like", "run", "--dry-run"), "20 annotations"),
        (
            ("--like", "run", "--dry-run", "--variant", "full"),
            "--like",
        ),
        (
            ("-o", "run", "--dry-run", "--variant", "full"),
            "(-o)",
        ),
    ],
)
def test_what_an_estimate_cannot_go_by_is_refused(agent: Commands, options: tuple[str, ...], message: str) -> None:
    agent("annotate", agent.write("p.jsonl", pairs(3)), "--model", "heuristic", "--variant", "ps_fa", "-o", "run")
    ended = agent("annotate", "p.jsonl", "--model", "heuristic", "--variant", "ps_fa", *options)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
