from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from agent.errors import ConfigError, UsageError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.results import Comparisons, RetrievalScores
from agent.retrieval.scores import ScoredQueries, compare_searchers, score_rankings, write_query_scores

QUERIES = ["one", "two", "three", "none", "unjudged"]
GRADES = {"one": {"a": 1}, "two": {"a": 1, "b": 2, "c": 0}, "three": {"c": 1}, "none": {"a": 0}}
PERFECT = {"one": {"a": 1.0}, "two": {"b": 2.0, "a": 1.0}, "three": {"c": 0.1}}
TIED = {"one": {"a": 1.0, "b": 1.0}, "two": {"c": 2.0, "a": 1.0, "b": 1.0}, "none": {"a": 1.0}, "other": {"a": 1.0}}
FEW = BootstrapSettings(resamples=200)


def scored(**options: object) -> ScoredQueries:
    rankings = {"perfect": PERFECT.items(), "tied": TIED.items()}
    return score_rankings("tiny", QUERIES, 3, GRADES, rankings, settings=FEW, **options)  # type: ignore[arg-type]


def test_means_are_over_queries_with_positives_and_the_others_are_counted() -> None:
    found = scored().scores
    assert (found.queries, found.scored, found.without_positives) == (5, 3, 2)
    assert (found.codes, found.relevant, found.judged) == (3, 4, 5)
    perfect, tied = found.searchers
    assert {name: value.mean for name, value in perfect.values.items() if name != "Judged@10"} == dict.fromkeys(
        ("nDCG@10", "RR", "AP", "MMRR", "R@10", "R@100", "Success@1", "Success@5", "Success@10"), 1
    )
    # a or b first, then a or b second; nothing found for the third query
    assert tied.values["RR"].mean == pytest.approx((0.75 + 0.5 + 0) / 3)
    assert (tied.found, tied.median_frank) == (2, 1.75)
    assert tied.without_ranking == 1


def test_all_queries_count_on_request_as_0_where_nothing_is_relevant() -> None:
    some, found = scored().scores, scored(which="all").scores
    assert (found.scored, found.without_positives) == (5, 2)
    for before, after in zip(some.searchers, found.searchers, strict=True):
        assert after.values["AP"].mean == pytest.approx(before.values["AP"].mean * 3 / 5)
    assert found.searchers[1].values["Judged@10"].mean == pytest.approx((0.5 + 1 + 0 + 1 + 0) / 5)


def test_a_value_lies_in_its_interval_and_equal_seeds_give_equal_scores() -> None:
    assert scored() == scored()
    value = scored().scores.searchers[1].values["RR"]
    assert value.interval is not None
    assert value.interval.low <= value.mean <= value.interval.high


def test_metrics_are_named_once_and_by_convention_and_those_of_ir_measures_are_told_apart() -> None:
    found = scored(metrics=["MRR", "RR", "Rprec"]).scores
    assert (found.metrics, found.by_sort_order) == (("RR", "Rprec"), ("Rprec",))
    with pytest.raises(ConfigError):
        scored(metrics=["RR", "what"])


