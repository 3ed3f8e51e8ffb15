"""A run stops at its deadline or token limit, keeps finished pairs and can be resumed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Commands, pairs, read_annotations, reply
from tests.cli.unclear import find_role
from tests.llm.server import Answer, ChatServer, Request, rate_limited, slow
from tests.scripts import label, screen


def build_command(server: ChatServer, *more: str) -> tuple[str, ...]:
    server_options = ("--model", "m", "--base-url", server.url, "--concurrency", "1", "-o", "run")
    return ("annotate", "p.jsonl", "--variant", "single_llm", *server_options, *more)


def test_token_limit_stops_the_run_and_a_higher_one_resumes_it(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(4))
    with ChatServer(reply(label(1), completion_tokens=500)) as server:
        for _ in range(2):
            stopped = agent(*build_command(server, "-c", "runner.max_tokens_total=5000", "--json"))
            assert (stopped.code, stopped.out, len(server.requests)) == (3, "", 2)
        assert stopped.err.count("5,000 ") == 3
        assert all(text in stopped.err for text in ("\n2 pairs ", "max_tokens_total=N", "\n  agent annotate"))
        done = agent(*build_command(server, "-c", "runner.max_tokens_total=9000", "--json"))
    assert (done.code, done.json["pairs"], len(server.requests)) == (0, 4, 4)


@pytest.mark.parametrize(
    "waits", [slow(60), rate_limited("300")], ids=["a slow reply", "a long wait that the server requests"]
)
def test_deadline_stops_the_run_and_a_later_one_resumes_it(agent: Commands, waits: Answer) -> None:
    agent.write("p.jsonl", pairs(4))
    waiting = True

    def answer(request: Request) -> Answer:
        return waits if waiting and request.number >= 2 else reply(label(1))

    with ChatServer(answer) as server:
        stopped = agent(*build_command(server, "--deadline", "4s"))
        assert stopped.code == 3
        assert all(text in stopped.err for text in ("deadline", "\n2 pairs ", "\n  agent annotate"))
        waiting = False
        done = agent(*build_command(server, "--deadline", "1h", "--json"))
    assert (done.code, done.json["pairs"], done.json["annotated_now"]) == (0, 4, 2)


def test_past_deadline_stops_before_any_call(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    with ChatServer(reply(label(1))) as server:
        stopped = agent(*build_command(server, "--deadline", "2026-01-01T07:00"))
    assert (stopped.code, server.requests) == (3, [])
    assert "2026-01-01 07:00:00" in stopped.err
    assert "stored in" not in stopped.err
    assert "(--deadline)" in stopped.err


class TestAudit:
    """`pipeline.screen_audit_rate` tests a fixed sample of the pairs that the screener decided."""

    @staticmethod
    def answer(request: Request) -> Answer:
        """Answer that all pairs match when screened, and that none matches when judged."""
        return reply(screen("match") if find_role(request) == "screen" else label(0))

    def annotate(self, agent: Commands, server: ChatServer, rows: Any, *more: str) -> Any:
        agent.write("p.jsonl", rows)
        options = ("--variant", "ps_fa", "--model", "m", "--base-url", server.url, "--json", "-c")
        done = agent("annotate", "p.jsonl", *options, "pipeline.screen_audit_rate=0.4", *more)
        assert done.code == 0, done.err
        return done.json

    @staticmethod
    def read_audited_ids(run: Path) -> set[str]:
        return {annotation["id"] for annotation in read_annotations(run) if annotation["audited"]}

    def test_summary_estimates_the_screener_error(self, agent: Commands) -> None:
        with ChatServer(self.answer) as server:
            document = self.annotate(agent, server, pairs(40), "-o", "run")
        audited_ids = self.read_audited_ids(agent.folder / "run")
        number = len(audited_ids)
        audit = document["audit"]["all"]
        assert 5 < number < 30
        assert (audit["settled"], audit["audited"], audit["wrong"], audit["share"]) == (40, number, number, 1.0)
        assert document["audit"]["non_match"]["audited"] == 0
        assert (document["decided_by"], document["labels"]["0"]) == (
            {"screen": 40 - number, "arbitrate": number},
            number,
        )
        out = " ".join(agent("show", "run").out.split())
        assert re.search(rf"\b{number} of 40 .*{number} of {number}\b.* 100\.0%", out)
        assert agent("show", "run", "--json").json["audit"] == document["audit"]

    def test_resumed_run_audits_the_same_pairs_in_any_order(self, agent: Commands) -> None:
        with ChatServer(self.answer) as server:
            self.annotate(agent, server, pairs(40), "-o", "whole")
            self.annotate(agent, server, pairs(40)[::-1], "-o", "parts", "--limit", "13", "--cache", "other.sqlite")
            self.annotate(agent, server, pairs(40)[::-1], "-o", "parts", "--cache", "other.sqlite")
        assert self.read_audited_ids(agent.folder / "parts") == self.read_audited_ids(agent.folder / "whole")
