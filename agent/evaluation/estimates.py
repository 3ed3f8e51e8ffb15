"""What reviewers say of a run: as annotators, and, from a stratified random sample, of the run as a whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent.evaluation.labels import Labels, Rater, collect_votes
from agent.evaluation.statistics import DEFAULTS, LEVEL, BootstrapSettings, Interval, import_numpy, ratio
from agent.store import files
from agent.store.annotations import get_status
from agent.store.reviews import (
    Review,
    ReviewSample,
    Value,
    compute_stratum_keys,
    is_stale,
    iterate_reviews,
    read_reviews,
    read_sample,
)
from agent.store.run_view import RunView
from agent.types import Frozen, majority

MAJORITY = "majority of reviewers"
# which review of a pair counts of each reviewer: the last blind one, or the last one
ReviewChoice = Literal["blind", "last"]


@dataclass(frozen=True)
class LabelStratum:
    """The pairs of a stratum that have one label by the run.

    `size` pairs, of which `reviewed` were drawn at random without replacement and reviewed; for `positives` of those
    the right label is 1.
    """

    predicted: int | None
    size: int
    reviewed: int
    positives: int


@dataclass(frozen=True)
class Estimate:
    """An estimated share and its interval; both None where the sample gives none."""

    value: float | None
    interval: Interval | None


def estimate(
    strata: Sequence[LabelStratum], settings: BootstrapSettings = DEFAULTS, *, draws: int = 10_000
) -> dict[str, Estimate]:
    """Estimate the whole run's `accuracy`, `precision` and `recall`; a pair without a label is wrong, or missed.

    Values: each reviewed pair stands for `size / reviewed` pairs of its stratum (Horvitz and Thompson, JASA 47 (1952));
    recall is a ratio of two such totals (Cochran, Sampling techniques, 1977, section 6.11).

    Intervals: from the posterior of the pairs that were not reviewed, beta-binomial in each stratum, by `draws` Monte
    Carlo draws (Webber, Approximate recall confidence intervals, ACM TOIS 31(1), 2013). A stratum in which every review
    was right still counts as uncertain, as it does not for normal intervals. The prior's weight is Webber's for his two
    segments (a beta of 1/2 and 1/2 each), shared out over the strata: many small ones would drown in it. In simulations
    with 2 to 8 strata and 25 to 200 reviews, intervals of .95 held the truth in .89 to .97 of the samples (normal
    intervals: down to .64).

    A value is None where it is undefined, or where a stratum it needs has pairs but no review.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    np = import_numpy()
    sizes, reviewed, positives = (
        np.array([(each.size, each.reviewed, each.positives) for each in strata], dtype=int).reshape(-1, 3).T
    )
    # NaN where a stratum has pairs but no review, and in every share that needs it
    totals = np.where(sizes == 0, 0.0, sizes * ratio(positives, reviewed))
    prior = min(0.5, 1 / max(1, len(strata)))
    random = np.random.default_rng(settings.seed)
    shares = random.beta(positives + prior, reviewed - positives + prior, size=(draws, len(strata)))
    drawn = positives + random.binomial(sizes - reviewed, shares)
    values, posteriors = _shares(totals, sizes, strata), _shares(drawn, sizes, strata)
    return {name: _estimate(float(value), posteriors[name]) for name, value in values.items()}


def _shares(positives: Any, sizes: Any, strata: Sequence[LabelStratum]) -> dict[str, Any]:
    """Return the measures from how many pairs of each stratum (last axis) have the right label 1."""
    ones = [number for number, stratum in enumerate(strata) if stratum.predicted == 1]
    zeros = [number for number, stratum in enumerate(strata) if stratum.predicted == 0]
    hits = positives[..., ones].sum(axis=-1)
    refusals = (sizes - positives)[..., zeros].sum(axis=-1)
    return {
        "accuracy": ratio(hits + refusals, sizes.sum()),
        "precision": ratio(hits, sizes[ones].sum()),
        "recall": ratio(hits, positives.sum(axis=-1)),
    }


