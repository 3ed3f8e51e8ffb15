from __future__ import annotations

from statistics import fmean

import ir_measures
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.errors import ConfigError
from agent.retrieval.measures import DEFAULT_METRICS, QueryRanking, compute_first_rank, get_metric
from tests.retrieval import plain

CODES = [f"c{number}" for number in range(8)]
GRADES = st.dictionaries(st.sampled_from(CODES), st.integers(0, 3), max_size=8)
WITH_POSITIVES = GRADES.filter(lambda grades: any(grades.values()))
TIED = st.dictionaries(st.sampled_from(CODES), st.sampled_from([0.5, 1.0, 2.0]), max_size=6)


def compute(name: str, scores: dict[str, float], grades: dict[str, int]) -> float:
    return get_metric(name).compute(QueryRanking(scores, grades))


# several relevant snippets tie with each other and with others
@example(
    {"a": 3.0, "b": 3.0, "c": 3.0, "d": 2.0, "e": 1.0, "f": 1.0}, {"a": 1, "d": 1, "f": 1, "b": 0, "e": 0, "unseen": 1}
)
@example({"g": 0.9, "h": 0.7, "i": 0.7, "j": 0.7, "k": 0.2}, {"h": 2, "i": 1, "k": 1, "g": 0})
@given(TIED, WITH_POSITIVES)
def test_a_metric_is_the_mean_of_its_plain_definition_over_all_orders_of_ties(
    scores: dict[str, float], grades: dict[str, int]
) -> None:
    for name, definition in plain.DEFINITIONS.items():
        expected = plain.compute_expectation(definition, scores, grades)
        assert compute(name, scores, grades) == pytest.approx(expected, abs=1e-12), name


@given(TIED, WITH_POSITIVES)
def test_frank_is_the_expected_rank_of_the_first_relevant_snippet_or_none(
    scores: dict[str, float], grades: dict[str, int]
) -> None:
    frank = compute_first_rank(QueryRanking(scores, grades))
    if plain.get_relevant(grades) & scores.keys():
        assert frank == pytest.approx(plain.compute_expectation(plain.get_first_rank, scores, grades), abs=1e-12)
        # by Jensen's inequality, with equality without ties
        assert 1 / frank <= compute("RR", scores, grades) + 1e-12
    else:
        assert frank is None
        assert compute("RR", scores, grades) == 0


@st.composite
def untied(draw: st.DrawFn) -> dict[str, float]:
    """Draw a ranking whose scores differ as float32, the type that trec_eval reads."""
    codes = draw(st.lists(st.sampled_from([f"c{number}" for number in range(60)]), unique=True, min_size=1))
    width = st.floats(-1e6, 1e6, width=32)
    return dict(zip(codes, draw(st.lists(width, min_size=len(codes), max_size=len(codes), unique=True)), strict=True))


@given(
    untied(),
    st.dictionaries(st.sampled_from([f"c{number}" for number in range(60)]), st.integers(0, 3), min_size=1).filter(
        lambda grades: any(grades.values())
    ),
)
def test_without_ties_metrics_equal_those_of_ir_measures(scores: dict[str, float], grades: dict[str, int]) -> None:
    names = (
        "nDCG nDCG@1 nDCG@10 RR RR@10 AP AP@10 R@1 R@10 R@100 P@5 P@100 Success@1 Success@10 Judged@10 Judged@100 Bpref"
    )
    measures = {name: ir_measures.parse_measure(name) for name in names.split()}
    _, results = ir_measures.calc(measures.values(), {"q": grades}, {"q": scores})
    by_measure = {result.measure: result.value for result in results}
    for name, measure in measures.items():
        assert compute(name, scores, grades) == pytest.approx(by_measure[measure], abs=1e-12), name


def test_mmrr_equals_the_example_in_the_appendix_of_cosqa_plus() -> None:
    scores = {"first": 3.0, "second": 2.0, "third": 1.0}
    queries = {"first": 1, "second": 1, "third": 1}, {"first": 1, "second": 1}
    unadjusted = fmean(compute("MMRR_unadjusted", scores, grades) for grades in queries)
    assert unadjusted == pytest.approx((11 / 18 + 3 / 4) / 2)
    assert fmean(compute("MMRR", scores, grades) for grades in queries) == 1


def test_snippets_not_retrieved_lower_recall_ap_and_mmrr_but_not_ap_hits() -> None:
    scores, grades = {"a": 2.0, "b": 1.0}, {"a": 1, "x": 1, "y": 1, "z": 1}
    assert {name: compute(name, scores, grades) for name in ("R@10", "AP", "MMRR", "AP_min@2", "AP_hits", "RR")} == {
        "R@10": 0.25, "AP": 0.25, "MMRR": 0.25, "AP_min@2": 0.5, "AP_hits": 1, "RR": 1
    }  # fmt: skip


def test_large_groups_of_ties_are_supported() -> None:
    scores = {f"c{number}": 0.0 for number in range(5000)}
    grades = dict.fromkeys(list(scores)[:20], 1)
    # each rank is relevant with probability 20 / 5000
    assert compute("P@5", scores, grades) == pytest.approx(0.004)
    assert compute("R@2500", scores, grades) == pytest.approx(0.5)
    assert compute("AP_hits@2500", scores, grades) == pytest.approx(compute("AP@2500", scores, grades) / 0.5, rel=0.1)


@pytest.mark.parametrize("grades", [{}, {"a": 0, "b": 0}])
def test_a_query_without_relevant_snippets_scores_0_in_all_metrics_but_judged(grades: dict[str, int]) -> None:
    scores = {"a": 2.0, "b": 1.0}
    assert all(compute(name, scores, grades) == 0 for name in plain.DEFINITIONS if not name.startswith("Judged"))
    assert compute("Judged@1", scores, grades) == len(grades) / 2


def test_an_empty_ranking_scores_0_in_every_metric() -> None:
    assert all(compute(name, {}, {"a": 1}) == 0 for name in (*plain.DEFINITIONS, *DEFAULT_METRICS, "Rprec"))


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("MRR", "RR"),
        ("MAP", "AP"),
        ("NDCG@10", "nDCG@10"),
        ("Recall@5", "R@5"),
        ("Answered@5", "Success@5"),
        ("ndcg@10", "nDCG@10"),
        ("mrr", "RR"),
    ],
)
def test_aliases_resolve_to_conventional_names(alias: str, name: str) -> None:
    assert get_metric(alias).name == name


def test_other_metrics_are_computed_by_ir_measures_and_break_ties_by_sort_order() -> None:
    metric = get_metric("Rprec")
    assert (metric.name, metric.by_sort_order) == ("Rprec", True)
    assert metric.compute(QueryRanking({"a code": 2.0, "b": 1.0}, {"a code": 1, "z": 1})) == 0.5
    assert not any(get_metric(name).by_sort_order for name in DEFAULT_METRICS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("R", "R@10"),
        ("MMRR@10", "MMRR"),
        ("P@0", "between 1 and"),
        ("P(rel=2)@99999999999", "between 1 and"),
        ("Accuracy", "division by zero"),
        ("nonsense", "nonsense.*nDCG"),
        ("", "nDCG"),
        ("P(rel='x')@5", "invalid param"),
        ("__import__('os')", "nDCG"),
    ],
)
def test_an_unknown_metric_raises_config_error(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_metric(name)
