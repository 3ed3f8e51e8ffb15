"""A run stops by itself at its deadline and when its tokens are used up; what is finished is kept, and it can go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Commands, annotations, pairs, reply
from tests.cli.unclear import role
from tests.llm.server import Answer, ChatServer, Request, rate_limited, slow
from tests.scripts import label, screen


def judge(server: ChatServer, *more: str) -> tuple[str, ...]:
    server_options = ("--model", "m", "--base-url", server.url, "--concurrency", "1", "-o", "run")
    return ("annotate", "p.jsonl", "--variant", "single_llm", *server_options, *more)


def test_tokens_stop_the_run_and_more_of_them_go_on(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(4))
    with ChatServer(reply(label(1), completion_tokens=500)) as server:
        for _ in range(2):
            stopped = agent(*judge(server, "--max-tokens-total", "5000", "--json"))
            assert (stopped.code, stopped.out, len(server.requests)) == (3, "", 2)
        assert "2 pairs are finished and stored in run." in stopped.err
        assert "(5,000 spent, 5,000 " in stopped.err
        assert "The same command with more tokens (--max-tokens-total) goes on from there:\n  agent" in stopped.err
        done = agent(*judge(server, "--max-tokens-total", "9000", "--json"))
    assert (done.code, done.json["pairs"], len(server.requests)) == (0, 4, 4)


@pytest.mark.parametrize(
    "waits", [slow(60), rate_limited("300")], ids=["a slow reply", "a long wait that is asked for"]
)
def test_a_deadline_stops_the_run_and_the_same_command_finishes_it(agent: Commands, waits: Answer) -> None:
    agent.write("p.jsonl", pairs(4))
    waiting = True

    def answer(request: Request) -> Answer:
        return waits if waiting and request.number >= 2 else reply(label(1))

    with ChatServer(answer) as server:
        stopped = agent(*judge(server, "--deadline", "4s"))
        assert stopped.code == 3
        assert "Stopped: the deadline (" in stopped.err
        assert "2 pairs are finished and stored in run." in stopped.err
        assert "The same command goes on from there:\n  agent annotate" in stopped.err
        waiting = False
        done = agent(*judge(server, "--deadline", "1h", "--json"))
    assert (done.code, done.json["pairs"], done.json["annotated_now"]) == (0, 4, 2)


def test_after_a_deadline_with_a_date_a_later_one_goes_on(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    with ChatServer(reply(label(1))) as server:
        stopped = agent(*judge(server, "--deadline", "2026-01-01T07:00"))
    assert (stopped.code, server.requests) == (3, [])
    assert "2026-01-01 07:00:00" in stopped.err
    assert "kept in" not in stopped.err
    assert "The same command with a later deadline (--deadline) goes on from there:" in stopped.err


class TestAudit:
    """--audit-screen has pairs tested that the screener settled, the same ones however the run comes about."""

    @staticmethod
    def answer(request: Request) -> Answer:
        """Find all pairs to match, and every tested one not to."""
        return reply(screen("match") if role(request) == "screen" else label(0))

    def annotate(self, agent: Commands, server: ChatServer, rows: Any, *more: str) -> Any:
        agent.write("p.jsonl", rows)
        options = ("--variant", "ps_fa", "--model", "m", "--base-url", server.url, "--audit-screen", "0.4", "--json")
        done = agent("annotate", "p.jsonl", *options, *more)
        assert done.code == 0, done.err
        return done.json

    @staticmethod
    def audited(run: Path) -> set[str]:
        return {each["id"] for each in annotations(run) if each["audited"]}

    def test_the_summary_estimates_the_error_of_the_screener(self, agent: Commands) -> None:
        with ChatServer(self.answer) as server:
            told = self.annotate(agent, server, pairs(40), "-o", "run")
        audited = self.audited(agent.folder / "run")
        number = len(audited)
        whole = told["audit"]["all"]
        assert 5 < number < 30
        assert (whole["settled"], whole["audited"], whole["wrong"], whole["share"]) == (40, number, number, 1.0)
        assert told["audit"]["non_match"]["audited"] == 0
        assert (told["decided_by"], told["labels"]["0"]) == ({"screen": 40 - number, "arbitrate": number}, number)
        shown = " ".join(agent("show", "run").out.split())
        assert f"{number} of 40 verdicts audited: tests contradict {number} of {number}, 100.0%" in shown
        assert agent("show", "run", "--json").json["audit"] == told["audit"]

    def test_a_resumed_run_draws_the_same_pairs_in_whatever_order(self, agent: Commands) -> None:
        with ChatServer(self.answer) as server:
            self.annotate(agent, server, pairs(40), "-o", "whole")
            self.annotate(agent, server, pairs(40)[::-1], "-o", "parts", "--limit", "13", "--cache", "other.sqlite")
            self.annotate(agent, server, pairs(40)[::-1], "-o", "parts", "--cache", "other.sqlite")
        assert self.audited(agent.folder / "parts") == self.audited(agent.folder / "whole")
