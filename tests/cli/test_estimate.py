"""`agent annotate --dry-run` forecasts a run without calling a model or writing files."""

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


def test_dry_run_calls_nothing_writes_nothing_and_needs_no_key(agent: Commands, server: ChatServer) -> None:
    before = agent.read_files()
    result = agent("annotate", "p.jsonl", *OPTIONS, "--dry-run")
    assert (result.code, result.err) == (0, "")
    assert result.out.split()[:3] == ["to", "do", "60"]
    assert agent("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "--dry-run").code == 0
    assert server.requests == []
    assert agent.read_files() == before


def test_started_run_forecasts_the_remaining_pairs(agent: Commands, server: ChatServer) -> None:
    annotate = ("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o", "run")
    agent(*annotate, "--limit", "30", "--cache", "other.sqlite")
    estimate = agent(*annotate, "--dry-run", "--json").json
    assert (estimate["annotations"], estimate["sampled"]) == (30, 30)
    assert "30 finished annotations in run" in agent(*annotate, "--dry-run").out
    requests_before = len(server.requests)
    paid = agent(*annotate, "--json").json["usage"]
    assert estimate["calls"] == pytest.approx(len(server.requests) - requests_before, rel=0.2)
    assert estimate["input_tokens"] == pytest.approx(paid["input_tokens"] / 2, rel=0.2)
    assert estimate["cost_usd"] == pytest.approx(paid["cost_usd"] / 2, rel=0.2)
    assert agent(*annotate, "--dry-run", "--json").json == {"annotations": 0}
    assert agent(*annotate, "--dry-run").out.count("\n") == 1
    assert agent(*annotate, "--dry-run", "--rounds", "2", "--json").json["annotations"] == 60


@pytest.mark.usefixtures("server")
def test_batch_halves_the_price_and_takes_days(agent: Commands) -> None:
    estimate = ("annotate", "p.jsonl", *OPTIONS, "--dry-run", "--json")
    now, batch = agent(*estimate).json, agent(*estimate, "--batch").json
    assert batch["cost_usd"] == pytest.approx(now["cost_usd"] / 2)
    assert (now["seconds"] > 0, batch["seconds"], batch["calls"]) == (True, None, now["calls"])
    assert " day " in agent("annotate", "p.jsonl", *OPTIONS, "--dry-run", "--batch").out
    agent.check_refused("", "annotate", "p.jsonl", "--model", "heuristic", "--dry-run", "--batch")


def test_few_finished_annotations_are_no_basis_but_cached_replies_are_counted(
    agent: Commands, server: ChatServer
) -> None:
    annotate = ("annotate", "p.jsonl", *OPTIONS, "--base-url", server.url, "-o")
    agent(*annotate, "run", "--limit", "15")
    document = agent(*annotate, "new", "--dry-run", "--json").json
    assert (document["sampled"], document["in_cache"]) == (0, 0.25)
    document = agent(*annotate, "run", "--dry-run", "--json").json
    assert (document["annotations"], document["sampled"], document["in_cache"]) == (45, 0, 0)


def test_unknown_prices_are_null_and_assumptions_are_named(agent: Commands) -> None:
    estimate = ("annotate", agent.write("p.jsonl", pairs(3)), "--model", "mine", "--dry-run")
    document = agent(*estimate, "--json").json
    assert (document["cost_usd"], document["roles"]["screen"]["cost_usd"]) == (None, None)
    out = agent(*estimate).out
    assert all(word in out for word in ("unknown", "4 characters", "two thirds"))


@pytest.mark.parametrize(
    ("options", "message"), [(("--variant", "full"), "ps_fa"), (("--variant", "ps_fa", "--model", "other"), "other")]
)
def test_a_run_of_another_variant_or_model_is_rejected(agent: Commands, options: tuple[str, ...], message: str) -> None:
    agent("annotate", agent.write("p.jsonl", pairs(3)), "--model", "heuristic", "--variant", "ps_fa", "-o", "run")
    agent.check_refused(message, "annotate", "p.jsonl", "-o", "run", "--dry-run", "--model", "heuristic", *options)
