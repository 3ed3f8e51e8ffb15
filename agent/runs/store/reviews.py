"""Reviews of a run's pairs (`reviews.jsonl`), and a random sample of pairs to review (`review_sample.json`).

Each line of `reviews.jsonl` is a committed review, and lines are only ever appended. The sample is a probability sample
of the run's pairs.
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
from agent.runs.store.annotations import LabelStatus, find_majority_round, get_status
from agent.runs.store.files import (
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
from agent.types import SCHEMA_VERSION, Annotation, Choice, Count, Frozen, Round

# Where a review comes from: the run's sample, or a queue of pairs selected by their annotations.
Source = Literal["sample", "queue"]
Value = str | int | None

# Fields by which a sample can be stratified.
FIELDS: Mapping[str, Callable[[Annotation], Value]] = {
    "decided_by": lambda annotation: annotation.decided_by,
    "label": lambda annotation: annotation.label,
    "status": lambda annotation: annotation.test.status.value if annotation.test else None,
    "cause": lambda annotation: annotation.test.cause.value if annotation.test and annotation.test.cause else None,
    "screen_verdict": lambda annotation: annotation.screen_verdict.value if annotation.screen_verdict else None,
    "stand_ins": lambda annotation: "some" if annotation.stand_ins else "none",
    "error": lambda annotation: annotation.error.type if annotation.error else None,
}

_DECISION_FIELDS = frozenset({"label", "decided_by", "error"})


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


class SampledStratum(Frozen):
    """The pairs whose stratification fields have the values in `key`.

    `size` is the number of these pairs in the run. `sampled` lists the ids of those in the sample.
    """

    key: dict[str, Value]
    size: Annotated[Count, Field(ge=1)]
    sampled: tuple[str, ...]


class ReviewSample(Frozen):
    """A stratified random sample of a run's pairs, drawn without replacement.

    The inclusion probability of a pair is `len(sampled) / size` for its stratum. The strata cover the whole run,
    including pairs without a label.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema", serialization_alias="schema")
    seed: int
    by: tuple[str, ...]
    strata: tuple[SampledStratum, ...]

    @property
    def size(self) -> int:
        """The number of sampled pairs."""
        return sum(len(stratum.sampled) for stratum in self.strata)

    @property
    def population(self) -> int:
        """The number of pairs in the run when the sample was drawn."""
        return sum(stratum.size for stratum in self.strata)

    @property
    def fingerprint(self) -> str:
        """A hash of the sampled pairs and their order."""
        return hashlib.sha256(dumps([self.seed, self.shuffle_ids()])).hexdigest()[:16]

    def shuffle_ids(self) -> list[str]:
        """Return the ids of the sampled pairs in a reproducible random order.

        The order mixes the strata, so the pairs reviewed so far are a random sample of each stratum.
        """
        ids = (pair_id for stratum in self.strata for pair_id in stratum.sampled)
        return sorted(ids, key=lambda pair_id: _hash_pair(self.seed, "order", pair_id))