def _estimate(value: float, posterior: Any) -> Estimate:
    if math.isnan(value):
        return Estimate(None, None)
    tail = (1 - LEVEL) / 2
    low, high = import_numpy().quantile(posterior, [tail, 1 - tail])
    # at 0 and 1 the posterior leaves out what the sample shows
    return Estimate(value, Interval(min(float(low), value), max(float(high), value)))


class RunEstimates(Frozen):
    """A whole run's accuracy, precision and recall against its reviewers' majority, from a probability sample.

    The estimates are of `pairs`: of the run's `run_pairs` those that have the round scored, all where that is no single
    one. Of these, `sampled` were drawn; of those, `reviewed` have a majority of 0 or 1, `undecided` a majority of
    reviews without a label, `tied` no majority, and `pending` no review yet; `ahead` have reviews that do not count yet
    (`Reviewed.ahead`). `reviewers` counts people. `unseen` names the strata without any majority yet, with their sizes:
    what needs them is None. The reviewed pairs of a stratum are taken for a random sample of it.
    """

    pairs: int
    run_pairs: int
    sampled: int
    reviewed: int
    tied: int
    undecided: int
    pending: int
    ahead: int
    reviewers: int
    by: tuple[str, ...]
    seed: int
    level: float
    unseen: dict[str, int]
    accuracy: Estimate
    precision: Estimate
    recall: Estimate


@dataclass(frozen=True)
class ReviewData:
    """The reviewers of a run, under their names, and its sample where one was drawn.

    `voters` are the same with the labels that estimates go by: of a pair that was reviewed in the sample's turn,
    reviews from a queue have no vote, as they would divide reviewers on just the pairs that a queue holds.
    `is_stale`: the run is not any more what the sample was drawn from, so that nothing can be estimated from it.
    `strata` are the values of each pair by which the sample was drawn. `ahead` are those drawn that were reviewed in a
    queue and not come to in the sample's order yet: what a queue holds is no random part of the sample. `words` says
    which reviews count. Of those by people who had been shown the run's label and its evidence, `in_sight` count; left
    out are `corrections` of blind reviews, and `never_blind` where the reviewer gave no blind one.
    """

    reviewers: tuple[Rater, ...]
    voters: tuple[Rater, ...]
    sample: ReviewSample | None = None
    is_stale: bool = False
    strata: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    ahead: frozenset[str] = frozenset()
    review_choice: ReviewChoice = "blind"
    not_blind: int = 0
    corrections: int = 0
    never_blind: int = 0

    @property
    def left_out(self) -> int:
        """How many pairs, by reviewer, have a later review than the one that counts."""
        return self.corrections + self.never_blind


def read_review_data(run: RunView, review_choice: ReviewChoice = "blind") -> ReviewData:
    """Read what a run's reviewers left in its folder; a run without reviews has no reviewers.

    Only blind reviews are independent of the run, and of each other: who has seen a label and its evidence tends to
    follow it, so that estimates by such reviews flatter the run.

    Raises:
        RunFolderError: reviews or sample are damaged.
    """
    path = run.path / files.REVIEWS
    last, blind = (read_reviews(path, blind=each) for each in (False, True))
    counted = blind if review_choice == "blind" else last
    not_blind, never_blind = sum(not review.blind for review in last), len(last) - len(blind)
    by_sample = {review.id for review in counted if review.source != "queue"}
    votes = [review for review in counted if review.source != "queue" or review.id not in by_sample]
    reviewed = ReviewData(
        reviewers=_raters(counted),
        voters=_raters(votes),
        review_choice=review_choice,
        not_blind=not_blind if review_choice == "last" else 0,
        corrections=not_blind - never_blind if review_choice == "blind" else 0,
        never_blind=never_blind if review_choice == "blind" else 0,
    )
    sample = read_sample(run.path / files.REVIEW_SAMPLE)
    if sample is None:
        return reviewed
    return replace(
        reviewed,
        sample=sample,
        is_stale=is_stale(sample, run.annotations()),
        strata=compute_stratum_keys(run.annotations(), sample.by),
        ahead=_ahead(sample, [review for review in iterate_reviews(path) if review.blind or review_choice == "last"]),
    )


