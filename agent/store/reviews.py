"""`reviews.jsonl`, what people find of a run's pairs, and `review_sample.json`, the pairs drawn at random for that.

A line is a committed review; lines are only ever appended. The sample is a probability sample of the run's pairs.
"""

from __future__ import annotations

import fcntl
import hashlib
import heapq
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from agent.datasets.encoding import dumps
from agent.datasets.sources import open_regular
from agent.errors import UsageError
from agent.store.annotations import LabelStatus, find_majority_round, get_status
from agent.store.files import (
    append_line,
    decode_record,
    number_lines,
    open_run_file,
    read_document,
    reading,
    replacing,
    sync_to_disk,
    writing,
)
from agent.types import SCHEMA_VERSION, Annotation, Count, Frozen, Round

# The session of a review: over a run's sample, or over pairs that were chosen by the run's outcomes.
Source = Literal["sample", "queue"]
Value = str | int | None

# What pairs can be stratified by.
FIELDS: Mapping[str, Callable[[Annotation], Value]] = {
    "decided_by": lambda annotation: annotation.decided_by,
    "label": lambda annotation: annotation.label,
    "status": lambda annotation: annotation.test.outcome if annotation.test else None,
    "cause": lambda annotation: annotation.test.cause.value if annotation.test and annotation.test.cause else None,
    "screen_verdict": lambda annotation: annotation.screen_verdict.value if annotation.screen_verdict else None,
    "stand_ins": lambda annotation: "some" if annotation.stand_ins else "none",
    "error": lambda annotation: annotation.error.type if annotation.error else None,
}

_DECIDED = frozenset({"label", "decided_by", "error"})


class Review(Frozen):
    """What one reviewer finds of one pair: one line of `reviews.jsonl`.

    `label` None: the reviewer cannot decide. `round` is the round whose annotation the reviewer was given. `blind`: the
    session that it was given in hides the run's label, its evidence and the reviews of others until then, and the
    reviewer had committed none of this pair before. What else the reviewer has seen is not known, a session that hides
    nothing (`--no-blind`) in which the pair was looked at without a commit included. `at` is in UTC. `sample` is the
    fingerprint of the sample where that is the source.
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
    source: Source
    sample: str | None = None


def read_reviews(path: Path, *, blind: bool = False) -> list[Review]:
    """Return the last review of each reviewer and pair, in the order they were written; no file: no reviews.

    With `blind` the last one that is blind, whatever came after it.

    Raises:
        RunFolderError: the file cannot be read, or a whole line is not a review; the message names it.
    """
    last: dict[tuple[str, str], Review] = {}
    for review in iterate_reviews(path):
        if review.blind or not blind:
            last.pop((review.reviewer, review.id), None)
            last[review.reviewer, review.id] = review
    return list(last.values())


def iterate_reviews(path: Path) -> Iterator[Review]:
    """Yield every review, those that later ones replace too; what a killed writer left torn at the end is left out.

    Raises:
        RunFolderError: as `read_reviews`.
    """
    return (review for _, review in _iterate_with_ends(path))


def _iterate_with_ends(path: Path) -> Iterator[tuple[int, Review]]:
    """Yield every review with the place where its line ends."""
    end = 0
    if not path.exists():
        return
    with reading(path), open_regular(path) as file:
        for number, line in number_lines(file, path):
            end += len(line)
            if line.endswith(b"\n"):
                yield (
                    end,
                    decode_record(
                        line, Review, f"{path}:{number}", expected="a review", remedy="Mend or delete that line"
                    ),
                )


class ReviewLog:
    """Appends reviews; several processes may append to one file.

    Raises:
        RunFolderError: what is there cannot be read as reviews.
        StorageError: the file cannot be written, or its file system has no locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        # A damaged line is reported before anybody begins to work.
        read_reviews(path)
        with lock_reviews(path):
            pass

    def append(self, review: Review) -> Review:
        """Write one line, whole or not at all, and return what it holds; it is on the disk when this returns.

        It is not `blind` when the reviewer has committed a review of the pair before, and has seen the evidence then.

        Raises:
            StorageError: it could not be written (disk full); the file is as before.
            RunFolderError: what is there cannot be read as reviews any more.
        """
        with lock_reviews(self.path) as descriptor, writing(self.path):
            end = 0
            # Under the lock: it may have been another session of the same reviewer.
            for end, each in _iterate_with_ends(self.path):  # noqa: B007
                if (each.reviewer, each.id) == (review.reviewer, review.id):
                    review = review.model_copy(update={"blind": False})
            line = dumps(review.model_dump(mode="json", by_alias=True)) + b"\n"
            # Under the lock a torn line can only be a dead writer's.
            os.ftruncate(descriptor, end)
            append_line(descriptor, end, line, sync=True)
        self.written += 1
        return review


