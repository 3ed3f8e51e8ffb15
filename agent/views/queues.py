"""Which pairs of a run a person should look at, and in which order: those in doubt, or a random sample.

A run has one sample at a time: drawn once, gone on with, and replaced only when that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from agent.errors import UsageError
from agent.store import files
from agent.store.reviews import Review, ReviewSample, draw, locked, read_sample, stale, write_sample
from agent.store.run_view import RunView
from agent.types import Annotation
from agent.wording import counted

Kind = Literal["undecided", "disputed", "low-confidence"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Label = Literal[0, 1] | None
SIZE, BY, SEED = 100, ("decided_by", "label"), 0


@dataclass(frozen=True)
class QueueEntry:
    """One pair to look at, by the annotation of a round; `why` it is here is part of the evidence."""

    id: str
    round: int = 0
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Queue:
    """The pairs to look at, in order; `title` says which they are, `sample` is its fingerprint where they are one."""

    title: str
    entries: tuple[QueueEntry, ...]
    sample: str | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What queues need of one annotation; a run may have hundreds of thousands."""

    round: int
    label: Label
    failed: bool
    abstained: bool
    contradicted: bool
    split: bool
    confidence: float | None


def kinds_of(names: Iterable[str]) -> tuple[Kind, ...]:
    """Return the kinds of these names, each once.

    Raises:
        UsageError: there is no such kind.
    """
    found = {}
    for name in names:
        kind = next((kind for kind in KINDS if kind == name), None)
        if kind is None:
            raise UsageError(f"there is no queue {name!r}; there is {', '.join(KINDS)}")
        found[kind] = True
    return tuple(found)


def queue_of(
    kinds: Sequence[Kind], annotations: Iterable[Annotation], reviews: Iterable[Review], limit: int | None = None
) -> Queue:
    """Return the pairs of one or several kinds, each pair once, the kinds in the order given.

    `undecided`: without a label (undecided, tied over rounds, or in error), or the arbiter abstained. `disputed`: label
    and test outcome differ, or rounds, votes or reviewers do. Both in the order of the run. `low-confidence`: all that
    have a confidence, the lowest first.
    """
    rounds = _rounds(annotations)
    labels = _labels_by_pair(reviews)
    found: dict[str, list[str]] = {}
    for kind in kinds:
        for pair_id, reasons in _FINDERS[kind](rounds, labels):
            found.setdefault(pair_id, []).extend(reasons)
    entries = (QueueEntry(pair_id, rounds[pair_id][0].round, tuple(why)) for pair_id, why in found.items())
    chosen = tuple(entries)[:limit]
    return Queue(f"{' and '.join(kinds)}, {_of(len(chosen), len(found))}", chosen)


_Rounds = Mapping[str, Sequence[_Seen]]
_Labels = Mapping[str, set[int]]
_Found = Iterable[tuple[str, list[str]]]


def _undecided(rounds: _Rounds, _labels: _Labels) -> _Found:
    for pair_id, seen in rounds.items():
        ones, zeros = (sum(each.label == label for each in seen) for label in (1, 0))
        if any(each.abstained for each in seen):
            yield pair_id, ["the arbiter abstained"]
        elif ones == zeros:
            failed = all(each.failed for each in seen)
            yield pair_id, ["the run ended in an error" if failed else "the run did not decide"]


def _disputed(rounds: _Rounds, labels: _Labels) -> _Found:
    for pair_id, seen in rounds.items():
        reasons = {
            "label and test outcome differ": any(each.contradicted for each in seen),
            "rounds disagree": {0, 1} <= {each.label for each in seen},
            "votes disagree": any(each.split for each in seen),
            "reviewers disagree": {0, 1} <= labels.get(pair_id, set()),
        }
        if any(reasons.values()):
            yield pair_id, [reason for reason, holds in reasons.items() if holds]


def _low_confidence(rounds: _Rounds, _labels: _Labels) -> _Found:
    lowest = {
        pair_id: min(known)
        for pair_id, seen in rounds.items()
        if (known := [each.confidence for each in seen if each.confidence is not None])
    }
    for pair_id in sorted(lowest, key=lambda pair_id: lowest[pair_id]):
        yield pair_id, [f"confidence {lowest[pair_id]:.2f}"]


