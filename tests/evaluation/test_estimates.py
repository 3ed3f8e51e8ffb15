"""Tests for estimates from a reviewed probability sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.evaluation.estimates import (
    Estimate,
    LabelStratum,
    ReviewChoice,
    ReviewData,
    RunEstimates,
    estimate,
    estimate_run,
)
from agent.evaluation.labels import compute_majority
from agent.evaluation.scoring import read_run
from agent.evaluation.statistics import BootstrapSettings, Interval
from agent.types import Annotation
from tests.evaluation.runs import add_reviews, annotate, draw_review_sample, make_error, write_run

# (label of the run, pairs, proportion whose correct label is 1, reviews)
Design = list[tuple[int | None, int, float, int]]
FEW_MISSED: Design = [(1, 3000, 0.95, 50), (0, 6000, 0.01, 50), (1, 500, 0.8, 50), (0, 500, 0.3, 50)]
MANY_SMALL: Design = [
    (1, 500, 0.95, 12),
    (0, 900, 0.02, 12),
    (1, 300, 0.9, 12),
    (0, 300, 0.1, 12),
    (1, 200, 0.8, 12),
    (0, 100, 0.3, 12),
    (None, 50, 0.5, 12),
    (0, 700, 0.0, 13),
]
NEARLY_ALL_REVIEWED: Design = [(1, 100, 0.92, 60), (0, 100, 0.1, 60)]


def make_population(design: Design) -> list[LabelStratum]:
    return [LabelStratum(label, size, size, round(size * share)) for label, size, share, _ in design]


def draw_reviews(design: Design, random: np.random.Generator) -> list[LabelStratum]:
    return [
        LabelStratum(
            label, stratum.size, n, int(random.hypergeometric(stratum.positives, stratum.size - stratum.positives, n))
        )
        for stratum, (label, _, _, n) in zip(make_population(design), design, strict=True)
    ]


@pytest.mark.parametrize("design", [FEW_MISSED, MANY_SMALL, NEARLY_ALL_REVIEWED], ids=["few", "many", "nearly all"])
def test_intervals_have_nominal_coverage(design: Design) -> None:
    truth = {name: measure.value for name, measure in estimate(make_population(design)).items()}
    random = np.random.default_rng(11)
    covered = dict.fromkeys(truth, 0)
    for _ in range(400):
        for name, measure in estimate(draw_reviews(design, random), draws=500).items():
            value = truth[name]
            assert value is not None
            covered[name] += measure.interval.low <= value <= measure.interval.high
    assert all(0.88 <= count / 400 <= 0.99 for count in covered.values()), covered


def test_accuracy_and_precision_are_unbiased() -> None:
    random = np.random.default_rng(5)
    truth = {name: measure.value for name, measure in estimate(make_population(FEW_MISSED)).items()}
    result = [estimate(draw_reviews(FEW_MISSED, random), draws=1) for _ in range(1000)]
    for name in ("accuracy", "precision"):
        values = [measure[name].value or 0.0 for measure in result]
        assert abs(np.mean(values) - truth[name]) < 4 * np.std(values) / 1000**0.5


def test_reviewed_pairs_are_weighted_by_stratum() -> None:
    result = estimate([LabelStratum(1, 100, 10, 9), LabelStratum(0, 300, 10, 1), LabelStratum(None, 20, 10, 5)])
    assert result["precision"].value == pytest.approx(90 / 100)
    assert result["recall"].value == pytest.approx(90 / (90 + 30 + 10))
    assert result["accuracy"].value == pytest.approx((90 + 270) / 420)
    known = estimate([LabelStratum(1, 10, 10, 9), LabelStratum(0, 30, 30, 3)])
    assert known["accuracy"] == Estimate(36 / 40, Interval(36 / 40, 36 / 40))
    assert known["recall"].value == 9 / 12


def test_intervals_are_wide_even_if_all_reviews_agree_with_the_run() -> None:
    result = estimate([LabelStratum(1, 1000, 10, 10), LabelStratum(0, 5000, 10, 0)])
    recall, precision = result["recall"], result["precision"]
    assert (recall.value, precision.value) == (1.0, 1.0)
    assert (recall.interval.high, precision.interval.high) == (1.0, 1.0)
    assert recall.interval.low < 0.7
    assert precision.interval.low < 0.9


def test_estimates_that_need_an_unreviewed_stratum_are_undefined() -> None:
    result = estimate([LabelStratum(1, 100, 10, 9), LabelStratum(0, 300, 0, 0)])
    assert result["precision"].value == pytest.approx(0.9)
    assert result["recall"] == result["accuracy"] == Estimate(None, None)
    assert estimate([LabelStratum(1, 100, 10, 9), LabelStratum(0, 0, 0, 0)])["recall"].value == 1.0
    nothing_to_recall = estimate([LabelStratum(0, 10, 5, 0)])
    assert nothing_to_recall["recall"] == nothing_to_recall["precision"] == Estimate(None, None)
    assert nothing_to_recall["accuracy"].value == 1.0
    assert set(estimate([]).values()) == {Estimate(None, None)}


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, None]), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)), max_size=6
    ),
    st.integers(0, 5),
)
def test_intervals_contain_their_value_within_0_and_1(
    numbers: list[tuple[int | None, int, int, int]], seed: int
) -> None:
    strata = [LabelStratum(label, a + b + c, a + b, a) for label, a, b, c in numbers]
    result = estimate(strata, BootstrapSettings(seed), draws=200)
    assert result == estimate(strata, BootstrapSettings(seed), draws=200)
    for measure in result.values():
        if measure.value is None:
            assert measure.interval is None
        else:
            assert 0 <= measure.interval.low <= measure.value <= measure.interval.high <= 1


def make_annotations(ones: int, zeros: int) -> list[Annotation]:
    return [
        *(annotate(f"one{number}", 1, "passed") for number in range(ones)),
        *(annotate(f"zero{number}", 0) for number in range(zeros)),
    ]


def load_reviews(run: Path, review_choice: ReviewChoice = "blind") -> ReviewData:
    return read_run(run, review_choice=review_choice).review_data


def estimate_folder(run: Path, review_choice: ReviewChoice = "blind", round: int | None = None) -> RunEstimates | None:
    return estimate_run(read_run(run, round).annotator.labels, load_reviews(run, review_choice))


def make_sampled_run(
    path: Path, annotations: list[Annotation], n: int, by: Sequence[str] = ("decided_by", "label")
) -> list[str]:
    write_run(path, annotations)
    return draw_review_sample(path, annotations, by, n)


def test_a_reviewed_sample_estimates_the_whole_run(tmp_path: Path) -> None:
    sample_ids = make_sampled_run(tmp_path / "r", make_annotations(60, 140), 50)
    ones, zeros = (sorted(pair for pair in sample_ids if pair.startswith(name)) for name in ("one", "zero"))
    right = set(ones[3:]) | set(zeros[:2])
    add_reviews(tmp_path / "r", "ann", {pair: int(pair in right) for pair in sample_ids})
    result = estimate_folder(tmp_path / "r")
    assert (result.pairs, result.sampled, result.reviewed, result.tied, result.pending) == (200, 50, 50, 0, 0)
    expected = estimate([LabelStratum(1, 60, len(ones), len(ones) - 3), LabelStratum(0, 140, len(zeros), 2)])
    for name, measure in expected.items():
        actual = getattr(result, name)
        assert actual.value == pytest.approx(measure.value, abs=1e-9)
        assert actual.interval.low < actual.value < actual.interval.high


def test_reviews_outside_the_sample_do_not_count(tmp_path: Path) -> None:
    sample_ids = make_sampled_run(tmp_path / "r", make_annotations(30, 30), 20)
    add_reviews(tmp_path / "r", "ann", {pair: int(pair.startswith("one")) for pair in sample_ids})
    before = estimate_folder(tmp_path / "r")
    outside = next(f"one{number}" for number in range(30) if f"one{number}" not in sample_ids)
    add_reviews(tmp_path / "r", "ann", {outside: 0})
    assert before is not None
    assert before == estimate_folder(tmp_path / "r")


def test_pending_pairs_and_ties_are_counted(tmp_path: Path) -> None:
    sample_ids = make_sampled_run(tmp_path / "r", make_annotations(30, 30), 20)
    add_reviews(tmp_path / "r", "ann", dict.fromkeys(sample_ids[:12], 1))
    add_reviews(tmp_path / "r", "bob", {sample_ids[0]: 0, sample_ids[1]: 1, sample_ids[2]: None, sample_ids[12]: None})
    result = estimate_folder(tmp_path / "r")
    assert (result.reviewed, result.tied, result.undecided, result.pending, result.reviewers) == (10, 2, 1, 7, 2)


def test_unreviewed_strata_are_listed(tmp_path: Path) -> None:
    sample_ids = make_sampled_run(tmp_path / "r", [*make_annotations(30, 30), make_error("broken")], 20)
    add_reviews(tmp_path / "r", "ann", {pair: 1 for pair in sample_ids if pair.startswith("one")})
    result = estimate_folder(tmp_path / "r")
    assert result.unseen == {"decided_by=screen, label=0": 30, "decided_by=null, label=null": 1}
    assert result.precision.value == 1.0
    assert result.accuracy == result.recall == Estimate(None, None)


def test_strata_by_other_fields_are_split_by_label(tmp_path: Path) -> None:
    sample_ids = make_sampled_run(tmp_path / "r", make_annotations(60, 40), 30, by=["stand_ins"])
    add_reviews(tmp_path / "r", "ann", dict.fromkeys(sample_ids, 1))
    result = estimate_folder(tmp_path / "r")
    assert result.by == ("stand_ins",)
    assert (result.precision.value, result.recall.value, result.accuracy.value) == (
        1.0,
        pytest.approx(0.6),
        pytest.approx(0.6),
    )


def test_a_sample_of_several_rounds_uses_their_majorities(tmp_path: Path) -> None:
    rounds = [annotate(f"p{n}", int((n + number) % 3 > 0), round=number) for n in range(60) for number in range(3)]
    rounds += [annotate(f"q{n}", int((n + number) % 3 > 1), round=number) for n in range(60) for number in range(3)]
    sample_ids = make_sampled_run(tmp_path / "r", rounds, 8)
    add_reviews(tmp_path / "r", "ann", {pair: int(pair.startswith("p")) for pair in sample_ids})
    result = estimate_folder(tmp_path / "r")
    assert (result.pairs, result.reviewed, result.unseen, result.accuracy.value) == (120, 8, {}, 1.0)


def test_unreviewed_strata_name_the_scored_label_of_another_round(tmp_path: Path) -> None:
    labels = {"a": (1, 1, 1), "b": (1, 0, 1), "c": (0, 0, 0), "d": (0, 1, 0)}
    rounds = [annotate(pair, label, round=n) for pair, votes in labels.items() for n, label in enumerate(votes)]
    make_sampled_run(tmp_path / "r", rounds, 4, by=["label"])
    result = estimate_folder(tmp_path / "r", round=1)
    assert result.unseen == {"label=1": 1, "label=1, label scored=0": 1, "label=0": 1, "label=0, label scored=1": 1}


def test_reviewers_are_annotators_with_their_blind_labels(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", make_annotations(3, 1))
    assert load_reviews(run).reviewers == ()
    add_reviews(run, "ann", {"one0": 0, "one1": None})
    add_reviews(run, "ann", {"one0": 1, "one2": 1}, blind=False)
    add_reviews(run, "bob", {"one0": 0})
    add_reviews(run, "bob", {"one0": 1, "zero0": 0})
    add_reviews(run, "cat", {"zero0": 1}, blind=False)
    result = load_reviews(run)
    assert [(rater.name, dict(rater.labels)) for rater in result.reviewers] == [
        ("ann", {"one0": 0, "one1": None}),
        ("bob", {"one0": 0, "zero0": 0}),
    ]
    assert compute_majority(result.reviewers).labels == {"one0": 0, "one1": None, "zero0": 0}
    assert (result.not_blind, result.corrections, result.never_blind) == (0, 2, 2)
    assert (result.left_out, result.sample) == (4, None)
    last = load_reviews(run, "last")
    assert [(rater.name, dict(rater.labels)) for rater in last.reviewers] == [
        ("ann", {"one0": 1, "one1": None, "one2": 1}),
        ("bob", {"one0": 1, "zero0": 0}),
        ("cat", {"zero0": 1}),
    ]
    assert (last.not_blind, last.left_out) == (4, 0)
    assert estimate_folder(run) is None


# the run mislabels three quarters of the pairs in the queue, and no other pairs
DISPUTED = {f"p{number}" for number in range(40)}
WRONG = {f"p{number}" for number in range(30)}
ANNOTATIONS = [annotate(f"p{number}", 1) for number in range(200)]
TRUE_ACCURACY = 0.85


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "r", ANNOTATIONS)


def draw_sample(run: Path, n: int = 60, seed: int = 1) -> list[str]:
    return draw_review_sample(run, ANNOTATIONS, ["label"], n, seed)


def review_in_queue(run: Path, pairs: set[str], reviewer: str = "ann") -> None:
    add_reviews(run, reviewer, {pair: int(pair not in WRONG) for pair in sorted(pairs)}, source="queue")


def review_in_sample(run: Path, pairs: list[str], reviewer: str = "ann", **more: bool) -> None:
    add_reviews(run, reviewer, {pair: int(pair not in WRONG) for pair in pairs}, **more)


@pytest.mark.slow
def test_a_queue_reviewed_before_the_sample_does_not_bias_the_estimate(run: Path) -> None:
    result = []
    for seed in range(40):
        (run / "reviews.jsonl").unlink(missing_ok=True)
        order = draw_sample(run, seed=seed)
        review_in_queue(run, DISPUTED.intersection(order))
        review_in_sample(run, [pair for pair in order if pair not in DISPUTED][:20])
        result.append(estimate_folder(run))
    assert mean(estimate.accuracy.value or 0.0 for estimate in result) == pytest.approx(TRUE_ACCURACY, abs=0.02)
    covering_estimates = [
        estimate for estimate in result if estimate.accuracy.interval and estimate.accuracy.interval.low < TRUE_ACCURACY
    ]
    assert len(covering_estimates) >= 36


def test_a_second_reviewer_of_a_queue_causes_no_ties(run: Path) -> None:
    order = draw_sample(run)
    review_in_sample(run, order)
    alone = estimate_folder(run)
    against = {pair: int(pair in WRONG) for pair in sorted(DISPUTED.intersection(order))}
    add_reviews(run, "bob", against, source="queue")
    both = estimate_folder(run)
    assert (both.tied, both.accuracy, both.recall) == (0, alone.accuracy, alone.recall)
    add_reviews(run, "eve", against, source="sample")
    assert estimate_folder(run).tied == len(against)


def test_estimates_after_a_queue_equal_those_of_the_sample_alone(run: Path) -> None:
    order = draw_sample(run)
    review_in_queue(run, DISPUTED)
    review_in_sample(run, [pair for pair in order if pair not in DISPUTED][:20])
    after_queue = estimate_folder(run)
    (run / "reviews.jsonl").unlink()
    cutoff = next(cutoff for cutoff in range(60) if len(set(order[: cutoff + 1]) - DISPUTED) == 21)
    review_in_sample(run, order[:cutoff])
    alone = estimate_folder(run)
    assert (after_queue.reviewed, alone.reviewed, alone.ahead) == (cutoff, cutoff, 0)
    assert (after_queue.accuracy, after_queue.recall) == (alone.accuracy, alone.recall)
    assert after_queue.ahead == len(DISPUTED.intersection(order[cutoff:])) > 0
    assert after_queue.sampled == after_queue.reviewed + after_queue.pending + after_queue.ahead == 60


def test_a_queue_counts_only_when_the_whole_sample_is_reviewed(run: Path) -> None:
    order = draw_sample(run)
    review_in_queue(run, DISPUTED)
    before = estimate_folder(run)
    assert (before.reviewed, before.ahead, before.accuracy.value) == (0, len(DISPUTED.intersection(order)), None)
    review_in_queue(run, set(order) - DISPUTED)
    complete = estimate_folder(run)
    assert (complete.reviewed, complete.ahead, complete.pending) == (60, 0, 0)


def test_a_skipped_pair_does_not_delay_the_following_pairs(run: Path) -> None:
    order = draw_sample(run)
    review_in_queue(run, {order[3], order[40]})
    review_in_sample(run, [*order[:3], *order[4:10], *order[11:20]])
    result = estimate_folder(run)
    assert (result.reviewed, result.ahead, result.pending) == (19, 1, 40)
    (run / "reviews.jsonl").unlink()
    review_in_queue(run, {order[5], order[30]}, "bob")
    review_in_sample(run, [pair for pair in order[:20] if pair != order[5]])
    assert (estimate_folder(run).reviewed, estimate_folder(run).ahead) == (20, 1)


def test_reviews_that_do_not_count_do_not_advance_the_sample(run: Path) -> None:
    order = draw_sample(run)
    review_in_queue(run, {order[5]})
    review_in_sample(run, order[:20], "bob", blind=False)
    assert (estimate_folder(run).reviewed, estimate_folder(run).ahead) == (0, 1)
    assert (estimate_folder(run, "last").reviewed, estimate_folder(run, "last").ahead) == (20, 0)


def test_a_larger_sample_starts_over_if_a_queue_contains_some_of_its_pairs(run: Path) -> None:
    first = draw_sample(run, 30)
    review_in_sample(run, first)
    larger = draw_sample(run, 60)
    assert set(first) < set(larger)
    assert (estimate_folder(run).reviewed, estimate_folder(run).ahead) == (30, 0)
    review_in_queue(run, DISPUTED - set(first))
    waiting = estimate_folder(run)
    assert (waiting.reviewed, waiting.ahead) == (0, len(set(first) | DISPUTED.intersection(larger)))
    review_in_sample(run, [pair for pair in larger if pair not in DISPUTED | set(first)][:10])
    assert estimate_folder(run).accuracy.value is not None
