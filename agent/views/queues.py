"""Which pairs of a run a person should look at, and in which order: those in doubt, or a random sample.

A run has one sample at a time: drawn once, gone on with, and replaced only when that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, get_args

from agent.errors import UsageError
from agent.store import files
from agent.store.annotations import Vote, combine_votes
from agent.store.reviews import Review, ReviewSample, draw_sample, is_stale, lock_reviews, read_sample, write_sample
from agent.store.run_view import RunView
from agent.types import Annotation
from agent.wording import plural

QueueKind = Literal["undecided", "disputed", "low-confidence"]
KINDS: tuple[QueueKind, ...] = get_args(QueueKind)
DEFAULT_SIZE, DEFAULT_BY, DEFAULT_SEED = 100, ("decided_by", "label"), 0


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


def parse_kinds(names: Sequence[str]) -> tuple[QueueKind, ...]:
    """Return the kinds of these names, each once.

    Raises:
        UsageError: there is no such kind.
    """
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise UsageError(f"there is no queue {unknown[0]!r}; there is {', '.join(KINDS)}")
    return tuple(dict.fromkeys(kind for name in names for kind in KINDS if kind == name))


def build_queue(
    kinds: Sequence[QueueKind],
    pairs: Iterable[Sequence[Annotation]],
    reviews: Iterable[Review],
    limit: int | None = None,
) -> Queue:
    """Return the pairs of one or several kinds, each pair once, the kinds in the order given.

    `pairs` are the rounds of each pair. `undecided`: without a label (undecided, tied over rounds, or in error), or the
    arbiter abstained. `disputed`: label and test outcome differ, or rounds, votes or reviewers do. Both in the order of
    `pairs`. `low-confidence`: all that have a confidence, the lowest first.
    """
    reviewed = _group_labels_by_pair(reviews)
    doubts: dict[QueueKind, list[tuple[float, str, list[str]]]] = {kind: [] for kind in kinds}
    first_rounds: dict[str, int] = {}
    for rounds in pairs:
        pair_id = rounds[0].id
        for kind in kinds:
            place, reasons = _FINDERS[kind](rounds, reviewed.get(pair_id, set()))
            if reasons:
                doubts[kind].append((place, pair_id, reasons))
                first_rounds[pair_id] = rounds[0].round
    why: dict[str, list[str]] = {}
    for kind in kinds:
        for _place, pair_id, reasons in sorted(doubts[kind], key=itemgetter(0)):
            why.setdefault(pair_id, []).extend(reasons)
    entries = tuple(QueueEntry(pair_id, first_rounds[pair_id], tuple(reasons)) for pair_id, reasons in why.items())
    chosen = entries[:limit]
    return Queue(f"{' and '.join(kinds)}, {_describe_count(len(chosen), len(entries))}", chosen)


_Doubt = tuple[float, list[str]]
"""Where a pair stands in its queue, the lowest first, and why it is there: for no reason, it is not."""


def _find_undecided(rounds: Sequence[Annotation], _reviewed: Set[int]) -> _Doubt:
    if any(each.abstained for each in rounds):
        return 0, ["the arbiter abstained"]
    reasons = {"error": ["the run ended in an error"], "undecided": ["the run did not decide"]}
    return 0, reasons.get(combine_votes(rounds[0].id, [Vote.of(each) for each in rounds]).status, [])


def _find_disputes(rounds: Sequence[Annotation], reviewed: Set[int]) -> _Doubt:
    reasons = {
        "label and test outcome differ": any(each.against_test for each in rounds),
        "rounds disagree": {0, 1} <= {each.label for each in rounds},
        "votes disagree": any({0, 1} <= set(each.votes) for each in rounds),
        "reviewers disagree": {0, 1} <= reviewed,
    }
    return 0, [reason for reason, holds in reasons.items() if holds]


def _find_low_confidence(rounds: Sequence[Annotation], _reviewed: Set[int]) -> _Doubt:
    lowest = min((each.confidence for each in rounds if each.confidence is not None), default=None)
    return (0, []) if lowest is None else (lowest, [f"confidence {lowest:.2f}"])


_FINDERS: Mapping[QueueKind, Callable[[Sequence[Annotation], Set[int]], _Doubt]] = {
    "undecided": _find_undecided,
    "disputed": _find_disputes,
    "low-confidence": _find_low_confidence,
}


def _group_labels_by_pair(reviews: Iterable[Review]) -> dict[str, set[int]]:
    labels: dict[str, set[int]] = {}
    for review in reviews:
        if review.label is not None:
            labels.setdefault(review.id, set()).add(review.label)
    return labels


def _describe_count(chosen: int, all_pairs: int) -> str:
    pairs = plural(chosen, "pair")
    return pairs if chosen == all_pairs else f"the first {pairs} of {all_pairs}"


@dataclass(frozen=True)
class SampleRequest:
    """What was asked for; None: what the run's sample has, and without one the default."""

    size: int | None = None
    by: tuple[str, ...] | None = None
    seed: int | None = None


