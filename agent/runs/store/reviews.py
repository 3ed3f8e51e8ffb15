"""Reviews of a run's pairs (`reviews.jsonl`).

Each line is a committed review, and lines are only ever appended.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, ConfigDict, Field

from agent.datasets.encoding import dumps
from agent.datasets.sources import open_regular
from agent.runs.store.files import (
    append_line,
    decode_record,
    number_lines,
    open_run_file,
    reading,
    sync_to_disk,
    writing,
)
from agent.types import SCHEMA_VERSION, Choice, Frozen, Round, majority

# Where a review comes from: the run's sample, or a queue of pairs selected by their annotations.
Source = Literal["sample", "queue"]


class Review(Frozen):
    """One reviewer's review of a pair: one line of `reviews.jsonl`.

    `label` is None if the reviewer cannot decide. A review of a `Comparison` has a `choice` instead of a label. `round`
    is the round of the annotation under review. `at` is the time in UTC. If the pair came from a sample, `sample` is
    the fingerprint of the sample.

    A review is `blind` if the session hid the run's label, the evidence and other reviews until the reviewer committed
    the review. It must also be the reviewer's first committed review of the pair. The field does not record what else
    the reviewer may have seen. For example, a session with `--no-blind` leaves no trace if the reviewer commits
    nothing.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema", serialization_alias="schema")
    id: str
    round: Round = 0
    label: Literal[0, 1] | None
    choice: Choice | None = Field(default=None, exclude_if=lambda choice: choice is None)
    reason: str = ""
    reviewer: str
    at: AwareDatetime
    blind: bool
    source: Source
    sample: str | None = None


def read_reviews(path: Path, *, blind: bool = False) -> list[Review]:
    """Return each reviewer's last review of each pair, in file order. If the file is missing, return an empty list.

    With `blind`, ignore reviews that are not blind.

    Raises:
        RunFolderError: the file cannot be read, or a complete line is not a review. The message names the line.
    """
    last: dict[tuple[str, str], Review] = {}
    for review in iterate_reviews(path):
        if review.blind or not blind:
            last.pop((review.reviewer, review.id), None)
            last[review.reviewer, review.id] = review
    return list(last.values())


def read_verdicts(path: Path) -> dict[str, Review]:
    """Return a review of each labelled pair: a review with label 0 if there is one. Raises as `read_reviews` does."""
    return {review.id: review for label in (1, 0) for review in read_reviews(path) if review.label == label}


@dataclass(frozen=True)
class Votes:
    """The labels of first reviews: by reviewer and pair, and of the first reviewer of each pair.

    A label is None if the reviewer could not decide, or if the review was not blind.
    """

    by_reviewer: Mapping[str, Mapping[str, int | None]]
    first: Mapping[str, int | None]

    def decide(self, ids: Collection[str]) -> Verdicts:
        """Return the verdict on each pair: the majority of the reviewers who reviewed all pairs.

        Without such a reviewer, the first review of each pair decides. Otherwise, a second reviewer could review only
        the pairs that the first reviewer called wrong.
        """
        names = {name for name, labels in self.by_reviewer.items() if labels.keys() & set(ids)}
        complete = {name for name in names if self.by_reviewer[name].keys() >= set(ids)}
        counted = [self.by_reviewer[name] for name in complete] or [self.first]
        return Verdicts(
            labels={pair_id: majority(labels[pair_id] for labels in counted) for pair_id in ids},
            reviewers=tuple(sorted(complete or names)),
            ignored=tuple(sorted(names - complete)) if complete else (),
        )


@dataclass(frozen=True)
class Verdicts:
    """Labels of pairs, None if there is no verdict. The reviewers who count, and those who reviewed too few pairs."""

    labels: Mapping[str, int | None]
    reviewers: tuple[str, ...]
    ignored: tuple[str, ...]


def read_votes(path: Path) -> Votes:
    """Read the first review of each reviewer and pair. Raises as `read_reviews` does."""
    votes, first = defaultdict[str, dict[str, int | None]](dict), dict[str, int | None]()
    for review in iterate_reviews(path):
        label = review.label if review.blind else None
        votes[review.reviewer].setdefault(review.id, label)
        first.setdefault(review.id, label)
    return Votes(votes, first)


def iterate_reviews(path: Path) -> Iterator[Review]:
    """Iterate over all reviews, including superseded ones. Ignores a truncated last line.

    Raises:
        RunFolderError: see `read_reviews`.
    """
    return (review for _, review in _iterate_with_ends(path))


def _iterate_with_ends(path: Path) -> Iterator[tuple[int, Review]]:
    """Iterate over all reviews, each with the byte offset at which its line ends."""
    end = 0
    if not path.exists():
        return
    with reading(path), open_regular(path) as file:
        for number, line in number_lines(file, path):
            end += len(line)
            if line.endswith(b"\n"):
                remedy = "Repair or delete that line."
                yield end, decode_record(line, Review, f"{path}:{number}", expected="a review", remedy=remedy)


class ReviewLog:
    """Appends reviews. Several processes can append to the same file.

    Raises:
        RunFolderError: the existing file is damaged.
        StorageError: the file cannot be written, or its file system does not support locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        # Report a damaged line before anyone starts to review.
        read_reviews(path)
        with lock_reviews(path):
            pass

    def append(self, review: Review) -> Review:
        """Append a review, sync it to disk and return it as written.

        Clears `blind` if the reviewer has already committed a review of the pair and has thus seen its evidence.

        Raises:
            StorageError: the review could not be written, for example because the disk is full. The file is unchanged.
            RunFolderError: the existing file is damaged.
        """
        with lock_reviews(self.path) as descriptor, writing(self.path):
            end = 0
            # Check under the lock, because another session of the same reviewer may have appended a review.
            for end, earlier in _iterate_with_ends(self.path):  # noqa: B007
                if (earlier.reviewer, earlier.id) == (review.reviewer, review.id):
                    review = review.model_copy(update={"blind": False})
            line = dumps(review.model_dump(mode="json", by_alias=True)) + b"\n"
            # While the lock is held, a truncated line can only come from a writer that died.
            os.ftruncate(descriptor, end)
            append_line(descriptor, end, line, sync=True)
        self.written += 1
        return review


@contextmanager
def lock_reviews(path: Path) -> Iterator[int]:
    """Lock the reviews file, creating it if it is missing, and yield its descriptor.

    The operating system releases the lock if the process dies.

    Raises:
        RunFolderError: the path is a link or not a regular file.
        StorageError: the file cannot be opened for writing, or its file system does not support locks.
    """
    is_new = not path.exists()
    descriptor = open_run_file(path, os.O_APPEND)
    try:
        with writing(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_new:
                sync_to_disk(path.parent)
        yield descriptor
    finally:
        os.close(descriptor)
