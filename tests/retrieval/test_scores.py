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
from agent.retrieval.scores import (
    ScoredQueries,
    average_seeds,
    compare_searchers,
    score_rankings,
    write_query_scores,
)
from agent.retrieval.searchers.trained import DataRecord, TrainingRecord

QUERIES = ["one", "two", "three", "none", "unjudged"]
GRADES = {"one": {"a": 1}, "two": {"a": 1, "b": 2, "c": 0}, "three": {"c": 1}, "none": {"a": 0}}
PERFECT = {"one": {"a": 1.0}, "two": {"b": 2.0, "a": 1.0}, "three": {"c": 0.1}}
TIED = {"one": {"a": 1.0, "b": 1.0}, "two": {"c": 2.0, "a": 1.0, "b": 1.0}, "none": {"a": 1.0}, "other": {"a": 1.0}}
FEW = BootstrapSettings(resamples=200)


def score_tiny(**options: object) -> ScoredQueries:
    rankings = {"perfect": PERFECT.items(), "tied": TIED.items()}
    return score_rankings("tiny", QUERIES, 3, GRADES, rankings, settings=FEW, **options)  # type: ignore[arg-type]


def test_means_include_only_queries_with_relevant_snippets_and_others_are_counted() -> None:
    scores = score_tiny().scores
    assert (scores.queries, scores.scored, scores.without_positives) == (5, 3, 2)
    assert (scores.codes, scores.relevant, scores.judged) == (3, 4, 5)
    perfect, tied = scores.searchers
    assert {name: value.mean for name, value in perfect.values.items() if name != "Judged@10"} == dict.fromkeys(
        ("nDCG@10", "RR", "AP", "MMRR", "R@10", "R@100", "Success@1", "Success@5", "Success@10"), 1
    )
    # a or b first, then a or b second, no result for the third query
    assert tied.values["RR"].mean == pytest.approx((0.75 + 0.5 + 0) / 3)
    assert (tied.found, tied.median_frank) == (2, 1.75)
    assert tied.without_ranking == 1


def test_all_queries_count_on_request_and_score_0_without_relevant_snippets() -> None:
    with_positives, scores = score_tiny().scores, score_tiny(which="all").scores
    assert (scores.scored, scores.without_positives) == (5, 2)
    for before, after in zip(with_positives.searchers, scores.searchers, strict=True):
        assert after.values["AP"].mean == pytest.approx(before.values["AP"].mean * 3 / 5)
    assert scores.searchers[1].values["Judged@10"].mean == pytest.approx((0.5 + 1 + 0 + 1 + 0) / 5)


def test_a_mean_is_in_its_interval_and_equal_seeds_give_equal_scores() -> None:
    assert score_tiny() == score_tiny()
    value = score_tiny().scores.searchers[1].values["RR"]
    assert value.interval is not None
    assert value.interval.low <= value.mean <= value.interval.high


def test_metrics_are_deduplicated_and_those_of_ir_measures_are_flagged() -> None:
    scores = score_tiny(metrics=["MRR", "RR", "Rprec"]).scores
    assert (scores.metrics, scores.by_sort_order) == (("RR", "Rprec"), ("Rprec",))
    with pytest.raises(ConfigError):
        score_tiny(metrics=["RR", "unknown"])


@pytest.mark.slow
def test_searchers_are_compared_per_metric_with_holm_correction() -> None:
    random = np.random.default_rng(0)
    queries = [f"q{number}" for number in range(30)]
    grades = {query: {"right": 1} for query in queries}

    def ranking(good: float) -> list[tuple[str, dict[str, float]]]:
        return [(query, {"right": random.random() + good, "x": random.random(), "y": 0.5}) for query in queries]

    rankings = {"poor": ranking(0), "fair": ranking(0.2), "good": ranking(0.8)}
    scored_queries = score_rankings("random", queries, 3, grades, rankings, metrics=["RR", "Success@1"], settings=FEW)
    comparisons = compare_searchers(scored_queries)
    assert [(comparison.metric, comparison.first, comparison.second) for comparison in comparisons.comparisons[:3]] == [
        ("RR", "poor", "fair"), ("RR", "poor", "good"), ("RR", "fair", "good")
    ]  # fmt: skip
    for metric in ("RR", "Success@1"):
        family = [comparison for comparison in comparisons.comparisons if comparison.metric == metric]
        for test in ("bootstrap", "randomisation"):
            p = [getattr(comparison, f"{test}_p") for comparison in family]
            adjusted = [getattr(comparison, f"{test}_adjusted") for comparison in family]
            assert adjusted == pytest.approx(multipletests(p, method="holm")[1])
    worst = comparisons.comparisons[1]
    means = {comparison.searcher: comparison.values["RR"].mean for comparison in scored_queries.scores.searchers}
    assert worst.difference == pytest.approx(means["poor"] - means["good"])
    assert worst.interval is not None
    assert worst.interval.low <= worst.difference <= worst.interval.high < 0
    assert worst.better + worst.worse + worst.equal == 30
    fair, good = compare_searchers(scored_queries, against="poor").comparisons[:2]
    assert (fair.first, fair.second, good.first, good.second) == ("fair", "poor", "good", "poor")


