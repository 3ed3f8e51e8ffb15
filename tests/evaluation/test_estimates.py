"""Reviewers are annotators of a run, and a probability sample of reviews tells of all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.evaluation.estimates import Estimate, RunEstimates, Stratum, estimate, estimate_run, read_reviewed
from agent.evaluation.labels import majority_of
from agent.evaluation.sources import read_run_labels
from agent.types import Annotation
from tests.evaluation.runs import annotated, make_error, review, sample_of, write_run


def run_of(ones: int, zeros: int) -> list[Annotation]:
    return [
        *(annotated(f"one{number}", 1, "passed") for number in range(ones)),
        *(annotated(f"zero{number}", 0) for number in range(zeros)),
    ]


def estimates(run: Path) -> RunEstimates | None:
    return estimate_run(read_run_labels(run).annotator.labels, read_reviewed(run))


def sampled_run(
    path: Path, annotations: list[Annotation], n: int, by: Sequence[str] = ("decided_by", "label")
) -> list[str]:
    write_run(path, annotations)
    return sample_of(path, annotations, by, n)


def test_a_sample_of_reviews_estimates_the_whole_run_by_stratum(tmp_path: Path) -> None:
    drawn = sampled_run(tmp_path / "r", run_of(60, 140), 50)
    ones, zeros = (sorted(pair for pair in drawn if pair.startswith(name)) for name in ("one", "zero"))
    right = set(ones[3:]) | set(zeros[:2])
    review(tmp_path / "r", "ann", {pair: int(pair in right) for pair in drawn})
    found = estimates(tmp_path / "r")
    assert found is not None
    assert (found.pairs, found.sampled, found.reviewed, found.tied, found.pending) == (200, 50, 50, 0, 0)
    expected = estimate([Stratum(1, 60, len(ones), len(ones) - 3), Stratum(0, 140, len(zeros), 2)])
    for name, each in expected.items():
        same = getattr(found, name)
        assert same.value == pytest.approx(each.value, abs=1e-9)
        assert same.interval is not None
        assert same.interval.low < same.value < same.interval.high


def test_reviews_of_pairs_outside_of_the_sample_do_not_count(tmp_path: Path) -> None:
    drawn = sampled_run(tmp_path / "r", run_of(30, 30), 20)
    review(tmp_path / "r", "ann", {pair: int(pair.startswith("one")) for pair in drawn})
    before = estimates(tmp_path / "r")
    outside = next(f"one{number}" for number in range(30) if f"one{number}" not in drawn)
    review(tmp_path / "r", "ann", {outside: 0})
    assert before is not None
    assert before == estimates(tmp_path / "r")


def test_pairs_not_yet_reviewed_and_ties_are_counted(tmp_path: Path) -> None:
    drawn = sampled_run(tmp_path / "r", run_of(30, 30), 20)
    review(tmp_path / "r", "ann", dict.fromkeys(drawn[:12], 1))
    review(tmp_path / "r", "bob", {drawn[0]: 0, drawn[1]: 1, drawn[2]: None, drawn[12]: None})
    found = estimates(tmp_path / "r")
    assert found is not None
    assert (found.reviewed, found.tied, found.undecided, found.pending, found.reviewers) == (11, 1, 1, 7, 2)


def test_a_stratum_without_a_review_is_named_and_what_needs_it_is_undefined(tmp_path: Path) -> None:
    drawn = sampled_run(tmp_path / "r", [*run_of(30, 30), make_error("broken")], 20)
    review(tmp_path / "r", "ann", {pair: 1 for pair in drawn if pair.startswith("one")})
    found = estimates(tmp_path / "r")
    assert found is not None
    assert found.unseen == {"decided_by=screen, label=0": 30, "decided_by=null, label=null": 1}
    assert found.precision.value == 1.0
    assert found.accuracy == found.recall == Estimate(None, None)


def test_a_sample_by_other_fields_is_split_by_the_runs_label(tmp_path: Path) -> None:
    drawn = sampled_run(tmp_path / "r", run_of(60, 40), 30, by=["stand_ins"])
    review(tmp_path / "r", "ann", dict.fromkeys(drawn, 1))
    found = estimates(tmp_path / "r")
    assert found is not None
    assert found.by == ("stand_ins",)
    assert (found.precision.value, found.recall.value, found.accuracy.value) == (
        1.0,
        pytest.approx(0.6),
        pytest.approx(0.6),
    )


def test_a_sample_of_a_run_of_rounds_is_one_of_their_majorities(tmp_path: Path) -> None:
    rounds = [annotated(f"p{n}", int((n + number) % 3 > 0), round=number) for n in range(60) for number in range(3)]
    rounds += [annotated(f"q{n}", int((n + number) % 3 > 1), round=number) for n in range(60) for number in range(3)]
    drawn = sampled_run(tmp_path / "r", rounds, 8)
    review(tmp_path / "r", "ann", {pair: int(pair.startswith("p")) for pair in drawn})
    found = estimates(tmp_path / "r")
    assert found is not None
    assert (found.pairs, found.reviewed, found.unseen, found.accuracy.value) == (120, 8, {}, 1.0)


def test_strata_without_a_review_are_told_apart_when_another_round_is_scored(tmp_path: Path) -> None:
    labels = {"a": (1, 1, 1), "b": (1, 0, 1), "c": (0, 0, 0), "d": (0, 1, 0)}
    rounds = [
        annotated(pair, label, round=number) for pair, each in labels.items() for number, label in enumerate(each)
    ]
    sampled_run(tmp_path / "r", rounds, 4, by=["label"])
    found = estimate_run(read_run_labels(tmp_path / "r", 1).annotator.labels, read_reviewed(tmp_path / "r"))
    assert found is not None
    assert found.unseen == {"label=1": 1, "label=1, label scored=0": 1, "label=0": 1, "label=0, label scored=1": 1}


def test_of_a_round_that_not_all_pairs_have_the_estimate_is_of_those_that_have_it(tmp_path: Path) -> None:
    further = [annotated(f"one{number}", 0, round=1) for number in range(20)]
    drawn = sampled_run(tmp_path / "r", [*run_of(40, 40), *further], 40, by=["label"])
    review(tmp_path / "r", "ann", {pair: int(pair.startswith("one")) for pair in drawn})
    labels = read_run_labels(tmp_path / "r", 1).annotator.labels
    found = estimate_run(labels, read_reviewed(tmp_path / "r"))
    assert found is not None
    sampled = len(labels.keys() & set(drawn))
    assert 0 < sampled < 20
    assert (found.pairs, found.run_pairs, found.sampled, found.reviewed) == (20, 80, sampled, sampled)
    assert (found.accuracy.value, found.recall.value) == (0.0, 0.0)


def test_nothing_is_estimated_from_a_sample_of_an_earlier_state_of_the_run(tmp_path: Path) -> None:
    annotations = run_of(30, 30)
    drawn = sampled_run(tmp_path / "r", annotations[:-1], 20)
    review(tmp_path / "r", "ann", dict.fromkeys(drawn, 1))
    assert estimates(tmp_path / "r") is not None
    write_run(tmp_path / "longer", annotations)
    for name in ("reviews.jsonl", "review_sample.json"):
        (tmp_path / "longer" / name).write_bytes((tmp_path / "r" / name).read_bytes())
    assert read_reviewed(tmp_path / "longer").is_stale
    assert estimates(tmp_path / "longer") is None


def test_reviewers_are_annotators_and_what_they_gave_blind_counts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", run_of(3, 1))
    assert read_reviewed(run).reviewers == ()
    review(run, "ann", {"one0": 0, "one1": None})
    review(run, "ann", {"one0": 1, "one2": 1}, blind=False)
    review(run, "bob", {"one0": 0})
    review(run, "bob", {"one0": 1, "zero0": 0})
    review(run, "cat", {"zero0": 1}, blind=False)
    found = read_reviewed(run)
    assert [(each.name, dict(each.labels)) for each in found.reviewers] == [
        ("ann", {"one0": 0, "one1": None}),
        ("bob", {"one0": 0, "zero0": 0}),
    ]
    assert majority_of(found.reviewers).labels == {"one0": 0, "one1": None, "zero0": 0}
    assert (found.in_sight, found.corrections, found.never_blind, found.left_out, found.sample) == (0, 2, 2, 4, None)
    last = read_reviewed(run, "last")
    assert [(each.name, dict(each.labels)) for each in last.reviewers] == [
        ("ann", {"one0": 1, "one1": None, "one2": 1}),
        ("bob", {"one0": 1, "zero0": 0}),
        ("cat", {"zero0": 1}),
    ]
    assert (last.in_sight, last.left_out) == (4, 0)
    assert estimates(run) is None


def test_a_correction_in_sight_of_the_evidence_does_not_flatter_the_estimate(tmp_path: Path) -> None:
    drawn = sampled_run(tmp_path / "r", run_of(40, 40), 20)
    wrong = [pair for pair in drawn if pair.startswith("one")][:4]
    review(tmp_path / "r", "ann", {pair: int(pair.startswith("one") and pair not in wrong) for pair in drawn})
    blind = estimates(tmp_path / "r")
    review(tmp_path / "r", "ann", dict.fromkeys(wrong, 1), blind=False)
    assert estimates(tmp_path / "r") == blind
    labels = read_run_labels(tmp_path / "r").annotator.labels
    persuaded = estimate_run(labels, read_reviewed(tmp_path / "r", "last"))
    assert blind is not None
    assert persuaded is not None
    assert (blind.precision.value, persuaded.precision.value) == (0.6, 1.0)
