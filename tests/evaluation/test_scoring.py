"""Tests for score reports: their annotators, agreement and warnings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
import pytest

from agent.errors import UsageError
from agent.evaluation.scoring import ScoreReport, build_report
from agent.evaluation.statistics import BootstrapSettings
from tests.evaluation.runs import add_reviews, annotate, draw_review_sample, make_error, write_lines, write_run

FAST = BootstrapSettings(resamples=50)


def join_notes(report: ScoreReport) -> str:
    return "\n".join(report.notes)


def write_gold(folder: Path, labels: dict[str, int | None]) -> Path:
    return write_lines(folder / "gold.jsonl", [{"id": pair, "label": label} for pair, label in labels.items()])


def test_runs_rounds_reviewers_and_files_are_scored_and_compared(tmp_path: Path) -> None:
    rounds = [annotate(f"p{n}", int(n % 3 > round % 2), round=round) for n in range(6) for round in range(3)]
    run = write_run(tmp_path / "run", rounds)
    add_reviews(run, "ann", {f"p{n}": n % 2 for n in range(6)})
    add_reviews(run, "bob", {f"p{n}": n % 3 and 1 for n in range(6)})
    other = write_lines(tmp_path / "other.jsonl", [{"id": f"p{n}", "label": 1} for n in range(6)])
    gold = write_gold(tmp_path, {f"p{n}": int(n > 2) for n in range(6)})
    report = build_report([run, other], gold, settings=FAST)
    assert [(annotator.kind, annotator.name) for annotator in report.annotators] == [
        ("run", "run"),
        ("round", "run round 0"),
        ("round", "run round 1"),
        ("round", "run round 2"),
        ("reviewer", "ann"),
        ("reviewer", "bob"),
        ("majority", "majority of reviewers"),
        ("file", "other"),
    ]
    assert all(annotator.scores is not None and annotator.scores.pairs == 6 for annotator in report.annotators)
    assert [(panel.of, panel.annotators) for panel in report.agreement] == [
        ("all", ("run", "other", "ann", "bob")),
        ("rounds of run", ("run round 0", "run round 1", "run round 2")),
        ("reviewers of run", ("ann", "bob")),
    ]


def test_alpha_between_rounds_is_reported_before_and_after_pairs_are_removed(tmp_path: Path) -> None:
    votes = ["1111", "0000", "1110", "1100", "0001", "0111", "1011", "nnn1", "en11"]
    labels = {"1": 1, "0": 0}
    rounds = [
        make_error(f"p{n}", round=round)
        if vote == "e"
        else annotate(f"p{n}", labels.get(vote), round=round, decided_by="judge" if vote in labels else "judge_intent")
        for n, pair_votes in enumerate(votes)
        for round, vote in enumerate(pair_votes)
    ]
    report = build_report([write_run(tmp_path / "run", rounds)], None, min_agreement=0.75, settings=FAST)
    kept = [pair_votes for pair_votes in votes if max(map(pair_votes.count, "10n")) >= 3]
    assert (len(kept), report.runs[0].no_intent) == (7, 1)
    for panel, expected in zip(report.agreement, (votes, kept), strict=True):
        data = [[labels.get(vote, np.nan) for vote in pair_votes] for pair_votes in expected]
        alpha = krippendorff.alpha(reliability_data=np.array(data).T, level_of_measurement="nominal")
        assert (panel.alpha, panel.pairs) == (pytest.approx(alpha), len(expected))


def test_one_round_has_no_agreement_to_require(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [annotate("a", 1)])
    with pytest.raises(UsageError, match="--rounds"):
        build_report([run], write_gold(tmp_path, {"a": 1}), min_agreement=1, settings=FAST)


def test_without_gold_labels_only_agreement_is_reported(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": str(n), "votes": [n % 2, 1, n % 2]} for n in range(8)]
    report = build_report([write_lines(tmp_path / "v.jsonl", rows)], None, settings=FAST)
    assert report.gold is None
    assert [annotator.name for annotator in report.annotators] == ["v vote 1", "v vote 2", "v vote 3", "majority"]
    assert all(annotator.scores is None for annotator in report.annotators)
    (agreement,) = report.agreement
    assert [(pair.first, pair.second, pair.agreement) for pair in agreement.pairwise] == [
        ("v vote 1", "v vote 2", 0.5),
        ("v vote 1", "v vote 3", 1.0),
        ("v vote 2", "v vote 3", 0.5),
    ]


def test_unmatched_pairs_errors_and_null_gold_labels_are_reported(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [annotate("a", 1), annotate("b", 0), make_error("c"), annotate("x", 1)])
    report = build_report([run], write_gold(tmp_path, {"a": 1, "b": None, "c": 1, "y": 0}), settings=FAST)
    scores = report.annotators[0].scores
    assert (scores.pairs, scores.labelled, scores.confusion.null_positive) == (2, 1, 1)
    assert (report.gold.labels, report.gold.without_label) == (3, 1)
    assert report.runs[0].errors == {"ModelError": 1}
    notes = join_notes(report)
    for pattern in (r"run: .*\b1 pair\b.*1 ModelError", r"run: .*\b1 pair\b.*gold file", r"run: .*\b2 pairs\b"):
        assert re.search(f"^{pattern}", notes, re.M)


def test_few_pairs_and_few_queries_are_reported(tmp_path: Path) -> None:
    def join_score_notes(pairs: int, queries: int) -> str:
        rows = [{"id": str(n), "label": n % 2, "query": str(n % queries)} for n in range(pairs)]
        gold = [{**row, "label": int(n % 10 > 4)} for n, row in enumerate(rows)]
        files = [write_lines(tmp_path / f"{name}.jsonl", lines) for name, lines in (("labels", rows), ("gold", gold))]
        return join_notes(build_report([files[0]], files[1], settings=FAST))

    assert re.fullmatch(r"labels: 40 pairs .*\b0\.600\b.*\b0\.446 to 0\.737\b.*", join_score_notes(40, 40))
    assert re.fullmatch(r"labels: .*\b10 queries\b.*", join_score_notes(200, 10))
    assert join_score_notes(200, 100) == ""


def test_labels_by_another_criterion_are_reported(tmp_path: Path) -> None:
    annotations, gold = [annotate("a", 1)], write_gold(tmp_path, {"a": 1})
    half = write_run(tmp_path / "half", annotations, pipeline={"criterion": "half"})
    assert re.match("half: .*'half'", join_notes(build_report([half], gold, settings=FAST)))
    exact = write_run(tmp_path / "whole", annotations, pipeline={"criterion": "exact"})
    assert "criterion" not in join_notes(build_report([exact], gold, settings=FAST))


def test_unknown_and_differing_queries_are_reported(tmp_path: Path) -> None:
    labels = write_lines(tmp_path / "l.jsonl", [{"id": "a", "label": 1, "query": "q"}, {"id": "b", "label": 1}])
    gold = write_lines(tmp_path / "g.jsonl", [{"id": "a", "label": 1, "query": "other"}, {"id": "b", "label": 1}])
    notes = join_notes(build_report([labels], gold, settings=FAST))
    assert re.search(r"^l: .*\b1 pair\b.*\bcluster", notes, re.M)
    assert re.search(r"different queries for 1 pair\b", notes, re.M)


def test_reviews_that_are_not_blind_and_a_stale_sample_are_reported(tmp_path: Path) -> None:
    annotations = [annotate(f"p{n}", n % 2) for n in range(12)]
    run = write_run(tmp_path / "run", annotations)
    sampled_ids = draw_review_sample(run, annotations[:-1], ["label"], 6)
    add_reviews(run, "ann", dict.fromkeys(sampled_ids, 1), blind=False)
    with pytest.raises(UsageError, match=r"\b6 reviews\b.* --reviews last"):
        build_report([run], None, settings=FAST)
    report = build_report([run], write_gold(tmp_path, dict.fromkeys(sampled_ids, 1)), settings=FAST)
    assert re.search(r"^run: .*\b6 reviews\b", join_notes(report), re.M)
    assert "--new-sample" in join_notes(report)
    assert report.runs[0].estimates is None


def test_using_a_file_both_as_labels_and_as_gold_is_reported(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", [{"id": str(n), "label": n % 2, "votes": [n % 2, 1]} for n in range(6)])
    assert join_notes(build_report([path], path, settings=FAST)).startswith(f"{path} ")


def test_annotators_with_the_same_name_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    rows = [{"id": "a", "label": 1}]
    first, second = write_lines(tmp_path / "l.jsonl", rows), write_lines(tmp_path / "x" / "l.jsonl", rows)
    names = [annotator.name for annotator in build_report([first, second], None, settings=FAST).annotators]
    assert names == ["l", f"l ({second})", "majority"]


def test_the_same_labels_cannot_be_passed_twice(tmp_path: Path) -> None:
    labels = write_lines(tmp_path / "l.jsonl", [{"id": "a", "label": 1}])
    (link := tmp_path / "link.jsonl").symlink_to(labels)
    for again in (labels, tmp_path / "." / "l.jsonl", link):
        with pytest.raises(UsageError, match="twice"):
            build_report([labels, again], None, settings=FAST)


@pytest.mark.parametrize("name", ["labels.jsonl", "annotations.jsonl", "reviews.jsonl"])
def test_files_of_a_run_cannot_be_scored_on_their_own(tmp_path: Path, name: str) -> None:
    part = write_lines(tmp_path / name, [{"id": "a", "label": 1, "votes": [1, 0]}])
    assert build_report([part], write_gold(tmp_path, {"a": 1}), settings=FAST).annotators
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match=f"{name}: .* {tmp_path}"):
        build_report([part], write_gold(tmp_path, {"a": 1}), settings=FAST)
