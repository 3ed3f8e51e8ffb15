"""Confidence: how far a label can be relied on, from repeated votes of the arbiter and from what the test is worth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from agent.llm.parsing import OpenLabelReply
from agent.nodes.asking import UNDECIDED, find_match
from agent.state import Node, State, Step, Tools
from agent.types import majority

Vote = Literal[0, 1] | None

STRONGEST_TEST = 4.0
"""By how much a test of strength 1 multiplies the odds of the label that it speaks for."""

UNKNOWN_STRENGTH = 0.5
"""The strength of a test that was not tried on mutants: one that failed, or where the check is left out."""

_ROLE = "arbitrate"


class RateConfidence(Node):
    """Ask the arbiter's question again, `votes` times in all, take the majority's label and rate it.

    The votes are independent samples of one and the same prompt: `votes - 1` calls more for each pair that the arbiter
    decided. Labels of the screener, or of a rule, are rated as they are: one opinion, no call. The label is the answer
    with the most votes, and what it says of readings and reasons comes from votes for it; where no answer has more than
    every other, the evidence does not decide: null, or 0 where the setting `abstain` says so.
    """

    name = "rate_confidence"
    requires = frozenset({"label"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"rated": frozenset({"confidence"})}
    bypass = "rated"
    settings = frozenset({"votes", "abstain"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the label with its confidence."""
        update: State = {}
        votes: tuple[Vote, ...] = (None if state.get("abstained") else state["label"],)
        if tools.asker.has_asked(_ROLE) and tools.config.votes > 1:
            given = [_ArbiterVote(votes[0], state.get("matched", ""), state["reason"])]
            for vote in range(1, tools.config.votes):
                reply: OpenLabelReply = await tools.asker.ask_again(_ROLE, vote)
                given.append(_ArbiterVote(reply.label, find_match(state, reply), reply.reason))
            votes = tuple(each.label for each in given)
            update = {"votes": votes, **_decide(given, UNDECIDED[tools.config.abstain])}
        decided: State = {**state, **update}
        label = None if decided.get("abstained") else decided["label"]
        rated = None if label is None else compute_confidence(label, votes, compute_support(label, decided))
        return Step("rated", {**update, "confidence": rated})


@dataclass(frozen=True)
class _ArbiterVote:
    """One vote: its label, the reading that it finds matched (empty: none), and its reason."""

    label: Vote
    reading: str
    reason: str


def _decide(given: Sequence[_ArbiterVote], undecided: Literal[0] | None) -> State:
    """Return what the votes decide: the majority's label, the reading that most of its votes name, and a reason for it.

    Of readings that equally many name, it is the first.
    """
    answers = ["undecided" if each.label is None else str(each.label) for each in given]
    winner = majority(answers)
    if winner is None:
        reason = f"the votes are divided ({', '.join(answers)}). {given[0].reason}"
        return {"label": undecided, "abstained": True, "matched": "", "reason": reason}
    agreed = [each for each, answer in zip(given, answers, strict=True) if answer == winner]
    reading = Counter(each.reading for each in agreed).most_common(1)[0][0]
    reason = next(each.reason for each in agreed if each.reading == reading)
    label = agreed[0].label
    return {
        "label": undecided if label is None else label,
        "abstained": label is None,
        "matched": reading,
        "reason": reason,
    }


def compute_support(label: int, state: State) -> float:
    """Return how far the test speaks for a label: from 1 by -1, 0 where it says nothing.

    It speaks by its strength.
    """
    report, strength = state.get("report"), state.get("strength")
    if report is None or report.says is None:
        return 0.0
    worth = UNKNOWN_STRENGTH if strength is None else strength
    return worth if report.says == label else -worth


def compute_confidence(label: int, votes: Sequence[Vote], support: float) -> float:
    """Return a number from 0 to 1 that rises with the votes for the label and with the test's support (-1 to 1).

    The votes give the chance that one more would agree, by Laplace's rule of succession: (k + 1) / (n + 2) for k of n.
    A test of strength s that speaks for the label multiplies its odds by STRONGEST_TEST ** s, and divides them so where
    it speaks against it: as for independent evidence, which these two are not quite, for the arbiter has read the
    report. So this orders labels; it is a probability only after it was calibrated on labelled pairs. Examples: a
    screener's word .67; three votes .80; three votes and a passed test of strength .9 .93, of strength 0 .80; three
    votes against such a test .53.
    """
    agreed = (sum(vote == label for vote in votes) + 1) / (len(votes) + 2)
    odds = agreed / (1 - agreed) * math.pow(STRONGEST_TEST, support)
    return round(odds / (1 + odds), 4)
