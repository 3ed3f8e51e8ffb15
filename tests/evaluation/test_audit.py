"""Tests for audits, which estimate the screener's error rate from tested verdicts."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from functools import cache

import pytest
from statsmodels.stats.proportion import proportion_confint

from agent.evaluation.breakdown import audit_screener, describe_audits
from agent.evaluation.statistics import Interval
from agent.evaluation.tally import Observation, Tally
from agent.pipeline.nodes.asking import is_in_audit_sample
from agent.types import Annotation, ErrorInfo, Verdict

SAYS = {Verdict.MATCH: 1, Verdict.NON_MATCH: 0}


@cache
def make_screened(verdict: Verdict, label: int | None, *, audited: bool = True, **fields: object) -> Annotation:
    values = {"id": "1", "input_sha256": "", "screen_verdict": verdict, "audited": audited, "label": label, **fields}
    return Annotation.model_validate(values)


def count_annotations(annotations: Iterable[Annotation]) -> Tally:
    tally = Tally()
    for annotation in annotations:
        tally.add(Observation(annotation))
    return tally


def simulate_run(pairs: int, wrong: float, share: float, seed: int) -> list[Annotation]:
    """Simulate a run whose screener has the error rate `wrong`. Audits correct the labels of a `share` of pairs."""
    rng = random.Random(seed)
    annotations = []
    for number in range(pairs):
        verdict = rng.choice([Verdict.MATCH, Verdict.NON_MATCH])
        truth = 1 - SAYS[verdict] if rng.random() < wrong else SAYS[verdict]
        audited = is_in_audit_sample(f"{seed}-{number}", 0, share)
        annotations.append(make_screened(verdict, truth if audited else SAYS[verdict], audited=audited))
    return annotations


def test_the_estimate_is_the_share_of_contradicted_verdicts_with_its_wilson_interval() -> None:
    outcomes = (
        [(Verdict.MATCH, 1)] * 60 + [(Verdict.MATCH, 0)] * 9 + [(Verdict.NON_MATCH, 0)] * 30 + [(Verdict.NON_MATCH, 1)]
    )
    unaudited = [make_screened(verdict, SAYS[verdict], audited=False) for verdict in SAYS for _ in range(1000)]
    estimates = audit_screener(count_annotations([*(make_screened(*outcome) for outcome in outcomes), *unaudited]))
    for name, wrong, labelled in (("all", 10, 100), ("match", 9, 69), ("non_match", 1, 31)):
        audit = estimates[name]
        low, high = proportion_confint(wrong, labelled, method="wilson")
        assert (audit.wrong, audit.labelled, audit.share) == (wrong, labelled, wrong / labelled)
        assert (audit.interval.low, audit.interval.high) == (pytest.approx(low), pytest.approx(high))
    assert re.search(r"\b200 \(110 to 349\) .*\b2,000\b", describe_audits(estimates))


def test_audited_pairs_without_a_label_do_not_count_in_the_estimate() -> None:
    error = ErrorInfo(type="ModelTimeout", message="late")
    outcomes = [
        make_screened(Verdict.MATCH, 1),
        make_screened(Verdict.MATCH, None, error=error),
        make_screened(Verdict.NON_MATCH, None),
        make_screened(Verdict.MATCH, None),
    ]
    estimates = audit_screener(count_annotations(outcomes))
    total = estimates["all"]
    assert (total.audited, total.labelled, total.wrong, total.undecided, total.errors) == (4, 1, 0, 2, 1)
    assert estimates["non_match"].share is None
    description = describe_audits(estimates)
    assert description.startswith("4 of 4 ")
    assert "2 undecided" in description
    assert "0 of 1" in description
    assert description.endswith("non_match: unknown")


def test_audits_without_labels_have_no_estimate() -> None:
    estimates = audit_screener(count_annotations([make_screened(Verdict.MATCH, None)]))
    assert "no estimate" in describe_audits(estimates)
    assert (estimates["all"].share, estimates["all"].interval) == (None, Interval(0.0, 1.0))
    assert audit_screener(count_annotations([make_screened(Verdict.MATCH, 1, audited=False)])) == {}


@pytest.mark.parametrize("wrong", [0.02, 0.2])
def test_the_interval_has_its_nominal_coverage(wrong: float) -> None:
    runs = 100
    covered = 0
    for seed in range(runs):
        total = audit_screener(count_annotations(simulate_run(1000, wrong, 0.2, seed)))["all"]
        covered += total.interval.low <= wrong <= total.interval.high
    # expected 95 of 100, minus four standard deviations of 2.2
    assert covered >= 86


def test_each_round_draws_a_separate_audit_sample() -> None:
    ids = [f"pair {number}" for number in range(20_000)]
    first, second = ({pair_id for pair_id in ids if is_in_audit_sample(pair_id, number, 0.02)} for number in (0, 1))
    low, high = proportion_confint(400, 20_000, alpha=1e-6, method="wilson")
    assert low * 20_000 < len(first) < high * 20_000
    assert first != second
    assert len(first & second) < 40
    assert all(is_in_audit_sample(pair_id, 0, 1.0) for pair_id in ids[:100])
    assert not any(is_in_audit_sample(pair_id, 0, 0.0) for pair_id in ids)
    assert is_in_audit_sample("a lone \ud800", 0, 1.0)