@contextmanager
def lock_reviews(path: Path) -> Iterator[int]:
    """Hold the lock of the file of reviews, made where there is none, and give its descriptor.

    The system releases the lock of a process that dies.

    Raises:
        RunFolderError: the file is a link, or something else than a file.
        StorageError: the file cannot be opened for writing, or its file system has no locks.
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


class SampledStratum(Frozen):
    """The pairs that have the values `key`: `size` of them in the run, `sampled` are the ids drawn."""

    key: dict[str, Value]
    size: Annotated[Count, Field(ge=1)]
    sampled: tuple[str, ...]


class ReviewSample(Frozen):
    """A stratified random sample without replacement of a run's pairs.

    A pair of a stratum was drawn with probability `len(sampled) / size`. The strata together are the whole run, pairs
    without a label included.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema", serialization_alias="schema")
    seed: int
    by: tuple[str, ...]
    strata: tuple[SampledStratum, ...]

    @property
    def size(self) -> int:
        """Number of pairs drawn."""
        return sum(len(stratum.sampled) for stratum in self.strata)

    @property
    def population(self) -> int:
        """Number of pairs drawn from."""
        return sum(stratum.size for stratum in self.strata)

    @property
    def fingerprint(self) -> str:
        """Distinguish samples that differ in their pairs or their order."""
        return hashlib.sha256(dumps([self.seed, self.shuffle_ids()])).hexdigest()[:16]

    def shuffle_ids(self) -> list[str]:
        """Return the pairs drawn, in a random order that is the same each time.

        The order is that of no stratum; the pairs reviewed so far are themselves a random sample of each.
        """
        every = (pair_id for stratum in self.strata for pair_id in stratum.sampled)
        return sorted(every, key=lambda pair_id: _hash_pair(self.seed, "order", pair_id))


def draw_sample(annotations: Iterable[Annotation], by: Sequence[str], n: int, seed: int) -> ReviewSample:
    """Draw `n` pairs, stratified by the fields `by` of their annotations (see `compute_stratum_keys`).

    Allocation: two pairs from each stratum, so that its variance can be estimated (one where the stratum or `n` is too
    small), and every further one where it lowers the variance of an estimated total most when strata vary equally:
    where N_h / sqrt(n_h (n_h + 1)) is largest (Wright 2012, The American Statistician 66(4), Algorithm III). That is
    proportional to the sizes but for rounding and the minimum.

    Selection: each pair has a number from a hash of seed and id, and those with the smallest numbers of their stratum
    are drawn (permanent random numbers: Ohlsson 1995). The order of the file does not matter, and a sample that is
    drawn again, larger or from more pairs, keeps what it can of the earlier one.

    Raises:
        UsageError: an unknown field, no annotations, or fewer pairs asked for than there are strata.
    """
    for name in by:
        if name not in FIELDS:
            raise UsageError(f"pairs cannot be stratified by {name!r}; there is {', '.join(FIELDS)}")
    strata: dict[tuple[Value, ...], list[str]] = {}
    for pair_id, key in compute_stratum_keys(annotations, by).items():
        strata.setdefault(key, []).append(pair_id)
    ordered = sorted(strata, key=lambda key: [(value is None, str(value)) for value in key])
    if not ordered:
        raise UsageError("the run has no annotations yet: there is nothing to draw a sample from")
    numbers = allocate([len(strata[key]) for key in ordered], n)
    return ReviewSample(
        seed=seed,
        by=tuple(by),
        strata=tuple(
            SampledStratum(
                key=dict(zip(by, key, strict=True)),
                size=len(strata[key]),
                sampled=tuple(
                    heapq.nsmallest(number, strata[key], key=lambda pair_id: _hash_pair(seed, "draw", pair_id))
                ),
            )
            for key, number in zip(ordered, numbers, strict=True)
        ),
    )


