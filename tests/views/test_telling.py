"""What the page is told of a pair's replies."""

from __future__ import annotations

from agent.evidence import Evidence, Exchange
from agent.types import Annotation, Pair
from agent.views.queues import Entry
from agent.views.telling import evidence_told

PAIR = Pair(id="a", query="q", code="c")


def test_a_reply_that_could_not_be_used_says_whether_it_was_asked_again() -> None:
    turns = [{"role": "user", "content": content} for content in ("judge", "no", "again")]
    tries = tuple(
        Exchange(role="judge", key="k", messages=tuple(turns[:length]), reply="no", problem="p") for length in (1, 3)
    )
    annotation, evidence = Annotation(id="a", input_sha256=""), Evidence(pair=PAIR, exchanges=tries)
    told = evidence_told(Entry("a", 0, ()), PAIR, annotation, evidence, rounds=[annotation], others=())
    assert [(each["problem"], each["again"]) for each in told["replies"]] == [("p", True), ("p", False)]
