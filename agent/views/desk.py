"""One reviewer at a time at work on a queue: what is shown when, and what becomes of a commit."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from agent.errors import RunFolderError, UsageError
from agent.history import History
from agent.store.manifest import Clock, utc_now
from agent.store.reviews import Review, ReviewLog, read_reviews
from agent.store.run_view import RunView
from agent.types import Pair
from agent.views.guidelines import Guidelines
from agent.views.names import LONGEST_NAME, reviewer_named
from agent.views.queues import Entry, Queue
from agent.views.telling import evidence_told, pair_told, review_told

LONGEST_REASON = 10_000


class Desk:
    """Shows a queue's pairs to one reviewer and writes down what the reviewer commits.

    With `blind`, nothing but the pair is told before the reviewer has committed a label for it.
    """

    def __init__(
        self,
        view: RunView,
        queue: Queue,
        *,
        reviewer: str,
        blind: bool,
        log: ReviewLog,
        guidelines: Guidelines,
        clock: Clock = utc_now,
    ) -> None:
        self._view = view
        self._queue = queue
        self._reviewer = reviewer
        self._blind = blind
        self._log = log
        self._guidelines = guidelines
        self._clock = clock
        self._id = secrets.token_hex(8)
        self._mine = self._reviews_of(reviewer)
        self._rounds: dict[str, list[int]] = {entry.id: [] for entry in queue.entries}
        for pair_id, number in sorted(view.index.done()):
            if pair_id in self._rounds:
                self._rounds[pair_id].append(number)

    def __len__(self) -> int:
        return len(self._queue.entries)

    @property
    def reviewer(self) -> str:
        """Who reviews."""
        return self._reviewer

    @property
    def reviewed(self) -> int:
        """Number of the queue's pairs that the reviewer has committed a label for, now or before."""
        return sum(entry.id in self._mine for entry in self._queue.entries)

    def session(self) -> dict[str, Any]:
        """Return what is the same for all pairs, and which of them the reviewer has reviewed."""
        return {
            "id": self._id,
            "run": str(self._view.path),
            "reviews": str(self._log.path),
            "reviewer": self._reviewer,
            "blind": self._blind,
            "queue": self._queue.title,
            "guidelines": asdict(self._guidelines),
            "reviewed": [entry.id in self._mine for entry in self._queue.entries],
        }

    def change_reviewer(self, document: object) -> dict[str, Any]:
        """Go on with another reviewer, and return the session as it is then.

        Raises:
            UsageError: the document is not `{"reviewer": name}`.
            RunFolderError: the file of reviews is damaged; nothing has changed.
        """
        if not isinstance(document, Mapping) or set(document) != {"reviewer"}:
            raise UsageError("a change of the reviewer has a name")
        reviewer = reviewer_named(document["reviewer"])
        self._mine = self._reviews_of(reviewer)
        self._reviewer = reviewer
        return self.session()

    def show(self, number: int) -> dict[str, Any]:
        """Return a pair by its place in the queue, from 0; the evidence is null as long as it is hidden.

        Raises:
            UsageError: the queue is not that long.
            RunFolderError: the run's folder is damaged.
        """
        entry = self._entry(number)
        mine = self._mine.get(entry.id)
        hidden = self._blind and mine is None
        pair = self._pair(entry)
        return {
            "number": number,
            "reviewer": self._reviewer,
            "pair": pair_told(pair),
            "mine": review_told(mine),
            "evidence": None if hidden else self._evidence(entry, pair),
        }

    def commit(self, number: int, document: object) -> dict[str, Any]:
        """Write down a label and its reason, and return the review; it is on the disk then.

        A review counts as blind when this desk is and the reviewer, here or at another desk, had committed none before.

        Raises:
            UsageError: the queue is not that long, or the document is not `{"label": 0, 1 or null, "reason": text,
                "reviewer": name}` with the name of who reviews now.
            StorageError: it could not be written; nothing has changed.
            RunFolderError: the file of reviews is damaged; nothing has changed.
        """
        entry = self._entry(number)
        label, reason, reviewer = _read(document)
        if reviewer != self._reviewer:
            raise UsageError(
                f"This page reviews as {reviewer[:LONGEST_NAME]}, and the session as {self._reviewer} by now (the name "
                "was changed in another tab): load the page anew, or change the name back."
            )
        review = Review(
            id=entry.id,
            round=entry.round,
            label=label,
            reason=reason,
            reviewer=self._reviewer,
            at=self._clock().replace(microsecond=0),
            blind=self._blind,
            source="queue" if self._queue.sample is None else "sample",
            sample=self._queue.sample,
        )
        review = self._log.append(review)
        self._mine[entry.id] = review
        return {"saved": review_told(review)}

    def _reviews_of(self, reviewer: str) -> dict[str, Review]:
        return {review.id: review for review in read_reviews(self._log.path) if review.reviewer == reviewer}

    def _entry(self, number: int) -> Entry:
        if not 0 <= number < len(self):
            raise UsageError(f"there is no pair {number}")
        return self._queue.entries[number]

    def _pair(self, entry: Entry) -> Pair:
        evidence = self._kept(entry)
        if evidence is not None:
            return evidence.pair
        for pair in self._view.pairs():
            if pair.id == entry.id:
                return pair
        raise RunFolderError(
            f"{self._view.path}: the pair {entry.id[:60]!r} is neither in its evidence nor in its input"
        )

    def _kept(self, entry: Entry) -> History | None:
        return self._view.evidence(entry.id, entry.round) if self._view.has_evidence else None

    def _evidence(self, entry: Entry, pair: Pair) -> dict[str, Any]:
        found = {number: self._view.annotation(entry.id, number) for number in self._rounds[entry.id]}
        annotations = {number: annotation for number, annotation in found.items() if annotation is not None}
        others = (review for review in read_reviews(self._log.path) if review.reviewer != self._reviewer)
        return evidence_told(
            entry,
            pair,
            annotations[entry.round],
            self._kept(entry),
            rounds=annotations.values(),
            others=[review for review in others if review.id == entry.id],
        )


def _read(document: object) -> tuple[Literal[0, 1] | None, str, str]:
    if not isinstance(document, Mapping) or set(document) != {"label", "reason", "reviewer"}:
        raise UsageError("a review has a label, a reason and a reviewer")
    label, reason, reviewer = document["label"], document["reason"], document["reviewer"]
    if isinstance(label, bool) or label not in (0, 1, None):
        raise UsageError("a label is 0, 1 or null")
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        raise UsageError(f"a reason is a text of at most {LONGEST_REASON} characters")
    if not isinstance(reviewer, str):
        raise UsageError("a reviewer is a name")
    return label, reason.strip(), reviewer
