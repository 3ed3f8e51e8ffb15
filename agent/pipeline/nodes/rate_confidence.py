"""Confidence in a label, computed from repeated votes of the arbiter and the strength of the test."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from agent.llm.parsing import OpenLabelReply
from agent.pipeline.nodes.asking import UNDECIDED, find_match
from agent.pipeline.state import Node, State, Step, Tools
from agent.types import majority

Vote = Literal[0, 1] | None

STRONGEST_TEST = 4.0
"""Factor by which a test of strength 1 multiplies the odds of the label that it supports."""

UNKNOWN_STRENGTH = 0.5
"""Assumed strength of a test that was not run on mutants, because it failed or the variant has no validity check."""

_ROLE = "arbitrate"


class RateConfidence(Node):
    """Collect votes by repeating the arbiter's call (`votes` in total), choose the majority label, and rate the label.

    The votes are independent replies to one prompt, so each pair that the arbiter labelled costs `votes - 1` more
    calls. A label from the screener or a rule is rated as a single vote, without a model call. The label is the answer
    with the most votes. Its reading and reason come from votes for this label. A tie is an abstention. The label of an
    abstention is null, or 0 if the `abstain` setting is `negative`.
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
            arbiter_votes = [_ArbiterVote(votes[0], state.get("matched", ""), state["reason"])]
            for vote in range(1, tools.config.votes):
                reply: OpenLabelReply = await tools.asker.ask_again(_ROLE, vote)
                arbiter_votes.append(_ArbiterVote(reply.label, find_match(state, reply), reply.reason))
            votes = tuple(vote.label for vote in arbiter_votes)
            update = {"votes": votes, **_decide(arbiter_votes, UNDECIDED[tools.config.abstain])}
        decided: State = {**state, **update}
        label = None if decided.get("abstained") else decided["label"]
        value = None if label is None else compute_confidence(label, votes, compute_support(label, decided))
        return Step("rated", {**update, "confidence": value})


@dataclass(frozen=True)
class _ArbiterVote:
    """One vote: its label, the reading that the code meets (or an empty string), and its reason."""

    label: Vote
    reading: str
    reason: str


def _decide(votes: Sequence[_ArbiterVote], undecided: Literal[0] | None) -> State:
    """Return the majority label, the reading that most votes for it name, and the reason from one of these votes.

    If several readings are tied, the first one wins.
    """
    answers = ["undecided" if vote.label is None else str(vote.label) for vote in votes]
    winner = majority(answers)
    if winner is None:
        reason = f"the votes are tied ({', '.join(answers)}). {votes[0].reason}"
        return {"label": undecided, "abstained": True, "matched": "", "reason": reason}
    winning_votes = [vote for vote, answer in zip(votes, answers, strict=True) if answer == winner]
    reading = Counter(vote.reading for vote in winning_votes).most_common(1)[0][0]
    reason = next(vote.reason for vote in winning_votes if vote.reading == reading)
    label = winning_votes[0].label
    return {
        "label": undecided if label is None else label,
        "abstained": label is None,
        "matched": reading,
        "reason": reason,
    }


def compute_support(label: int, state: State) -> float:
    """Return a test's support for a label: the test's strength, negated if the test contradicts the label.

    The support is 0 without evidence.
    """
    report, strength = state.get("report"), state.get("strength")
    if report is None or report.says is None:
        return 0.0
    weight = UNKNOWN_STRENGTH if strength is None else strength
    return weight if report.says == label else -weight


def compute_confidence(label: int, votes: Sequence[Vote], support: float) -> float:
    """Return the confidence (0 to 1), which increases with the votes for the label and the test's support (-1 to 1).

    The votes estimate the chance that one more vote would agree, according to Laplace's rule of succession. The chance
    is (k + 1) / (n + 2) if k of n votes are for the label. A test of strength s that supports the label multiplies the
    label's odds by STRONGEST_TEST ** s. A test that contradicts the label divides the odds by the same factor. This
    calculation assumes independent evidence, but the arbiter has read the report of the test. The result can therefore
    be used to rank labels, but it is a probability only after calibration on labelled pairs.

    Examples: the result is .67 for a screener's verdict, and .80 for three identical votes. If a test supports the
    three votes, the result is .93 at strength .9, and .80 at strength 0. If a test of strength .9 contradicts them, the
    result is .53.
    """
    agreement = (sum(vote == label for vote in votes) + 1) / (len(votes) + 2)
    odds = agreement / (1 - agreement) * math.pow(STRONGEST_TEST, support)
    return round(odds / (1 + odds), 4)
