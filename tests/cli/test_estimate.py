"""`agent annotate --dry-run` forecasts a run without calling a model or writing files."""

from __future__ import annotations

import re
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


def list_files(agent: Commands) -> set[str]:
    return {str(path.relative_to(agent.folder)) for path in agent.folder.rglob("*") if not path.name.startswith(".")}


def test_dry_run_calls_nothing_writes_nothing_and_needs_no_key(agent: Commands, server: ChatServer) -> None:
    before = list_files(agent)
    result = agent("annotate", "p.jsonl", *OPTIONS, "--dry-run")
    assert (result.code, result.err) == (0, "")
    assert result.out.split()[:3] == ["to", "do", "60"]
    assert agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "--dry-run").code == 0
    assert server.requests == []
    assert list_files(agent) == before


def test_started_run_forecasts_the_remaining_pairs(agent: Commands, server: ChatServer) -> None:
    annotate = ("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "run")
    agent(*annotate, "--limit", "30", "--cache", "other.sqlite")
    estimate = agent(*annotate, "--dry-run", "--json").json
    assert (estimate["annotations"], estimate["sampled"], estimate["tokens_from"]) == (30, 30, "earlier run")
    assert estimate["like"] == "run"
    requests_before = len(server.requests)
    paid = agent(*annotate, "--json").json["usage"]
    assert estimate["calls"]["low"] <= len(server.requests) - requests_before <= estimate["calls"]["high"]
    assert estimate["input_tokens"]["value"] == pytest.approx(paid["input_tokens"] / 2, rel=0.2)
    assert agent(*annotate, "--dry-run", "--json").json == {"annotations": 0}
    assert agent(*annotate, "--dry-run").out.count("\n") == 1
    assert agent(*annotate, "--dry-run", "--rounds", "2", "--json").json["annotations"] == 60
    other = agent("annotate", "p.jsonl", "--variant", "ps_fa", "--model", "gpt-4o", "-o", "run", "--dry-run")
    assert (other.code, other.out) == (2, "")
    assert re.search(r"run: .*gpt-4o", other.err)


def test_forecast_from_another_run_is_wider_for_another_model(agent: Commands, server: ChatServer) -> None:
    agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "run", "--limit", "20")
    estimate = ("annotate", "p.jsonl", "--variant", "ps_fa", "--dry-run", "--json", "--like", "run", "--model")
    same, other = agent(*estimate, "gpt-4o-mini"), agent(*estimate, "mine")
    document = same.json
    assert (document["annotations"], document["sampled"], document["tokens_from"]) == (60, 20, "earlier run")
    assert (document["like"], same.err) == ("run", "")
    assert "gpt-4o-mini" in other.err
    assert (other.json["tokens_from"], other.json["cost_usd"]) == ("assumption", None)
    widths = [
        forecast.json["input_tokens"]["high"] / forecast.json["input_tokens"]["low"] for forecast in (same, other)
    ]
    assert widths[1] > 1.1 * widths[0]


@pytest.mark.usefixtures("server")
def test_batch_halves_the_price_and_takes_days(agent: Commands) -> None:
    estimate = ("annotate", "p.jsonl", *OPTIONS, "--dry-run", "--json")
    now, batch = agent(*estimate).json, agent(*estimate, "--batch").json
    assert batch["cost_usd"]["value"] == pytest.approx(now["cost_usd"]["value"] / 2)
    assert (now["seconds"]["value"] > 0, batch["seconds"], batch["calls"]) == (True, None, now["calls"])
    assert " day " in agent("annotate", "p.jsonl", *OPTIONS, "--dry-run", "--batch").out
    refused = agent("annotate", "p.jsonl", "--model", "heuristic", "--dry-run", "--batch")
    assert (refused.code, refused.out) == (2, "")


def test_cached_replies_provide_token_lengths(agent: Commands, server: ChatServer) -> None:
    agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "run", "--limit", "15")
    document = agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "new", "--dry-run", "--json").json
    assert (document["tokens_from"], document["in_cache"]) == ("reply cache", 0.25)
    assert 3 < document["characters_per_token"] < 3.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--like", "run"), "--dry-run"),
        (("--like", "gone", "--dry-run"), "gone: "),
        (("--like", "run", "--dry-run"), "run: "),
        (("--like", "run", "--dry-run", "--variant", "full"), "ps_fa"),
        (("-o", "run", "--dry-run", "--variant", "full"), "ps_fa"),
    ],
)
def test_unsuitable_run_is_rejected_as_basis(agent: Commands, options: tuple[str, ...], message: str) -> None:
    agent("annotate", agent.write("p.jsonl", pairs(3)), "--model", "heuristic", "--variant", "ps_fa", "-o", "run")
    result = agent("annotate", "p.jsonl", "--model", "heuristic", "--variant", "ps_fa", *options)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