def draw_sample(annotations: Iterable[Annotation], by: Sequence[str], n: int, seed: int) -> ReviewSample:
    """Draw a sample of `n` pairs, stratified by the annotation fields in `by` (see `compute_stratum_keys`).

    Each stratum is first allocated two pairs, so that its variance can be estimated, or one if the stratum or `n` is
    too small. Each remaining pair is drawn from the stratum with the largest N_h / sqrt(n_h (n_h + 1)). N_h is the size
    of a stratum, and n_h is the number of pairs already allocated to it. If all strata have the same variance, this
    minimises the variance of an estimated total (Wright 2012, The American Statistician 66(4), Algorithm III). Apart
    from rounding and the minimum, the result is proportional allocation.

    The pairs are selected with permanent random numbers (Ohlsson 1995). Each pair gets a number from a hash of the seed
    and the pair's id. The pairs with the smallest numbers in each stratum are drawn. The sample does not depend on the
    order of the annotations. A larger sample, or one from more pairs, keeps as many of the earlier pairs as possible.

    Raises:
        UsageError: a field is unknown, there are no annotations, or `n` is smaller than the number of strata.
    """
    for name in by:
        if name not in FIELDS:
            raise UsageError(f"cannot stratify by {name!r}. Choose from {', '.join(FIELDS)}.")
    strata: dict[tuple[Value, ...], list[str]] = {}
    for pair_id, key in compute_stratum_keys(annotations, by).items():
        strata.setdefault(key, []).append(pair_id)
    ordered = sorted(strata, key=lambda key: [(value is None, str(value)) for value in key])
    if not ordered:
        raise UsageError("the run has no annotations yet, so no sample can be drawn")
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
    """Return the number of pairs to draw from each stratum: at least one each, and `min(n, sum(sizes))` in total.

    Raises:
        UsageError: `n` is smaller than the number of strata.
    """
    n = min(n, sum(sizes))
    if n < len(sizes):
        raise UsageError(
            f"a sample of {n} pairs cannot cover all {len(sizes)} strata. "
            f"Draw at least {len(sizes)} pairs (preferably {2 * len(sizes)}), or stratify by fewer fields."
        )
    least = [min(2, size) for size in sizes]
    counts = least if sum(least) <= n else [1] * len(sizes)
    for _ in range(n - sum(counts)):
        growing = [i for i, size in enumerate(sizes) if counts[i] < size]
        # If priorities are equal, `max` returns the first stratum.
        counts[max(growing, key=lambda i: sizes[i] / math.sqrt(counts[i] * (counts[i] + 1)))] += 1
    return counts


def read_sample(path: Path) -> ReviewSample | None:
    """Read the sample of a run, or return None if no sample was drawn.

    Raises:
        RunFolderError: the file cannot be read or is not a sample.
    """
    if not path.exists():
        return None
    return read_document(path, ReviewSample, expected="a sample", remedy="Draw another (--new-sample).")


def write_sample(path: Path, sample: ReviewSample) -> None:
    """Write a sample, atomically replacing an earlier sample.

    Raises:
        StorageError: the file cannot be written. An earlier file is unchanged.
    """
    with replacing(path) as draft:
        draft.write_bytes(dumps(sample.model_dump(mode="json", by_alias=True), indent=True) + b"\n")


def is_stale(sample: ReviewSample, annotations: Iterable[Annotation]) -> bool:
    """Whether pairs were added to the run, or labelled again, since the sample was drawn."""
    keys = compute_stratum_keys(annotations, sample.by)
    sampled_strata = {tuple(stratum.key.get(name) for name in sample.by): stratum for stratum in sample.strata}
    if Counter(keys.values()) != {key: stratum.size for key, stratum in sampled_strata.items()}:
        return True
    return any(keys.get(pair_id) != key for key, stratum in sampled_strata.items() for pair_id in stratum.sampled)


def compute_stratum_keys(annotations: Iterable[Annotation], by: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """For each pair, return the values of the fields in `by`, taken from the first round with the majority status.

    If there is a tie, the values come from the first round, except that `label`, `error` and `decided_by` are None.
    """
    rounds: dict[str, dict[int, tuple[LabelStatus, tuple[Value, ...]]]] = {}
    for annotation in annotations:
        key = tuple(FIELDS[name](annotation) for name in by)
        rounds.setdefault(annotation.id, {})[annotation.round] = get_status(annotation), key
    return {pair_id: _combine_keys(pair_rounds, by) for pair_id, pair_rounds in rounds.items()}


def _combine_keys(rounds: Mapping[int, tuple[LabelStatus, tuple[Value, ...]]], by: Sequence[str]) -> tuple[Value, ...]:
    in_order = [rounds[number] for number in sorted(rounds)]
    index = find_majority_round([status for status, _ in in_order])
    if index is not None:
        return in_order[index][1]
    return tuple(None if name in _DECISION_FIELDS else value for name, value in zip(by, in_order[0][1], strict=True))


def _hash_pair(seed: int, use: str, pair_id: str) -> bytes:
    text = f"{seed}\0{use}\0{pair_id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).digest()
