"""An audit estimates the error of the screener, from those verdicts that were tested, with an interval that holds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache

import pytest
from statsmodels.stats.proportion import proportion_confint

from agent.evaluation.breakdown import audit_screener, describe_audits
from agent.evaluation.statistics import Interval
from agent.evaluation.tally import Observation, Tally
from agent.nodes.asking import is_in_audit_sample
from agent.types import Annotation, ErrorInfo, Verdict

SAYS = {Verdict.MATCH: 1, Verdict.NON_MATCH: 0}


@cache
def screened(verdict: Verdict, label: int | None, *, audited: bool = True, **fields: object) -> Annotation:
    given = {"id": "1", "input_sha256": "", "screen_verdict": verdict, "audited": audited, "label": label, **fields}
    return Annotation.model_validate(given)


def counted(annotations: Iterable[Annotation]) -> Tally:
    tally = Tally()
    for annotation in annotations:
        tally.add(Observation(annotation))
    return tally


def run(pairs: int, wrong: float, share: float, seed: int) -> list[Annotation]:
    """A run whose screener errs at a known rate; tests find the truth, and are made of a share of its verdicts."""
    rng = random.Random(seed)
    found = []
    for number in range(pairs):
        verdict = rng.choice([Verdict.MATCH, Verdict.NON_MATCH])
        truth = 1 - SAYS[verdict] if rng.random() < wrong else SAYS[verdict]
        audited = is_in_audit_sample(f"{seed}-{number}", 0, share)
        found.append(screened(verdict, truth if audited else SAYS[verdict], audited=audited))
    return found


def test_the_share_of_contradicted_verdicts_is_the_estimate_with_wilsons_interval() -> None:
    ends = (
        [(Verdict.MATCH, 1)] * 60 + [(Verdict.MATCH, 0)] * 9 + [(Verdict.NON_MATCH, 0)] * 30 + [(Verdict.NON_MATCH, 1)]
    )
    alone = [screened(verdict, SAYS[verdict], audited=False) for verdict in SAYS for _ in range(1000)]
    found = audit_screener(counted([*(screened(*end) for end in ends), *alone]))
    for name, wrong, labelled in (("all", 10, 100), ("match", 9, 69), ("non_match", 1, 31)):
        audit = found[name]
        low, high = proportion_confint(wrong, labelled, method="wilson")
        assert (audit.wrong, audit.labelled, audit.share) == (wrong, labelled, wrong / labelled)
        assert (audit.interval.low, audit.interval.high) == (pytest.approx(low), pytest.approx(high))
    assert "about 200 (110 to 349) of the 2,000 labels" in describe_audits(found)


def test_a_pair_without_a_label_says_nothing_of_the_screener_and_is_counted_apart() -> None:
    error = ErrorInfo(type="ModelTimeout", message="late")
    ends = [
        screened(Verdict.MATCH, 1),
        screened(Verdict.MATCH, None, error=error),
        screened(Verdict.NON_MATCH, None),
        screened(Verdict.MATCH, 0, abstained=True),  # where abstaining counts as 0
    ]
    found = audit_screener(counted(ends))
    whole = found["all"]
    assert (whole.audited, whole.labelled, whole.wrong, whole.undecided, whole.errors) == (4, 1, 0, 2, 1)
    assert found["non_match"].share is None
    words = describe_audits(found)
    assert words.startswith("4 of 4 verdicts audited (2 undecided, 1 ended in errors): tests contradict 0 of 1")
    assert words.endswith("non_match: not known")


def test_without_labels_there_is_no_estimate() -> None:
    found = audit_screener(counted([screened(Verdict.MATCH, None)]))
    assert "no estimate" in describe_audits(found)
    assert (found["all"].share, found["all"].interval) == (None, Interval(0.0, 1.0))
    assert audit_screener(counted([screened(Verdict.MATCH, 1, audited=False)])) == {}


@pytest.mark.parametrize("wrong", [0.02, 0.2])
def test_the_interval_holds_the_true_rate_as_often_as_it_says(wrong: float) -> None:
    runs = 100
    held = 0
    for seed in range(runs):
        whole = audit_screener(counted(run(1000, wrong, 0.2, seed)))["all"]
        held += whole.interval.low <= wrong <= whole.interval.high
    # 95% of 100, give or take four times 2.2
    assert held >= 86


def test_a_share_of_ids_is_drawn_and_each_round_draws_anew() -> None:
    ids = [f"pair {number}" for number in range(20_000)]
    first, second = ({each for each in ids if is_in_audit_sample(each, number, 0.02)} for number in (0, 1))
    low, high = proportion_confint(400, 20_000, alpha=1e-6, method="wilson")
    assert low * 20_000 < len(first) < high * 20_000
    assert first != second
    assert len(first & second) < 40
    assert all(is_in_audit_sample(each, 0, 1.0) for each in ids[:100])
    assert not any(is_in_audit_sample(each, 0, 0.0) for each in ids)
    assert is_in_audit_sample("a lone \ud800", 0, 1.0)
