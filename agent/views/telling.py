"""Puts pairs, annotations and evidence into the JSON that the page shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent.history import History
from agent.store.majority import Votes
from agent.store.reviews import Review
from agent.types import Annotation, Pair, TestReport
from agent.views.queues import Entry

_TOLD = {
    *("label", "decided_by", "reason", "screen_verdict", "simulated", "stand_ins", "reading", "strength", "votes"),
    *("confidence", "abstained", "installed", "error"),
}


def pair_told(pair: Pair) -> dict[str, Any]:
    """Return what a reviewer may see before a commit: neither the id nor `meta`, which may give a label away."""
    return {"query": pair.query, "code": pair.code, "language": pair.language, "context": pair.context}


def review_told(review: Review | None) -> dict[str, Any] | None:
    """Return a review as the page shows it."""
    if review is None:
        return None
    return review.model_dump(mode="json", include={"label", "reason", "reviewer", "at", "blind"})


def evidence_told(
    entry: Entry,
    pair: Pair,
    annotation: Annotation,
    evidence: History | None,
    *,
    rounds: Iterable[Annotation],
    others: Iterable[Review],
) -> dict[str, Any]:
    """Return what a reviewer sees after a commit: the label, what led to it, and what others say.

    `ended` is how the pair ended by the majority of its rounds, `annotation` that of one round.
    """
    rounds, votes = list(rounds), Votes()
    for each in rounds:
        votes.add(each)
    (label,) = votes.labels()
    return {
        "id": entry.id,
        "ended": label.ended,
        "round": entry.round,
        "why": entry.why,
        "meta": pair.meta,
        "annotation": annotation.model_dump(mode="json", include=_TOLD),
        "test": None if annotation.test is None else _test(annotation.test),
        "rounds": [{"round": each.round, "label": each.label, "failed": each.error is not None} for each in rounds],
        "others": [review_told(review) for review in others],
        **_work(evidence),
    }


def _test(report: TestReport) -> dict[str, Any]:
    return {**report.model_dump(mode="json"), "outcome": report.outcome}


def _work(evidence: History | None) -> dict[str, Any]:
    if evidence is None:
        return {"kept": False, "template": None, "executions": (), "replies": (), "commands": ()}
    return {
        "kept": True,
        "template": evidence.programs[-1].template if evidence.programs else None,
        "executions": [
            {
                "source": evidence.programs[each.program].source,
                **each.model_dump(mode="json", include={"installed", "stdout", "stderr", "seconds"}),
            }
            for each in evidence.tests
        ],
        "replies": [
            {"role": each.role, "model": each.model, "reply": each.reply, "problem": each.problem, "again": again}
            for each, again in zip(evidence.exchanges, evidence.asked_again(), strict=True)
        ],
        "commands": [each.model_dump(mode="json", exclude={"kind"}) for each in evidence.commands],
    }
