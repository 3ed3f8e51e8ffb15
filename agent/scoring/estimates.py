"""What reviewers say of a run: as annotators, and, from a probability sample, of the run as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.scoring.labels import Annotator, Labels, majority_of
from agent.stats.stratified import Estimate, Stratum, estimate
from agent.store import files
from agent.store.review_sample import ReviewSample, Value, keys_of, read_sample, stale
from agent.store.reviews import read_reviews
from agent.store.run_view import load_run
from agent.types import Frozen

MAJORITY = "majority of reviewers"
Cell = tuple[tuple[Value, ...], int | None]


class RunEstimates(Frozen):
    """A whole run's accuracy, precision and recall against its reviewers' majority, from a probability sample.

    Of the run's `pairs`, `sampled` were drawn; of those, `reviewed` have a majority of 0 or 1, `tied` have reviews
    without one, and `pending` have none yet. `unseen` names the strata without any majority yet, with their sizes:
    what needs them is None. The reviewed pairs of a stratum are taken for a random sample of it.
    """

    pairs: int
    sampled: int
    reviewed: int
    tied: int
    pending: int
    by: tuple[str, ...]
    seed: int
    unseen: dict[str, int]
    accuracy: Estimate
    precision: Estimate
    recall: Estimate


@dataclass(frozen=True)
class Reviewed:
    """The reviewers of a run, under their names, and its sample where one was drawn.

    `is_stale`: the run is not any more what the sample was drawn from, so that nothing can be estimated from it.
    `strata` are the values of each pair by which the sample was drawn. `not_blind` counts reviews by people who had
    been shown the run's label.
    """

    reviewers: tuple[Annotator, ...]
    sample: ReviewSample | None
    is_stale: bool
    strata: Mapping[str, tuple[Value, ...]]
    not_blind: int = 0

    @property
    def majority(self) -> Annotator:
        """Return the reviewers' majority label of each reviewed pair."""
        return majority_of(self.reviewers, MAJORITY)


def read_reviewed(run: Path) -> Reviewed:
    """Read what a run's reviewers left in its folder; a run without reviews has no reviewers.

    Raises:
        RunFolderError: the folder is no run, or reviews or sample are damaged.
    """
    labels: dict[str, dict[str, int | None]] = {}
    reviews = read_reviews(run / files.REVIEWS)
    for review in reviews:
        labels.setdefault(review.reviewer, {})[review.id] = review.label
    sample = read_sample(run / files.REVIEW_SAMPLE)
    is_stale, strata = False, dict[str, tuple[Value, ...]]()
    if sample is not None:
        with load_run(run) as view:
            is_stale = stale(sample, view.annotations())
            strata = keys_of(view.annotations(), sample.by)
    reviewers = tuple(Annotator(name, labels[name]) for name in sorted(labels))
    return Reviewed(reviewers, sample, is_stale, strata, not_blind=sum(not review.blind for review in reviews))


def estimate_run(
    predicted: Labels, reviewed: Reviewed, *, seed: int = 0, draws: int = 10_000, level: float = 0.95
) -> RunEstimates | None:
    """Estimate what all of a run's labels are worth; None without a sample that fits the run.

    Pairs with other labels by the run stand in strata of their own, whatever the sample was stratified by.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    sample = reviewed.sample
    if sample is None or reviewed.is_stale:
        return None
    drawn = [pair for stratum in sample.strata for pair in stratum.sampled]
    asked = {pair for reviewer in reviewed.reviewers for pair in reviewer.labels}
    truth = {pair: label for pair, label in reviewed.majority.labels.items() if label is not None}
    cells = {pair: (reviewed.strata[pair], label) for pair, label in predicted.items() if pair in reviewed.strata}
    sizes = Counter(cells.values())
    seen = Counter(cells[pair] for pair in drawn if pair in truth)
    positives = Counter(cells[pair] for pair in drawn if truth.get(pair) == 1)
    strata = [Stratum(each[1], sizes[each], seen[each], positives[each]) for each in sorted(sizes, key=repr)]
    return RunEstimates(
        pairs=len(cells),
        sampled=len(drawn),
        reviewed=seen.total(),
        tied=sum(pair in asked and pair not in truth for pair in drawn),
        pending=sum(pair not in asked for pair in drawn),
        by=sample.by,
        seed=seed,
        unseen={_name(each, sample.by): size for each, size in sizes.items() if not seen[each]},
        **estimate(strata, seed=seed, draws=draws, level=level),
    )


def _name(each: Cell, by: Sequence[str]) -> str:
    values = {**dict(zip(by, each[0], strict=True)), "label": each[1]}
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in values.items())