def allocate(sizes: Sequence[int], n: int) -> list[int]:
    """Return how many pairs to draw from each stratum, at least one of each and `min(n, sum(sizes))` in all.

    Raises:
        UsageError: `n` is smaller than the number of strata: pairs of some could not be drawn at all.
    """
    n = min(n, sum(sizes))
    if n < len(sizes):
        raise UsageError(
            f"a sample of {n} cannot hold a pair of each of the {len(sizes)} strata: "
            f"ask for {len(sizes)} or more (better {2 * len(sizes)}), or stratify by fewer fields"
        )
    least = [min(2, size) for size in sizes]
    given = least if sum(least) <= n else [1] * len(sizes)
    for _ in range(n - sum(given)):
        open_ = [place for place, size in enumerate(sizes) if given[place] < size]
        # of equal claims the first
        given[max(open_, key=lambda place: sizes[place] / math.sqrt(given[place] * (given[place] + 1)))] += 1
    return given


def read_sample(path: Path) -> ReviewSample | None:
    """Return the sample of a run, None when none was drawn.

    Raises:
        RunFolderError: the file cannot be read or is not a sample.
    """
    if not path.exists():
        return None
    return read_document(path, ReviewSample, expected="a sample", remedy="Draw another (--new-sample)")


def write_sample(path: Path, sample: ReviewSample) -> None:
    """Write a sample in place of an earlier one, whole or not at all.

    Raises:
        StorageError: it cannot be written; an earlier one is as before.
    """
    with replacing(path) as draft:
        draft.write_bytes(dumps(sample.model_dump(mode="json", by_alias=True), indent=True) + b"\n")


def is_stale(sample: ReviewSample, annotations: Iterable[Annotation]) -> bool:
    """Say whether the run is not any more what the sample was drawn from: pairs were added or labelled again."""
    keys = compute_stratum_keys(annotations, sample.by)
    drawn_from = {tuple(stratum.key.get(name) for name in sample.by): stratum for stratum in sample.strata}
    if Counter(keys.values()) != {key: stratum.size for key, stratum in drawn_from.items()}:
        return True
    return any(keys.get(pair_id) != key for key, stratum in drawn_from.items() for pair_id in stratum.sampled)


def compute_stratum_keys(annotations: Iterable[Annotation], by: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """Return each pair's values of the fields `by`; of several rounds those of the first that ended as their majority.

    Of a tie those of the first one, without its label and who decided.
    """
    rounds: dict[str, dict[int, tuple[LabelStatus, tuple[Value, ...]]]] = {}
    for annotation in annotations:
        how = get_status(annotation.label, failed=annotation.error is not None)
        key = tuple(FIELDS[name](annotation) for name in by)
        rounds.setdefault(annotation.id, {})[annotation.round] = how, key
    return {pair_id: _combine_keys(of_pair, by) for pair_id, of_pair in rounds.items()}


def _combine_keys(rounds: Mapping[int, tuple[LabelStatus, tuple[Value, ...]]], by: Sequence[str]) -> tuple[Value, ...]:
    ordered = [rounds[number] for number in sorted(rounds)]
    place = find_majority_round([how for how, _ in ordered])
    if place is not None:
        return ordered[place][1]
    return tuple(None if name in _DECIDED else value for name, value in zip(by, ordered[0][1], strict=True))


def _hash_pair(seed: int, use: str, pair_id: str) -> bytes:
    text = f"{seed}\0{use}\0{pair_id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).digest()
