"""One reviewer at a time at work on a queue: what is on the page when, and what becomes of a commit."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal

from agent.errors import RunFolderError, UsageError
from agent.history import History
from agent.store.annotations import Vote, combine_votes, get_status
from agent.store.manifest import Clock, utc_now
from agent.store.reviews import Review, ReviewLog, read_reviews
from agent.store.run_view import RunView, get_criterion
from agent.types import Pair
from agent.views.queues import Queue, QueueEntry
from agent.views.story import as_json, iterate_event_steps, iterate_input_fields, iterate_result_steps
from agent.wording import is_hidden

LONGEST_REASON = 10_000
LONGEST_NAME = 100


@dataclass(frozen=True)
class Guidelines:
    """What each label means under a criterion, and what to keep in mind with every pair."""

    criterion: str
    one: str
    zero: str
    notes: tuple[str, ...]


_NOTES = (
    "Where the query has several plausible readings, one that is met is enough.",
    "The code was cut out of a program: missing imports, classes and helpers do not count against it. But when the "
    "very thing asked for is left to an unseen helper, the code does not show it.",
    "What the code does counts, not what its names and comments say; right results on ordinary input are required.",
    "More than was asked is fine. Style and leftovers of Python 2 are no fault.",
    "“Cannot decide” is an answer: say why in the reason.",
)
GUIDELINES: Mapping[str, Guidelines] = {
    "exact": Guidelines(
        criterion="exact match",
        one="Under a plausible reading the code answers the query completely, or answers it and does more.",
        zero="It meets most of the demand but misses a required part, meets it only partly, or does something else, "
        "however close in topic or words.",
        notes=("Every operation, input, result, direction and means that the query names is required.", *_NOTES),
    ),
    "half": Guidelines(
        criterion="at least half",
        one="Under a plausible reading the code meets at least half of what the query demands; it may lack a smaller "
        "part.",
        zero="It meets less than half of the demand, shares only words or a topic with it, or does something else.",
        notes=(
            "The demand is every operation, input, result, direction and means that the query names: weigh what of it "
            "is met. The opposite direction, or another operation on the same subject, meets none.",
            *_NOTES,
        ),
    ),
}


def get_guidelines(manifest: Mapping[str, Any]) -> Guidelines:
    """Return the guidelines of a run's criterion.

    Raises:
        RunFolderError: the run's criterion is not known here.
    """
    criterion = get_criterion(manifest)
    try:
        return GUIDELINES[criterion]
    except KeyError:
        raise RunFolderError(f"the run's criterion is {criterion!r}, which this version does not know") from None


def parse_reviewer_name(name: object) -> str:
    """Return a reviewer's name without blanks around it.

    Raises:
        UsageError: it is no text, empty, too long, or has characters that cannot be seen.
    """
    trimmed = name.strip() if isinstance(name, str) else ""
    if not trimmed or len(trimmed) > LONGEST_NAME or any(map(is_hidden, trimmed)):
        raise UsageError(f"a name is one line of at most {LONGEST_NAME} visible characters")
    return trimmed


@dataclass
class Desk:
    """Gives a queue's pairs to one reviewer and writes down what the reviewer commits.

    With `blind`, nothing but the pair is given out before the reviewer has committed a label for it.
    """

    view: RunView
    queue: Queue
    reviewer: str
    blind: bool
    log: ReviewLog
    guidelines: Guidelines
    clock: Clock = utc_now

    def __post_init__(self) -> None:
        self._id = secrets.token_hex(8)
        self._mine = self._read_reviews(self.reviewer)

    def __len__(self) -> int:
        return len(self.queue.entries)

    @property
    def reviewed_count(self) -> int:
        """Number of the queue's pairs that the reviewer has committed a label for, now or before."""
        return sum(entry.id in self._mine for entry in self.queue.entries)

    def describe_session(self) -> dict[str, Any]:
        """Return what is the same for all pairs, and which of them the reviewer has reviewed."""
        return {
            "id": self._id,
            "run": str(self.view.path),
            "reviews": str(self.log.path),
            "reviewer": self.reviewer,
            "blind": self.blind,
            "queue": self.queue.title,
            "guidelines": asdict(self.guidelines),
            "reviewed": [entry.id in self._mine for entry in self.queue.entries],
        }

    def change_reviewer(self, document: object) -> dict[str, Any]:
        """Go on with another reviewer, and return the session as it is then.

        Raises:
            UsageError: the document is not `{"reviewer": name}`.
            RunFolderError: the file of reviews is damaged; nothing has changed.
        """
        if not isinstance(document, Mapping) or set(document) != {"reviewer"}:
            raise UsageError("a change of the reviewer has a name")
        reviewer = parse_reviewer_name(document["reviewer"])
        self._mine = self._read_reviews(reviewer)
        self.reviewer = reviewer
        return self.describe_session()

    def show(self, number: int) -> dict[str, Any]:
        """Return a pair by its place in the queue, from 0; the evidence is null as long as it is hidden.

        Neither the id nor `meta` is with the pair: they may give the label away.

        Raises:
            UsageError: the queue is not that long.
            RunFolderError: the run's folder is damaged.
        """
        entry = self._get_entry(number)
        mine = self._mine.get(entry.id)
        history = self.view.evidence(entry.id, entry.round) if self.view.has_evidence else None
        pair = self._find_pair(entry) if history is None else history.pair
        return {
            "number": number,
            "reviewer": self.reviewer,
            "pair": pair.model_dump(mode="json", include={"query", "code", "language", "context"}),
            "mine": None if mine is None else _review_as_json(mine),
            "evidence": None if self.blind and mine is None else self._build_evidence(entry, pair, history),
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
        entry = self._get_entry(number)
        label, reason, reviewer = _parse_review(document)
        if reviewer != self.reviewer:
            raise UsageError(
                f"This page reviews as {reviewer[:LONGEST_NAME]}, and the session as {self.reviewer} by now (the name "
                "was changed in another tab): load the page anew, or change the name back."
            )
        review = self.log.append(
            Review(
                id=entry.id,
                round=entry.round,
                label=label,
                reason=reason,
                reviewer=self.reviewer,
                at=self.clock().replace(microsecond=0),
                blind=self.blind,
                source="queue" if self.queue.sample is None else "sample",
                sample=self.queue.sample,
            )
        )
        self._mine[entry.id] = review
        return {"saved": _review_as_json(review)}

    def _read_reviews(self, reviewer: str) -> dict[str, Review]:
        return {review.id: review for review in read_reviews(self.log.path) if review.reviewer == reviewer}

    def _get_entry(self, number: int) -> QueueEntry:
        if not 0 <= number < len(self):
            raise UsageError(f"there is no pair {number}")
        return self.queue.entries[number]

    def _find_pair(self, entry: QueueEntry) -> Pair:
        for pair in self.view.pairs():
            if pair.id == entry.id:
                return pair
        raise RunFolderError(
            f"{self.view.path}: the pair {entry.id[:60]!r} is neither in its evidence nor in its input"
        )

    def _build_evidence(self, entry: QueueEntry, pair: Pair, history: History | None) -> dict[str, Any]:
        """Return the run's label, what led to it, and what other reviewers say.

        `ended` is how the pair ended by the majority of its rounds, `story` is of one round.
        """
        annotations = {
            number: annotation
            for number in self.view.index.list_rounds(entry.id)
            if (annotation := self.view.annotation(entry.id, number)) is not None
        }
        steps = [*reversed([*iterate_result_steps(annotations[entry.round], history)]), *iterate_input_fields(pair)]
        return {
            "id": entry.id,
            "why": entry.why,
            "ended": combine_votes(entry.id, [Vote.of(each) for each in annotations.values()]).status,
            "rounds": [get_status(each.label, failed=each.error is not None) for each in annotations.values()],
            "round": entry.round,
            "others": [
                _review_as_json(review)
                for review in read_reviews(self.log.path)
                if review.id == entry.id and review.reviewer != self.reviewer
            ],
            "kept": history is not None,
            "story": as_json(chain(steps, () if history is None else iterate_event_steps(history))),
        }


def _review_as_json(review: Review) -> dict[str, Any]:
    return review.model_dump(mode="json", include={"label", "reason", "reviewer", "at", "blind"})


def _parse_review(document: object) -> tuple[Literal[0, 1] | None, str, str]:
    match document:
        case {"label": 0 | 1 | None as label, "reason": str(reason), "reviewer": str(reviewer), **others} if not others:
            if not isinstance(label, bool) and len(reason) <= LONGEST_REASON:
                return label, reason.strip(), reviewer
    raise UsageError(
        f"a review has a label (0, 1 or null), a reason of at most {LONGEST_REASON} characters and a reviewer's name"
    )
