"""What the page is told of a pair's replies."""

from __future__ import annotations

from agent.history import Exchange, History
from agent.types import Annotation, Pair
from agent.views.queues import Entry
from agent.views.telling import evidence_told

PAIR = Pair(id="a", query="q", code="c")


def test_a_reply_that_could_not_be_used_says_whether_it_was_asked_again() -> None:
    tries = [
        Exchange(role="judge", key="k", messages=(), reply="no", problem="p", attempt=attempt) for attempt in (0, 1)
    ]
    annotation, evidence = Annotation(id="a", input_sha256=""), History(pair=PAIR, events=tuple(tries))
    told = evidence_told(Entry("a", 0, ()), PAIR, annotation, evidence, rounds=[annotation], others=())
    assert [(each["problem"], each["again"]) for each in told["replies"]] == [("p", True), ("p", False)]
