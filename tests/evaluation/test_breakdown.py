"""Tests for breakdowns by group."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from agent.evaluation.breakdown import (
    Breakdown,
    BreakdownGroup,
    break_down,
    find_mistake,
)
from agent.evaluation.measures import Confusion
from agent.evaluation.tally import Observation, Tally
from agent.types import Annotation, Pair
from tests.evaluation.runs import annotate, make_error

RUN: list[tuple[Annotation, int | None]] = [
    (annotate("screened", 1, screen_verdict="match"), 0),
    (annotate("passed", 1, "passed"), 1),
    (annotate("overruled", 0, "passed", stand_ins=("Db",)), 0),
    (annotate("overruled wrongly", 0, "passed"), 1),
    (annotate("failed", 0, "failed", "snippet"), 0),
    (annotate("forgiven", 1, "failed", "snippet"), 0),
    (annotate("raised", 0, "error", "snippet"), 1),
    (annotate("undecided", None, "passed"), 1),
    (annotate("not run", 0, "not_run"), 1),
    (make_error("broken"), 0),
    (annotate("without gold", 1, "passed"), None),
]


@pytest.fixture(scope="module")
def breakdown() -> Breakdown:
    tally = Tally()
    for annotation, gold in RUN:
        tally.add(Observation(annotation, gold=gold))
    return break_down(tally)


def map_confusions(groups: Iterable[BreakdownGroup]) -> dict[str, Confusion]:
    return {group.name: group.confusion for group in groups}


def test_pairs_are_grouped_by_deciding_step_test_and_stand_ins(breakdown: Breakdown) -> None:
    assert map_confusions(breakdown.decided_by) == {
        "arbitrate": Confusion(tp=1, fp=1, fn=3, tn=2, null_positive=1),
        "screen": Confusion(fp=1),
        "error: ModelError": Confusion(null_negative=1),
    }
    assert map_confusions(breakdown.evidence) == {
        "arbitrate: passed": Confusion(tp=1, fn=1, tn=1, null_positive=1),
        "arbitrate: failed: snippet": Confusion(fp=1, tn=1),
        "arbitrate: error: snippet": Confusion(fn=1),
        "arbitrate: not_run": Confusion(fn=1),
        "screen: match": Confusion(fp=1),
        "error: ModelError": Confusion(null_negative=1),
    }
    assert map_confusions(breakdown.tests) == {
        "passed": Confusion(tp=1, fn=1, tn=1, null_positive=1),
        "failed: snippet": Confusion(fp=1, tn=1),
        "error: snippet": Confusion(fn=1),
        "not_run": Confusion(fn=1),
        "no test": Confusion(fp=1, null_negative=1),
    }
    assert map_confusions(breakdown.stand_ins) == {
        "no stand-ins": Confusion(tp=1, fp=1, fn=3, tn=1, null_positive=1),
        "stand-ins": Confusion(tn=1),
        "no test": Confusion(fp=1, null_negative=1),
    }


def test_overrides_compare_labels_with_their_tests(breakdown: Breakdown) -> None:
    assert {group.name: (group.pairs, group.accuracy) for group in breakdown.overrides} == {
        "followed": (2, 1.0),
        "passed, but 0": (2, 0.5),
        "failed, but 1": (1, 0.0),
    }


def test_mistakes_are_the_false_and_missed_matches() -> None:
    pairs = {annotation.id: Pair(id=annotation.id, query="q", code="c") for annotation, _ in RUN}
    mistakes = [find_mistake(pairs[annotation.id], Observation(annotation, gold=gold)) for annotation, gold in RUN]
    assert [(row.id, row.gold, row.label, row.decided_by, row.test) for row in mistakes if row] == [
        ("screened", 0, 1, "screen", "no test"),
        ("overruled wrongly", 1, 0, "arbitrate", "passed"),
        ("forgiven", 0, 1, "arbitrate", "failed: snippet"),
        ("raised", 1, 0, "arbitrate", "error: snippet"),
        ("undecided", 1, None, "arbitrate", "passed"),
        ("not run", 1, 0, "arbitrate", "not_run"),
    ]


def test_groupings_except_overrides_contain_every_pair_largest_group_first(breakdown: Breakdown) -> None:
    for groups in (breakdown.decided_by, breakdown.evidence, breakdown.tests, breakdown.stand_ins):
        sizes = [group.pairs for group in groups]
        assert sum(sizes) == len(RUN) - 1
        assert sizes == sorted(sizes, reverse=True)
        for group in groups:
            assert group.interval.low <= group.accuracy <= group.interval.high