def load_or_draw_sample(
    view: RunView, wanted: SampleRequest, annotations: Callable[[], Iterable[Annotation]], *, new: bool = False
) -> ReviewSample:
    """Return the run's sample, drawn and written where there is none or a `new` one is wanted.

    Raises:
        UsageError: the sample there is was drawn with other options, or from the run as it was before.
        StorageError: the sample cannot be written.
    """
    path = view.path / files.REVIEW_SAMPLE
    # Held so that of two reviewers who start at once one draws and the other goes on with that.
    with lock_reviews(view.path / files.REVIEWS):
        sample = None if new else read_sample(path)
        if sample is not None:
            _check_sample(sample, wanted, annotations, view)
            return sample
        size = DEFAULT_SIZE if wanted.size is None else wanted.size
        by, seed = DEFAULT_BY if wanted.by is None else wanted.by, DEFAULT_SEED if wanted.seed is None else wanted.seed
        sample = draw_sample(annotations(), by, size, seed)
        write_sample(path, sample)
        return sample


def build_sample_queue(sample: ReviewSample, view: RunView) -> Queue:
    """Return the pairs of a sample, in their random order."""
    entries = tuple(QueueEntry(pair_id, view.index.list_rounds(pair_id)[0]) for pair_id in sample.shuffle_ids())
    return Queue(describe_sample(sample), entries, sample.fingerprint)


def describe_sample(sample: ReviewSample) -> str:
    """Say what a sample is, on one line."""
    by = f"by {', '.join(sample.by)}" if sample.by else "not stratified"
    return f"a sample of {sample.size:,} of {plural(sample.population, 'pair')}, {by}, seed {sample.seed}"


def _check_sample(
    sample: ReviewSample, wanted: SampleRequest, annotations: Callable[[], Iterable[Annotation]], view: RunView
) -> None:
    differs = {
        f"--sample {wanted.size}": wanted.size is not None and min(wanted.size, sample.population) != sample.size,
        f"--stratify {','.join(wanted.by or ())}": wanted.by is not None and set(wanted.by) != set(sample.by),
        f"--seed {wanted.seed}": wanted.seed is not None and wanted.seed != sample.seed,
    }
    others = [option for option, differ in differs.items() if differ]
    remedy = "or draw another with --new-sample (reviews are kept)"
    if others:
        raise UsageError(
            f"{view.path}: already has {describe_sample(sample)}, which is not {' '.join(others)}. "
            f"Leave these options out to go on with it, {remedy}"
        )
    if is_stale(sample, annotations()):
        raise UsageError(
            f"{view.path}: has {describe_sample(sample)}, but the run has changed since: pairs were added or labelled "
            f"again, so that it stands for the run no more. Finish the run first, {remedy}"
        )
