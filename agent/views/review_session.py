"""A reviewer's session with a queue, which decides what the page may show before a commit and stores reviews."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, ClassVar, Literal

from agent.errors import RunFolderError, UsageError
from agent.pipeline.history import History
from agent.runs.store.annotations import combine_rounds, get_status
from agent.runs.store.manifest import Clock, utc_now
from agent.runs.store.reviews import Review, ReviewLog, read_reviews
from agent.runs.store.run_view import RunView, get_criterion
from agent.text import is_hidden, plural
from agent.types import Choice, Comparison, Pair
from agent.views.queues import Queue, QueueEntry
from agent.views.story import as_json, iterate_event_steps, iterate_input_fields, iterate_result_steps

MAX_REASON_LENGTH = 10_000
MAX_NAME_LENGTH = 100


@dataclass(frozen=True)
class Guidelines:
    """What a reviewer chooses from: the meaning of each label, general rules, and the values, keys and names of labels.

    `headings` are the headings of the context, or of the first snippet, and of the code. `side_by_side` places both
    next to each other.
    """

    criterion: str
    one: str
    zero: str
    notes: tuple[str, ...]
    values: tuple[Literal[0, 1] | Choice | None, ...] = (1, 0, None)
    keys: tuple[str, ...] = ("1", "0", "c")
    names: tuple[str, ...] = ("match", "no match", "cannot decide")
    headings: tuple[str, str] = ("Context", "Code")
    side_by_side: bool = False


_NOTES = (
    "If the query has several plausible readings, the code needs to satisfy only one of them.",
    "The code is an excerpt from a program. Missing imports, classes and helpers do not count against it. However, "
    "code that leaves the requested work to a missing helper does not do this work itself.",
    "Judge what the code does, not what its names and comments say. It must produce correct results for ordinary "
    "input.",
    "Code may do more than the query asks for. Style and leftovers from Python 2 do not matter.",
    "“Cannot decide” is a valid choice. Explain the choice in the reason field.",
)
GUIDELINES: Mapping[str, Guidelines] = {
    "exact": Guidelines(
        criterion="exact match",
        one="Under a plausible reading, the code does everything that the query asks for. It may do more.",
        zero="The code omits something that the query requires, does only part of it, or does something else. A "
        "similar topic or similar wording is not enough.",
        notes=("Every operation, input, result, direction and method that the query names is required.", *_NOTES),
    ),
    "half": Guidelines(
        criterion="at least half",
        one="Under a plausible reading, the code does at least half of what the query asks for.",
        zero="The code does less than half of what the query asks for, or does something else. Shared words or a "
        "shared topic are not enough.",
        notes=(
            "Every operation, input, result, direction and method that the query names is a requirement. Estimate what "
            "part of these requirements the code meets. Code that works in the opposite direction, or performs another "
            "operation on the same subject, does not meet a requirement.",
            *_NOTES,
        ),
    ),
}
PREFERENCE_GUIDELINES = Guidelines(
    criterion="which snippet satisfies more of the query",
    one="The first snippet satisfies more of what the query asks for.",
    zero="The second snippet satisfies more of what the query asks for.",
    notes=("Choose “no difference” if both satisfy the same part of the query.", *_NOTES[1:4]),
    values=("first", "second", "tie"),
    keys=("1", "2", "0"),
    names=("first snippet", "second snippet", "no difference"),
    headings=("First snippet", "Second snippet"),
    side_by_side=True,
)


def get_guidelines(manifest: Mapping[str, Any]) -> Guidelines:
    """Return the guidelines for a run's criterion.

    Raises:
        RunFolderError: the criterion is unknown.
    """
    criterion = get_criterion(manifest)
    try:
        return GUIDELINES[criterion]
    except KeyError:
        raise RunFolderError(
            f"unknown criterion {criterion!r}. Review the run with the version of `agent` that created it."
        ) from None


def parse_reviewer_name(name: object) -> str:
    """Validate a reviewer's name and strip surrounding whitespace.

    Raises:
        UsageError: the name is not a string, is empty, is too long, or contains hidden characters.
    """
    stripped = name.strip() if isinstance(name, str) else ""
    if not stripped or len(stripped) > MAX_NAME_LENGTH or any(map(is_hidden, stripped)):
        raise UsageError(f"a reviewer name must be one line of 1 to {MAX_NAME_LENGTH} visible characters")
    return stripped


@dataclass(kw_only=True)
class LabelSession(ABC):
    """Shows the pairs of a queue to one reviewer at a time and stores the reviewer's labels.

    If `blind` is set, only the pair is shown until the reviewer has committed a label for it. `decision` is the field
    of a `Review` that the reviewer chooses.
    """

    decision: ClassVar[Literal["label", "choice"]] = "label"

    queue: Queue
    reviewer: str
    blind: bool
    log: ReviewLog
    guidelines: Guidelines
    clock: Clock = utc_now

    def __post_init__(self) -> None:
        self._id = secrets.token_hex(8)
        self._reviews = self._read_reviews(self.reviewer)

    def __len__(self) -> int:
        return len(self.queue.entries)

    @property
    def reviewed_count(self) -> int:
        """Number of pairs in the queue that the reviewer has labelled, including pairs labelled in earlier sessions."""
        return sum(entry.id in self._reviews for entry in self.queue.entries)

    def describe_session(self) -> dict[str, Any]:
        """Return the session as JSON: settings, guidelines, and for each pair whether the reviewer has labelled it."""
        return {
            "id": self._id,
            "run": str(self.log.path.parent),
            "reviews": str(self.log.path),
            "reviewer": self.reviewer,
            "blind": self.blind,
            "queue": self.queue.title,
            "guidelines": asdict(self.guidelines),
            "reviewed": [entry.id in self._reviews for entry in self.queue.entries],
        }

    def change_reviewer(self, document: object) -> dict[str, Any]:
        """Switch to another reviewer and return the new session.

        Raises:
            UsageError: the document is not `{"reviewer": name}`.
            RunFolderError: the reviews file is damaged. The reviewer remains unchanged.
        """
        if not isinstance(document, Mapping) or set(document) != {"reviewer"}:
            raise UsageError('to change the reviewer, send {"reviewer": name}')
        reviewer = parse_reviewer_name(document["reviewer"])
        self._reviews = self._read_reviews(reviewer)
        self.reviewer = reviewer
        return self.describe_session()

    def show(self, number: int) -> dict[str, Any]:
        """Return the pair at a position in the queue. Positions start at 0. Hidden evidence is None.

        The returned pair has no id and no `meta`, because these fields may reveal the label.

        Raises:
            UsageError: the position does not exist.
            RunFolderError: the run folder is damaged.
        """
        entry = self._get_entry(number)
        review = self._reviews.get(entry.id)
        pair, evidence = self._load(entry, is_hidden=self.blind and review is None)
        return {
            "number": number,
            "reviewer": self.reviewer,
            "pair": pair.model_dump(mode="json", include={"query", "code", "language", "context", "first"}),
            "mine": None if review is None else _review_as_json(review),
            "evidence": evidence,
        }

    @abstractmethod
    def _load(self, entry: QueueEntry, *, is_hidden: bool) -> tuple[Pair, dict[str, Any] | None]:
        """Return a pair and its evidence, or None if the evidence is hidden."""

    def commit(self, number: int, document: object) -> dict[str, Any]:
        """Write a label and its reason to disk and return the review.

        The review is recorded as blind if the session is blind and the reviewer has not labelled the pair before.

        Raises:
            UsageError: the position does not exist, the document is not `{DECISION: value, "reason": text, "reviewer":
                name}`, or `name` is not the current reviewer.
            StorageError: the review cannot be written. The file remains unchanged.
            RunFolderError: the reviews file is damaged. The file remains unchanged.
        """
        entry = self._get_entry(number)
        value, reason, reviewer = self._parse_review(document)
        if reviewer != self.reviewer:
            raise UsageError(
                f"Another tab changed the reviewer to {self.reviewer}, but this page still submits reviews as "
                f"{reviewer[:MAX_NAME_LENGTH]}. Reload the page or change the name back."
            )
        review = self.log.append(
            Review(
                id=entry.id,
                round=entry.round,
                **{"label": None, self.decision: value},
                reason=reason,
                reviewer=self.reviewer,
                at=self.clock().replace(microsecond=0),
                blind=self.blind,
                source="queue" if self.queue.sample is None else "sample",
                sample=self.queue.sample,
            )
        )
        self._reviews[entry.id] = review
        return {"saved": _review_as_json(review)}

    def _parse_review(self, document: object) -> tuple[Any, str, str]:
        match document:
            case {self.decision: value, "reason": str(reason), "reviewer": str(reviewer), **others} if not others:
                is_value = not isinstance(value, bool) and value in self.guidelines.values
                if is_value and len(reason) <= MAX_REASON_LENGTH:
                    return value, reason.strip(), reviewer
        expected = f"a {self.decision}, a reviewer, and a reason of at most {MAX_REASON_LENGTH} characters"
        raise UsageError(f"a review needs {expected}")

    def _read_reviews(self, reviewer: str) -> dict[str, Review]:
        return {review.id: review for review in read_reviews(self.log.path) if review.reviewer == reviewer}

    def _get_entry(self, number: int) -> QueueEntry:
        if not 0 <= number < len(self):
            raise UsageError(f"pair {number} does not exist: the queue has {plural(len(self), 'pair')}")
        return self.queue.entries[number]


@dataclass(kw_only=True)
class PreferenceSession(LabelSession):
    """A session with comparisons of two snippets. There is no evidence."""

    decision = "choice"
    comparisons: Mapping[str, Comparison]

    def _load(self, entry: QueueEntry, *, is_hidden: bool) -> tuple[Pair, None]:  # noqa: ARG002
        return self.comparisons[entry.id], None


@dataclass(kw_only=True)
class ReviewSession(LabelSession):
    """A session with the pairs of a run. The evidence contains the run's label and other reviews."""

    view: RunView

    def _load(self, entry: QueueEntry, *, is_hidden: bool) -> tuple[Pair, dict[str, Any] | None]:
        history = self.view.evidence(entry.id, entry.round) if self.view.has_evidence else None
        pair = self._find_pair(entry) if history is None else history.pair
        return pair, None if is_hidden else self._build_evidence(entry, pair, history)

    def _find_pair(self, entry: QueueEntry) -> Pair:
        for pair in self.view.pairs():
            if pair.id == entry.id:
                return pair
        raise RunFolderError(f"{self.view.path}: pair {entry.id[:60]!r} is in neither the evidence nor the input")

    def _build_evidence(self, entry: QueueEntry, pair: Pair, history: History | None) -> dict[str, Any]:
        """Return the run's label, its evidence and other reviewers' labels.

        `ended` is the pair's status according to the majority of its rounds. `story` covers only the entry's round.
        """
        annotations = {
            number: annotation
            for number in self.view.index.list_rounds(entry.id)
            if (annotation := self.view.annotation(entry.id, number)) is not None
        }
        steps = [*reversed([*iterate_result_steps(annotations[entry.round], history)]), *iterate_input_fields(pair)]
        statuses = [get_status(annotation) for annotation in annotations.values()]
        return {
            "id": entry.id,
            "why": entry.why,
            "ended": combine_rounds(entry.id, statuses).status,
            "rounds": statuses,
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
    return review.model_dump(mode="json", include={"label", "choice", "reason", "reviewer", "at", "blind"})
