"""A random sample of a run's pairs to review (`review_sample.json`)."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field

from agent.datasets.encoding import dumps
from agent.errors import RunFolderError, UsageError
from agent.runs.store.annotations import LabelStatus, find_majority_round, get_status
from agent.runs.store.files import read_document, write_document
from agent.runs.store.strata import Stratum, assign_cells, hash_strata, stratify
from agent.types import SCHEMA_VERSION, Annotation, Count, Frozen

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

EVIDENCE = "evidence"
"""The field that divides the labelled pairs into strata by evidence (see `strata`). It is not combined with others."""
CERTIFIABLE = f"{EVIDENCE}-"
"""Prefix of the fingerprints of samples with strata by evidence."""

_DECISION_FIELDS = frozenset({"label", "decided_by", "error"})


class SampledStratum(Frozen):
    """The pairs whose stratification fields have the values in `key`.

    `size` is the number of these pairs in the run. `sampled` lists the ids of those in the sample.
    """

    key: dict[str, Value]
    size: Annotated[Count, Field(ge=1)]
    sampled: tuple[str, ...]


class Draw(Frozen):
    """A draw of a sample with strata by evidence. `reviewed_before` of its pairs had a review when it was drawn."""

    seed: int
    size: int
    fingerprint: str
    at: AwareDatetime
    reviewed_before: Count = 0


class ReviewSample(Frozen):
    """A stratified random sample of a run's pairs, drawn without replacement.

    The inclusion probability of a pair is `len(sampled) / size` for its stratum. The strata cover the whole run,
    including pairs without a label.

    If the strata are by evidence, the sample is a simple random sample of the labelled pairs, so `sampled` can be
    empty. Strata are in the order in which `agent score --certify` tests them, and they do not contain pairs without a
    label. `strata_sha256` is their hash (`hash_strata`). `draws` lists this sample and all earlier ones with such
    strata.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema", serialization_alias="schema")
    seed: int
    by: tuple[str, ...]
    strata: tuple[SampledStratum, ...]
    strata_sha256: str | None = Field(default=None, exclude_if=lambda digest: digest is None)
    draws: tuple[Draw, ...] = Field(default=(), exclude_if=lambda draws: not draws)

    @property
    def size(self) -> int:
        """The number of sampled pairs."""
        return sum(len(stratum.sampled) for stratum in self.strata)

    @property
    def population(self) -> int:
        """The number of pairs in the strata when the sample was drawn."""
        return sum(stratum.size for stratum in self.strata)

    @property
    def fingerprint(self) -> str:
        """A hash of the sampled pairs and their order. With strata by evidence, it also covers the strata."""
        content = [self.seed, self.shuffle_ids(), *([] if self.strata_sha256 is None else [self.strata_sha256])]
        digest = hashlib.sha256(dumps(content)).hexdigest()[:16]
        return digest if self.strata_sha256 is None else f"{CERTIFIABLE}{digest}"

    def shuffle_ids(self) -> list[str]:
        """Return the ids of the sampled pairs in a reproducible random order.

        The order mixes the strata, so the pairs reviewed so far are a random sample of each stratum.
        """
        ids = (pair_id for stratum in self.strata for pair_id in stratum.sampled)
        return sorted(ids, key=lambda pair_id: _hash_pair(self.seed, "order", pair_id))


def draw_sample(annotations: Iterable[Annotation], by: Sequence[str], n: int, seed: int) -> ReviewSample:
    """Draw a sample of `n` pairs, stratified by the annotation fields in `by` (see `compute_stratum_keys`).

    With `EVIDENCE`, draw a simple random sample of the labelled pairs, which has the strata of `stratify`. Otherwise,
    each stratum is first allocated two pairs, so that its variance can be estimated, or one if the stratum or `n` is
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
    if tuple(by) == (EVIDENCE,):
        return draw_from_strata(stratify(assign_cells(annotations)), n, seed)
    for name in by:
        if name not in FIELDS:
            raise UsageError(f"cannot stratify by {name!r}. Choose {EVIDENCE} alone, or from {', '.join(FIELDS)}.")
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


def draw_from_strata(strata: Sequence[Stratum], n: int, seed: int) -> ReviewSample:
    """Draw a simple random sample of the pairs in strata by evidence. It overlaps with other samples only by chance.

    Raises:
        UsageError: there are no strata.
    """
    if not strata:
        raise UsageError("the run has no labels yet, so no sample can be drawn")
    ids = (pair_id for stratum in strata for pair_id in stratum.labels)
    drawn = frozenset(heapq.nsmallest(n, ids, key=lambda pair_id: _hash_pair(seed, EVIDENCE, pair_id)))
    return ReviewSample(
        seed=seed,
        by=(EVIDENCE,),
        strata=tuple(
            SampledStratum(
                key={EVIDENCE: stratum.name},
                size=len(stratum.labels),
                sampled=tuple(pair_id for pair_id in stratum.labels if pair_id in drawn),
            )
            for stratum in strata
        ),
        strata_sha256=hash_strata(strata),
    )


def replace_sample(path: Path, sample: ReviewSample, reviewed: Collection[str] = ()) -> ReviewSample:
    """Write a new sample, and return it with all draws so far. `reviewed` contains the ids of pairs that have a review.

    Raises:
        StorageError: the file cannot be written. An earlier file is unchanged.
    """
    try:
        earlier = read_sample(path)
    except RunFolderError:
        earlier = None
    draws = () if earlier is None else earlier.draws
    if sample.strata_sha256 is not None and (not draws or draws[-1].fingerprint != sample.fingerprint):
        draws += (
            Draw(
                seed=sample.seed,
                size=sample.size,
                fingerprint=sample.fingerprint,
                at=datetime.now(UTC),
                reviewed_before=len(set(reviewed) & set(sample.shuffle_ids())),
            ),
        )
    sample = sample.model_copy(update={"draws": draws})
    write_document(path, sample)
    return sample


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


def is_stale(sample: ReviewSample, annotations: Iterable[Annotation]) -> bool:
    """Whether pairs were added to the run, or labelled again, since the sample was drawn.

    With strata by evidence, also whether the file was changed.
    """
    if sample.by == (EVIDENCE,):
        fresh = draw_from_strata(stratify(assign_cells(annotations)), sample.size, sample.seed)
        return (fresh.strata, fresh.strata_sha256) != (sample.strata, sample.strata_sha256)
    keys = compute_stratum_keys(annotations, sample.by)
    sampled_strata = {tuple(stratum.key.get(name) for name in sample.by): stratum for stratum in sample.strata}
    if Counter(keys.values()) != {key: stratum.size for key, stratum in sampled_strata.items()}:
        return True
    return any(keys.get(pair_id) != key for key, stratum in sampled_strata.items() for pair_id in stratum.sampled)


def compute_stratum_keys(annotations: Iterable[Annotation], by: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """For each pair, return the values of the fields in `by`, taken from the first round with the majority status.

    If there is a tie, the values come from the first round, except that `label`, `error` and `decided_by` are None.
    With `EVIDENCE`, the value is the name of the pair's stratum, or None if the pair has no label.
    """
    if tuple(by) == (EVIDENCE,):
        names = dict[str, tuple[Value, ...]]()

        def iterate_noted() -> Iterator[Annotation]:
            for annotation in annotations:
                names[annotation.id] = (None,)
                yield annotation

        for stratum in stratify(assign_cells(iterate_noted())):
            names |= dict.fromkeys(stratum.labels, (stratum.name,))
        return names
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