def _raters(reviews: Iterable[Review]) -> tuple[Rater, ...]:
    labels: dict[str, dict[str, int | None]] = {}
    for review in reviews:
        labels.setdefault(review.reviewer, {})[review.id] = review.label
    return tuple(Rater(name, labels[name], "reviewer") for name in sorted(labels))


def estimate_run(
    predicted: Labels, reviewed: ReviewData, settings: BootstrapSettings = DEFAULTS
) -> RunEstimates | None:
    """Estimate what all of a run's labels are worth; None without a sample that fits the run.

    Pairs with other labels by the run stand in strata of their own, whatever the sample was stratified by.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    sample = reviewed.sample
    if sample is None or reviewed.is_stale:
        return None
    answers = {
        pair: majority(get_status(label, failed=False) for label in labels)
        for pair, labels in collect_votes(reviewed.voters).items()
    }
    cells = {pair: (reviewed.strata[pair], label) for pair, label in predicted.items() if pair in reviewed.strata}
    # Those drawn that have the round are a random sample of those that have it.
    sampled = cells.keys() & set(sample.shuffle_ids())
    drawn = sampled - reviewed.ahead
    sizes = Counter(cells.values())
    seen = Counter(cells[pair] for pair in drawn if answers.get(pair) in ("0", "1"))
    positives = Counter(cells[pair] for pair in drawn if answers.get(pair) == "1")
    strata = [LabelStratum(each[1], sizes[each], seen[each], positives[each]) for each in sorted(sizes, key=repr)]
    return RunEstimates(
        pairs=len(cells),
        run_pairs=len(reviewed.strata),
        sampled=len(sampled),
        reviewed=seen.total(),
        tied=sum(pair in answers and answers[pair] is None for pair in drawn),
        undecided=sum(answers.get(pair) == "undecided" for pair in drawn),
        pending=sum(pair not in answers for pair in drawn),
        ahead=len(sampled & reviewed.ahead),
        reviewers=len(reviewed.reviewers),
        by=sample.by,
        seed=settings.seed,
        level=LEVEL,
        unseen={_name(*each, sample.by): size for each, size in sizes.items() if not seen[each]},
        **estimate(strata, settings),
    )


def _ahead(sample: ReviewSample, reviews: Sequence[Review]) -> frozenset[str]:
    """Return the drawn pairs whose reviews have to wait.

    Where some were reviewed in a queue, those count that the sessions of the sample have passed: up to the furthest
    they reviewed, and from there to the next without a review (to end with the furthest, which no queue held, would
    favour such pairs). The sample's order is random, and so is what was passed.
    """
    order, seen = sample.shuffle_ids(), {review.id for review in reviews}
    if not {review.id for review in reviews if review.source == "queue"}.intersection(order):
        return frozenset()
    # Those of another sample stand anywhere in this one's order.
    passing = {review.id for review in reviews if review.sample == sample.fingerprint}
    furthest = max((place for place, pair in enumerate(order) if pair in passing), default=-1)
    pending = [place for place in range(furthest + 1, len(order)) if order[place] not in seen]
    if not pending:
        return frozenset()
    return frozenset(order[pending[0] if furthest >= 0 else 0 :]) & seen


def _name(stratum: tuple[Value, ...], label: int | None, by: Sequence[str]) -> str:
    values: list[tuple[str, Value]] = [*zip(by, stratum, strict=True)]
    if ("label", label) not in values:
        # of another round than the sample's, where one was asked for
        values.append(("label scored" if "label" in by else "label", label))
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in values)
