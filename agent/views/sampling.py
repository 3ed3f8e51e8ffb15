"""A run has one sample at a time: drawn once, gone on with, and replaced only when that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.errors import UsageError
from agent.store import files
from agent.store.reviews import ReviewSample, draw, locked, read_sample, stale, write_sample
from agent.store.run_view import RunView
from agent.types import Annotation
from agent.views.queues import Entry, Queue
from agent.wording import counted

SIZE, BY, SEED = 100, ("decided_by", "label"), 0


@dataclass(frozen=True)
class Wanted:
    """What was asked for; None: what the run's sample has, and without one the default."""

    size: int | None = None
    by: tuple[str, ...] | None = None
    seed: int | None = None


def sample_of(
    view: RunView, wanted: Wanted, annotations: Callable[[], Iterable[Annotation]], *, new: bool = False
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
    first: dict[str, int] = {}
    for pair_id, number in view.index.done():
        first[pair_id] = min(number, first.get(pair_id, number))
    entries = tuple(Entry(pair_id, first[pair_id]) for pair_id in sample.ids())
    return Queue(described(sample), entries, sample.fingerprint)


def described(sample: ReviewSample) -> str:
    """Say what a sample is, on one line."""
    by = f"by {', '.join(sample.by)}" if sample.by else "not stratified"
    return f"a sample of {sample.size:,} of {counted(sample.population, 'pair')}, {by}, seed {sample.seed}"


def lone_strata(sample: ReviewSample) -> int:
    """Return how many strata have one pair drawn of several, which tells nothing of how they vary."""
    return sum(len(stratum.sampled) == 1 < stratum.size for stratum in sample.strata)


def _check(found: ReviewSample, wanted: Wanted, annotations: Callable[[], Iterable[Annotation]], view: RunView) -> None:
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
