"""Reviews given in a queue count in an estimate only as far as the sample's random order was followed."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from agent.evaluation.estimates import RunEstimates, Words, estimate_run, read_reviewed
from agent.evaluation.sources import read_run_labels
from agent.store.reviews import read_sample
from tests.evaluation.runs import annotated, review, sample_of, write_run

# Three quarters of what a queue holds are labelled wrong, and of the rest nothing is.
DISPUTED = {f"p{number}" for number in range(40)}
WRONG = {f"p{number}" for number in range(30)}
ANNOTATIONS = [annotated(f"p{number}", 1) for number in range(200)]
TRUE_ACCURACY = 0.85


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "r", ANNOTATIONS)


def drawn(run: Path, n: int = 60, seed: int = 1) -> list[str]:
    return sample_of(run, ANNOTATIONS, ["label"], n, seed)


def in_queue(run: Path, pairs: set[str], reviewer: str = "ann") -> None:
    review(run, reviewer, {pair: int(pair not in WRONG) for pair in sorted(pairs)}, source="queue")


def in_sample(run: Path, pairs: list[str], reviewer: str = "ann", **more: bool) -> None:
    sample = read_sample(run / "review_sample.json")
    assert sample is not None
    labels = {pair: int(pair not in WRONG) for pair in pairs}
    review(run, reviewer, labels, source="sample", sample=sample.fingerprint, **more)


def estimates(run: Path, words: Words = "blind") -> RunEstimates:
    found = estimate_run(read_run_labels(run).annotator.labels, read_reviewed(run, words))
    assert found is not None
    return found


def test_over_many_samples_a_queue_before_them_does_not_move_the_estimate(run: Path) -> None:
    found = []
    for seed in range(40):
        (run / "reviews.jsonl").unlink(missing_ok=True)
        order = drawn(run, seed=seed)
        in_queue(run, DISPUTED.intersection(order))
        in_sample(run, [pair for pair in order if pair not in DISPUTED][:20])
        found.append(estimates(run))
    assert mean(each.accuracy.value or 0.0 for each in found) == pytest.approx(TRUE_ACCURACY, abs=0.02)
    held = [each for each in found if each.accuracy.interval and each.accuracy.interval.low < TRUE_ACCURACY]
    assert len(held) >= 36


def test_a_second_reviewer_of_a_queue_divides_nobody_on_its_pairs(run: Path) -> None:
    order = drawn(run)
    in_sample(run, order)
    alone = estimates(run)
    against = {pair: int(pair in WRONG) for pair in sorted(DISPUTED.intersection(order))}
    review(run, "bob", against, source="queue")
    both = estimates(run)
    assert (both.tied, both.accuracy, both.recall) == (0, alone.accuracy, alone.recall)
    review(run, "eve", against, source="sample")
    assert estimates(run).tied == len(against)


def test_what_the_sample_has_passed_gives_what_the_sample_alone_gives(run: Path) -> None:
    order = drawn(run)
    in_queue(run, DISPUTED)
    in_sample(run, [pair for pair in order if pair not in DISPUTED][:20])
    after_queue = estimates(run)
    (run / "reviews.jsonl").unlink()
    place = next(place for place in range(60) if len(set(order[: place + 1]) - DISPUTED) == 21)
    in_sample(run, order[:place])
    alone = estimates(run)
    assert (after_queue.reviewed, alone.reviewed, alone.ahead) == (place, place, 0)
    assert (after_queue.accuracy, after_queue.recall) == (alone.accuracy, alone.recall)
    assert after_queue.ahead == len(DISPUTED.intersection(order[place:])) > 0
    assert after_queue.sampled == after_queue.reviewed + after_queue.pending + after_queue.ahead == 60


def test_a_queue_alone_estimates_nothing_until_every_pair_of_the_sample_is_reviewed(run: Path) -> None:
    order = drawn(run)
    in_queue(run, DISPUTED)
    before = estimates(run)
    assert (before.reviewed, before.ahead, before.accuracy.value) == (0, len(DISPUTED.intersection(order)), None)
    in_queue(run, set(order) - DISPUTED)
    complete = estimates(run)
    assert (complete.reviewed, complete.ahead, complete.pending) == (60, 0, 0)


def test_a_pair_that_was_passed_over_does_not_hold_up_those_after_it(run: Path) -> None:
    order = drawn(run)
    in_queue(run, {order[3], order[40]})
    in_sample(run, [*order[:3], *order[4:10], *order[11:20]])
    found = estimates(run)
    assert (found.reviewed, found.ahead, found.pending) == (19, 1, 40)


def test_a_queue_of_one_reviewer_counts_where_another_has_passed(run: Path) -> None:
    order = drawn(run)
    in_queue(run, {order[5], order[30]}, "bob")
    in_sample(run, [pair for pair in order[:20] if pair != order[5]])
    assert (estimates(run).reviewed, estimates(run).ahead) == (20, 1)


def test_who_does_not_count_passes_nothing(run: Path) -> None:
    order = drawn(run)
    in_queue(run, {order[5]})
    in_sample(run, order[:20], "bob", blind=False)
    assert (estimates(run).reviewed, estimates(run).ahead) == (0, 1)
    assert (estimates(run, "last").reviewed, estimates(run, "last").ahead) == (20, 0)


def test_a_larger_sample_begins_anew_where_a_queue_held_some_of_its_pairs(run: Path) -> None:
    first = drawn(run, 30)
    in_sample(run, first)
    larger = drawn(run, 60)
    assert set(first) < set(larger)
    assert (estimates(run).reviewed, estimates(run).ahead) == (30, 0)
    in_queue(run, DISPUTED - set(first))
    waiting = estimates(run)
    assert (waiting.reviewed, waiting.ahead) == (0, len(set(first) | DISPUTED.intersection(larger)))
    in_sample(run, [pair for pair in larger if pair not in DISPUTED | set(first)][:10])
    assert estimates(run).accuracy.value is not None


def test_reviews_from_before_the_source_was_kept_count_as_the_samples(run: Path) -> None:
    order = drawn(run)
    review(run, "ann", {pair: int(pair not in WRONG) for pair in order[:20]})
    in_queue(run, {order[-1]})
    assert (estimates(run).reviewed, estimates(run).ahead) == (20, 1)