def test_searchers_that_differ_only_in_their_seed_are_averaged_by_query() -> None:
    def train(seed: int, **settings: object) -> TrainingRecord:
        data = DataRecord(name="pairs", sha256="0" * 64)
        fields = {"settings": {"seed": seed, **settings}, "best_epoch": seed, "finished": seed != 3}
        return TrainingRecord(recipe="biencoder", data=data, **fields)  # type: ignore[arg-type]

    rankings = {"a": PERFECT.items(), "bm25": TIED.items(), "b": TIED.items(), "c": PERFECT.items()}
    rankings |= {"unfinished": PERFECT.items(), "same seed": PERFECT.items()}
    scored = score_rankings("tiny", QUERIES, 3, GRADES, rankings, metrics=["RR"], settings=FEW)  # type: ignore[arg-type]
    trainings = {"a": train(1), "b": train(2), "c": train(2, epochs=9), "unfinished": train(3), "same seed": train(1)}
    averaged, means = average_seeds(scored, trainings)
    ((mean, names),) = means.items()
    assert names == ["a", "b"]
    assert set(averaged.values) == {"bm25", "c", mean, "unfinished", "same seed"}
    first, second = (scored.values[name]["RR"] for name in names)
    assert averaged.values[mean]["RR"] == pytest.approx([(x + y) / 2 for x, y in zip(first, second, strict=True)])
    assert len(compare_searchers(averaged, against=mean).comparisons) == 4


def test_equal_searchers_have_no_bootstrap_interval_and_a_p_value_of_1() -> None:
    rankings = {"a": PERFECT.items(), "b": PERFECT.items()}
    scored_queries = score_rankings("tiny", QUERIES, 3, GRADES, rankings, metrics=["RR"], settings=FEW)
    [comparison] = compare_searchers(scored_queries).comparisons
    assert (comparison.interval, comparison.bootstrap_p, comparison.bootstrap_adjusted) == (None, None, None)
    assert (comparison.difference, comparison.equal, comparison.randomisation_p) == (0, 3, 1)


def test_a_comparison_needs_two_searchers_and_a_scored_baseline() -> None:
    with pytest.raises(UsageError, match=r"bm25.*perfect, tied"):
        compare_searchers(score_tiny(), against="bm25")
    single = score_rankings("tiny", QUERIES, 3, GRADES, {"perfect": PERFECT.items()}, settings=FEW)
    with pytest.raises(UsageError, match=r"\b1\b"):
        compare_searchers(single)


def test_scores_and_comparisons_survive_a_json_round_trip() -> None:
    scored_queries = score_tiny()
    assert RetrievalScores.model_validate_json(scored_queries.scores.model_dump_json()) == scored_queries.scores
    tests = compare_searchers(scored_queries)
    assert Comparisons.model_validate_json(tests.model_dump_json()) == tests


def test_stability_is_computed_on_request_if_there_are_test_sets() -> None:
    grades = {**GRADES, "three": {"a": 1, "b": 1, "c": 1}}
    rankings = {"perfect": PERFECT.items(), "tied": TIED.items()}
    metrics = ["MMRR", "RR"]
    stability = score_rankings(
        "tiny", QUERIES, 3, grades, rankings, metrics=metrics, settings=FEW, alpha=True
    ).scores.stability
    assert stability is not None
    assert [metric_stability.metric for metric_stability in stability] == metrics
    assert stability[0].queries == {2: 1, 3: 1}
    assert score_tiny(alpha=True).scores.model_dump(mode="json")["stability"] == []
    assert "stability" not in score_tiny().scores.model_dump()


def test_query_scores_are_written_as_csv_and_json_lines(tmp_path: Path) -> None:
    scored_queries = score_tiny(metrics=["RR", "AP"])
    write_query_scores(scored_queries, as_csv=tmp_path / "scores.csv", as_json=tmp_path / "scores.jsonl")
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert lines[3] == {"searcher": "tied", "query": "one", "relevant": 1, "FRank": 1.5, "RR": 0.75, "AP": 0.75}
    assert lines[5] == {"searcher": "tied", "query": "three", "relevant": 1, "FRank": None, "RR": 0.0, "AP": 0.0}
    assert [{key: "" if value is None else str(value) for key, value in line.items()} for line in lines] == rows


def test_a_benchmark_without_relevant_snippets_raises_usage_error() -> None:
    with pytest.raises(UsageError, match=r"tiny.*\b5\b"):
        score_rankings("tiny", QUERIES, 3, {}, {"a": PERFECT.items()})
