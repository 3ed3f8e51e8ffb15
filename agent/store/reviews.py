"""`reviews.jsonl`: what people say of a run's pairs, one line per committed review, only ever appended to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, ConfigDict, Field

from agent.datasets.encoding import dumps, loads
from agent.datasets.regular import open_regular
from agent.errors import RunFolderError
from agent.invalid import what_is_wrong
from agent.store.failures import writing
from agent.store.opening import open_own
from agent.types import SCHEMA_VERSION, Frozen, Round

_CHUNK = 1 << 16

Source = Literal["sample", "queue"]
"""What a review was given in: a session over a run's sample, or over pairs that were chosen by what the run says."""


class Review(Frozen):
    """What one reviewer says of one pair: one line of `reviews.jsonl`.

    `label` None: the reviewer cannot decide. `round` is the round whose annotation the reviewer was given. `blind`: the
    session that it was given in hides the run's label, its evidence and the reviews of others until then, and the
    reviewer had committed none of this pair before. What else the reviewer has seen is not known, a session that hides
    nothing (`--no-blind`) in which the pair was looked at without a commit included. `at` is in UTC. `source` None:
    from before it was written down. `sample` is the fingerprint of the sample where that is the source.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema", serialization_alias="schema")
    id: str
    round: Round = 0
    label: Literal[0, 1] | None
    reason: str = ""
    reviewer: str
    at: AwareDatetime
    blind: bool
    source: Source | None = None
    sample: str | None = None


def read_reviews(path: Path, *, blind: bool = False) -> list[Review]:
    """Return the last review of each reviewer and pair, in the order they were written; no file: no reviews.

    With `blind` the last one that is blind, whatever came after it.

    Raises:
        RunFolderError: the file cannot be read, or a whole line is not a review; the message names it.
    """
    last: dict[tuple[str, str], Review] = {}
    for review in iter_reviews(path):
        if blind and not review.blind:
            continue
        key = (review.reviewer, review.id)
        last.pop(key, None)
        last[key] = review
    return list(last.values())


def iter_reviews(path: Path) -> Iterator[Review]:
    """Yield every review, those that later ones replace too; what a killed writer left torn at the end is left out.

    Raises:
        RunFolderError: as `read_reviews`.
    """
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield _decode(line, f"{path}:{number}")
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error.strerror or error})") from error


class ReviewLog:
    """Appends reviews; several processes may append to one file.

    Raises:
        RunFolderError: what is there cannot be read as reviews.
        StorageError: the file cannot be written, or its file system has no locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        # Every damaged line is told before anybody begins to work.
        read_reviews(path)
        with locked(path):
            pass

    def append(self, review: Review) -> Review:
        """Write one line, whole or not at all, and return what it says; it is on the disk when this returns.

        It says `blind` no more when the reviewer has committed a review of the pair before: evidence was shown then.

        Raises:
            StorageError: it could not be written (disk full); the file is as before.
            RunFolderError: what is there cannot be read as reviews any more.
        """
        with locked(self.path) as descriptor, writing(self.path):
            # Under the lock: it may have been another session of the same reviewer.
            if review.blind and _has_reviewed(self.path, review.reviewer, review.id):
                review = review.model_copy(update={"blind": False})
            line = dumps(review.model_dump(mode="json", by_alias=True)) + b"\n"
            end = _end(descriptor)
            # Under the lock a torn line can only be a dead writer's.
            os.ftruncate(descriptor, end)
            try:
                _write_all(descriptor, line)
                os.fsync(descriptor)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(descriptor, end)
                raise
        self.written += 1
        return review


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the lock of the file of reviews, made where there is none, and give its descriptor.

    The system releases the lock of a process that dies.

    Raises:
        RunFolderError: the file is a link, or something else than a file.
        StorageError: the file cannot be opened for writing, or its file system has no locks.
    """
    is_new = not path.exists()
    descriptor = open_own(path, os.O_APPEND)
    try:
        with writing(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_new:
                _folder_to_disk(path.parent)
        yield descriptor
    finally:
        os.close(descriptor)


def _has_reviewed(path: Path, reviewer: str, pair_id: str) -> bool:
    return any((each.reviewer, each.id) == (reviewer, pair_id) for each in iter_reviews(path))


def _decode(line: bytes, place: str) -> Review:
    try:
        record = loads(line)
        schema = record["schema"]
    except (ValueError, TypeError, KeyError) as problem:
        raise RunFolderError(f"{place}: is not a review ({problem}). Mend or delete that line") from None
    if schema != SCHEMA_VERSION:
        raise RunFolderError(f"{place}: has schema {schema}, this version reads {SCHEMA_VERSION}")
    try:
        return Review.model_validate(record)
    except ValueError as problem:
        raise RunFolderError(f"{place}: is not a review ({what_is_wrong(problem)}). Mend or delete that line") from None


def _end(descriptor: int) -> int:
    """Return where the last whole line ends."""
    position = os.fstat(descriptor).st_size
    while position:
        start = max(0, position - _CHUNK)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def _write_all(descriptor: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(descriptor, view) :]


def _folder_to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