_FINDERS: Mapping[Kind, Callable[[_Rounds, _Labels], _Found]] = {
    "undecided": _undecided,
    "disputed": _disputed,
    "low-confidence": _low_confidence,
}


def _rounds(annotations: Iterable[Annotation]) -> dict[str, list[_Seen]]:
    rounds: dict[str, list[_Seen]] = {}
    for annotation in annotations:
        seen = _Seen(
            round=annotation.round,
            label=annotation.label,
            failed=annotation.error is not None,
            abstained=annotation.abstained,
            contradicted=annotation.against_test,
            split={0, 1} <= set(annotation.votes),
            confidence=annotation.confidence,
        )
        rounds.setdefault(annotation.id, []).append(seen)
    for several in rounds.values():
        several.sort(key=lambda seen: seen.round)
    return rounds


def _labels_by_pair(reviews: Iterable[Review]) -> dict[str, set[int]]:
    labels: dict[str, set[int]] = {}
    for review in reviews:
        if review.label is not None:
            labels.setdefault(review.id, set()).add(review.label)
    return labels


def _of(chosen: int, found: int) -> str:
    pairs = counted(chosen, "pair")
    return pairs if chosen == found else f"the first {pairs} of {found}"


@dataclass(frozen=True)
class SampleRequest:
    """What was asked for; None: what the run's sample has, and without one the default."""

    size: int | None = None
    by: tuple[str, ...] | None = None
    seed: int | None = None


def sample_of(
    view: RunView, wanted: SampleRequest, annotations: Callable[[], Iterable[Annotation]], *, new: bool = False
) -> ReviewSample:
    """Return the run's sample, drawn and written where there is none or a `new` one is wanted.

    Raises:
        UsageError: the sample there is was drawn with other options, or from the run as it was before.
        StorageError: the sample cannot be written.
    """
    path = view.path / files.REVIEW_SAMPLE
    # Held so that of two reviewers who start at once one draws and the other goes on with that.
    with locked(view.path / files.REVIEWS):
        found = None if new else read_sample(path)
        if found is not None:
            _check(found, wanted, annotations, view)
            return found
        size = SIZE if wanted.size is None else wanted.size
        by, seed = BY if wanted.by is None else wanted.by, SEED if wanted.seed is None else wanted.seed
        sample = draw(annotations(), by, size, seed)
        write_sample(path, sample)
    return sample


def queue_from(sample: ReviewSample, view: RunView) -> Queue:
    """Return the pairs of a sample, in their random order."""
    entries = tuple(QueueEntry(pair_id, view.index.rounds_of(pair_id)[0]) for pair_id in sample.ids())
    return Queue(described(sample), entries, sample.fingerprint)


def described(sample: ReviewSample) -> str:
    """Say what a sample is, on one line."""
    by = f"by {', '.join(sample.by)}" if sample.by else "not stratified"
    return f"a sample of {sample.size:,} of {counted(sample.population, 'pair')}, {by}, seed {sample.seed}"


def _check(
    found: ReviewSample, wanted: SampleRequest, annotations: Callable[[], Iterable[Annotation]], view: RunView
) -> None:
    others = []
    if wanted.size is not None and min(wanted.size, found.population) != found.size:
        others.append(f"--sample {wanted.size}")
    if wanted.by is not None and set(wanted.by) != set(found.by):
        others.append(f"--stratify {','.join(wanted.by)}")
    if wanted.seed is not None and wanted.seed != found.seed:
        others.append(f"--seed {wanted.seed}")
    remedy = "or draw another with --new-sample (reviews are kept)"
    if others:
        raise UsageError(
            f"{view.path}: already has {described(found)}, which is not {' '.join(others)}. "
            f"Leave these options out to go on with it, {remedy}"
        )
    if stale(found, annotations()):
        raise UsageError(
            f"{view.path}: has {described(found)}, but the run has changed since: pairs were added or labelled again, "
            f"so that it stands for the run no more. Finish the run first, {remedy}"
        )
