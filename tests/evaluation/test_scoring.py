"""The report has everybody, under names of their own, and tells what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.evaluation.scoring import ScoreReport, build_report
from agent.evaluation.statistics import BootstrapSettings
from tests.evaluation.runs import annotated, make_error, review, sample_of, write_lines, write_run

FAST = BootstrapSettings(resamples=50)


def told(report: ScoreReport) -> str:
    return "\n".join(report.notes)


def gold_file(folder: Path, labels: dict[str, int | None]) -> Path:
    return write_lines(folder / "gold.jsonl", [{"id": pair, "label": label} for pair, label in labels.items()])


def test_a_run_its_rounds_reviewers_and_files_are_scored_and_compared(tmp_path: Path) -> None:
    rounds = [annotated(f"p{n}", int(n % 3 > round % 2), round=round) for n in range(6) for round in range(3)]
    run = write_run(tmp_path / "run", rounds)
    review(run, "ann", {f"p{n}": n % 2 for n in range(6)})
    review(run, "bob", {f"p{n}": n % 3 and 1 for n in range(6)})
    other = write_lines(tmp_path / "other.jsonl", [{"id": f"p{n}", "label": 1} for n in range(6)])
    gold = gold_file(tmp_path, {f"p{n}": int(n > 2) for n in range(6)})
    found = build_report([run, other], gold, settings=FAST)
    assert [(each.kind, each.name) for each in found.annotators] == [
        ("run", "run"),
        ("round", "run round 0"),
        ("round", "run round 1"),
        ("round", "run round 2"),
        ("reviewer", "ann"),
        ("reviewer", "bob"),
        ("majority", "majority of reviewers"),
        ("file", "other"),
    ]
    assert all(each.scores is not None and each.scores.pairs == 6 for each in found.annotators)
    assert [(each.of, each.annotators) for each in found.agreement] == [
        ("all", ("run", "other", "ann", "bob")),
        ("rounds of run", ("run round 0", "run round 1", "run round 2")),
        ("reviewers of run", ("ann", "bob")),
    ]


def test_without_gold_only_agreement_is_told(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": str(n), "votes": [n % 2, 1, n % 2]} for n in range(8)]
    found = build_report([write_lines(tmp_path / "v.jsonl", rows)], None, settings=FAST)
    assert found.gold is None
    assert [each.name for each in found.annotators] == ["v vote 1", "v vote 2", "v vote 3", "majority"]
    assert all(each.scores is None for each in found.annotators)
    (agreement,) = found.agreement
    assert [(pair.first, pair.second, pair.agreement) for pair in agreement.pairwise] == [
        ("v vote 1", "v vote 2", 0.5),
        ("v vote 1", "v vote 3", 1.0),
        ("v vote 2", "v vote 3", 0.5),
    ]


def test_pairs_of_one_side_only_errors_and_null_gold_are_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [annotated("a", 1), annotated("b", 0), make_error("c"), annotated("x", 1)])
    found = build_report([run], gold_file(tmp_path, {"a": 1, "b": None, "c": 1, "y": 0}), settings=FAST)
    scores = found.annotators[0].scores
    assert scores is not None
    assert found.gold is not None
    assert (scores.pairs, scores.labelled, scores.confusion.null_positive) == (2, 1, 1)
    assert (found.gold.labels, found.gold.without_label) == (3, 1)
    assert found.runs[0].errors == {"ModelError": 1}
    assert "run: 1 pair ended in errors (1 ModelError), and counted as without a label" in found.notes
    assert "run: left out, as the labels lack them: 1 pair of gold" in found.notes
    assert "run: left out, as gold lacks them: 2 pairs" in found.notes


def test_few_pairs_and_few_queries_are_warned_of_and_many_are_not(tmp_path: Path) -> None:
    def scored(pairs: int, queries: int) -> str:
        rows = [{"id": str(n), "label": n % 2, "query": str(n % queries)} for n in range(pairs)]
        gold = [{**row, "label": int(n % 10 > 4)} for n, row in enumerate(rows)]
        files = [write_lines(tmp_path / f"{name}.jsonl", each) for name, each in (("labels", rows), ("gold", gold))]
        return told(build_report([files[0]], files[1], settings=FAST))

    few = "labels: 40 pairs are too few for a claim: an accuracy of 0.600 on so many may be 0.446 to 0.737"
    assert scored(40, 40) == few
    assert "labels: with 10 queries, intervals over queries are too narrow" in scored(200, 10)
    assert scored(200, 100) == ""


def test_labels_by_half_are_told_to_want_gold_by_half(tmp_path: Path) -> None:
    annotations, gold = [annotated("a", 1)], gold_file(tmp_path, {"a": 1})
    half = write_run(tmp_path / "half", annotations, pipeline={"criterion": "half"})
    assert "half: labels by the criterion 'half'; gold" in told(build_report([half], gold, settings=FAST))
    exact = write_run(tmp_path / "whole", annotations, pipeline={"criterion": "exact"})
    assert "criterion" not in told(build_report([exact], gold, settings=FAST))


def test_unknown_and_differing_queries_are_told(tmp_path: Path) -> None:
    labels = write_lines(tmp_path / "l.jsonl", [{"id": "a", "label": 1, "query": "q"}, {"id": "b", "label": 1}])
    gold = write_lines(tmp_path / "g.jsonl", [{"id": "a", "label": 1, "query": "other"}, {"id": "b", "label": 1}])
    notes = told(build_report([labels], gold, settings=FAST))
    assert "l: the query of 1 pair is not known" in notes
    assert "the query of 1 pair differs between files" in notes


def test_reviews_in_sight_of_the_label_and_a_stale_sample_are_told(tmp_path: Path) -> None:
    annotations = [annotated(f"p{n}", n % 2) for n in range(12)]
    run = write_run(tmp_path / "run", annotations)
    drawn = sample_of(run, annotations[:-1], ["label"], 6)
    review(run, "ann", dict.fromkeys(drawn, 1), blind=False)
    with pytest.raises(UsageError, match="6 reviews are not blind"):
        build_report([run], None, settings=FAST)
    found = build_report([run], gold_file(tmp_path, dict.fromkeys(drawn, 1)), settings=FAST)
    assert "run: 6 reviews were given with the run's label in view, and left out (without a blind one: 6)" in told(
        found
    )
    assert "the run is not what its sample was drawn from" in told(found)
    assert found.runs[0].estimates is None


def test_gold_made_from_the_labels_scored_is_told_to_flatter(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", [{"id": str(n), "label": n % 2, "votes": [n % 2, 1]} for n in range(6)])
    assert "is both labels and gold" in told(build_report([path], path, settings=FAST))


def test_annotators_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    rows = [{"id": "a", "label": 1}]
    first, second = write_lines(tmp_path / "l.jsonl", rows), write_lines(tmp_path / "x" / "l.jsonl", rows)
    names = [each.name for each in build_report([first, second], None, settings=FAST).annotators]
    assert names == ["l", f"l ({second})", "majority"]


def test_the_same_labels_given_twice_are_not_two_annotators(tmp_path: Path) -> None:
    labels = write_lines(tmp_path / "l.jsonl", [{"id": "a", "label": 1}])
    (link := tmp_path / "link.jsonl").symlink_to(labels)
    for again in (labels, tmp_path / "." / "l.jsonl", link):
        with pytest.raises(UsageError, match="is given twice"):
            build_report([labels, again], None, settings=FAST)


@pytest.mark.parametrize("name", ["labels.jsonl", "annotations.jsonl", "reviews.jsonl"])
def test_a_part_of_a_run_is_not_scored_as_somebodys_labels(tmp_path: Path, name: str) -> None:
    part = write_lines(tmp_path / name, [{"id": "a", "label": 1, "votes": [1, 0]}])
    assert build_report([part], gold_file(tmp_path, {"a": 1}), settings=FAST).annotators
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match=f"is part of a run: give the run's folder, {tmp_path}"):
        build_report([part], gold_file(tmp_path, {"a": 1}), settings=FAST)