@pytest.mark.slow
def test_searchers_are_compared_per_metric_with_holm_over_its_comparisons() -> None:
    random = np.random.default_rng(0)
    queries = [f"q{number}" for number in range(30)]
    grades = {query: {"right": 1} for query in queries}

    def ranking(good: float) -> list[tuple[str, dict[str, float]]]:
        return [(query, {"right": random.random() + good, "x": random.random(), "y": 0.5}) for query in queries]

    rankings = {"poor": ranking(0), "fair": ranking(0.2), "good": ranking(0.8)}
    of = score_rankings("random", queries, 3, grades, rankings, metrics=["RR", "Success@1"], settings=FEW)
    found = compare_searchers(of)
    assert [(one.metric, one.first, one.second) for one in found.comparisons[:3]] == [
        ("RR", "poor", "fair"), ("RR", "poor", "good"), ("RR", "fair", "good")
    ]  # fmt: skip
    for metric in ("RR", "Success@1"):
        family = [one for one in found.comparisons if one.metric == metric]
        for test in ("bootstrap", "randomisation"):
            p = [getattr(one, f"{test}_p") for one in family]
            adjusted = [getattr(one, f"{test}_adjusted") for one in family]
            assert adjusted == pytest.approx(multipletests(p, method="holm")[1])
    worst = found.comparisons[1]
    means = {one.searcher: one.values["RR"].mean for one in of.scores.searchers}
    assert worst.difference == pytest.approx(means["poor"] - means["good"])
    assert worst.interval is not None
    assert worst.interval.low <= worst.difference <= worst.interval.high < 0
    assert worst.better + worst.worse + worst.equal == 30
    assert [(one.first, one.second) for one in compare_searchers(of, against="poor").comparisons][:2] == [
        ("fair", "poor"), ("good", "poor")
    ]  # fmt: skip


def test_searchers_that_never_differ_have_no_bootstrap_and_a_p_of_1() -> None:
    rankings = {"a": PERFECT.items(), "b": PERFECT.items()}
    [found] = compare_searchers(
        score_rankings("tiny", QUERIES, 3, GRADES, rankings, metrics=["RR"], settings=FEW)
    ).comparisons
    assert (found.interval, found.bootstrap_p, found.bootstrap_adjusted) == (None, None, None)
    assert (found.difference, found.equal, found.randomisation_p) == (0, 3, 1)


def test_a_comparison_needs_two_searchers_and_one_that_was_scored() -> None:
    with pytest.raises(UsageError, match="no searcher bm25 was scored; there are perfect, tied"):
        compare_searchers(scored(), against="bm25")
    alone = score_rankings("tiny", QUERIES, 3, GRADES, {"perfect": PERFECT.items()}, settings=FEW)
    with pytest.raises(UsageError, match="two searchers"):
        compare_searchers(alone)


def test_scores_and_comparisons_are_read_as_they_were_written() -> None:
    of = scored()
    assert RetrievalScores.model_validate_json(of.scores.model_dump_json()) == of.scores
    tests = compare_searchers(of)
    assert Comparisons.model_validate_json(tests.model_dump_json()) == tests


def test_stability_is_computed_on_request_where_test_sets_can_be_made() -> None:
    grades = {**GRADES, "three": {"a": 1, "b": 1, "c": 1}}
    rankings = {"perfect": PERFECT.items(), "tied": TIED.items()}
    of = score_rankings("tiny", QUERIES, 3, grades, rankings, metrics=["MMRR", "RR"], settings=FEW, alpha=True)
    found = of.scores.stability
    assert found is not None
    assert [one.metric for one in found] == ["MMRR", "RR"]
    assert found[0].queries == {2: 1, 3: 1}
    assert scored(alpha=True).scores.model_dump(mode="json")["stability"] == []
    assert "stability" not in scored().scores.model_dump()


def test_the_values_of_each_query_are_written_as_csv_and_as_json_lines(tmp_path: Path) -> None:
    of = scored(metrics=["RR", "AP"])
    write_query_scores(of, as_csv=tmp_path / "scores.csv", as_json=tmp_path / "scores.jsonl")
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert lines[3] == {"searcher": "tied", "query": "one", "relevant": 1, "FRank": 1.5, "RR": 0.75, "AP": 0.75}
    assert lines[5] == {"searcher": "tied", "query": "three", "relevant": 1, "FRank": None, "RR": 0.0, "AP": 0.0}
    assert [{key: "" if value is None else str(value) for key, value in line.items()} for line in lines] == rows


def test_a_benchmark_without_positives_is_refused() -> None:
    with pytest.raises(UsageError, match="none of the 5 queries has a relevant code"):
        score_rankings("tiny", QUERIES, 3, {}, {"a": PERFECT.items()})
