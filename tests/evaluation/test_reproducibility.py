"""A run's reproducibility is counted, and its sample drawn by a seed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from agent.evaluation.recorded import Difference, Key, sampled
from agent.evaluation.replay import NotRun, Replayed, Tally
from agent.types import ErrorInfo, Status, TestReport

REPORT = TestReport(status=Status.PASSED)
STATUS = Difference("status", "", "passed", "failed")
MESSAGE = Difference("message", "test_a", "1", "2")


def ended(*differing: Difference, pair: str, round: int = 0, cause: str | None = None) -> Replayed:
    return Replayed(pair, round, 1, REPORT, REPORT, differing, cause)  # type: ignore[arg-type]


def test_what_could_not_be_run_is_no_part_of_the_share() -> None:
    tally = Tally()
    for each in (
        ended(pair="a"),
        ended(pair="b"),
        ended(pair="c"),
        ended(STATUS, MESSAGE, pair="d", cause="changed"),
        ended(MESSAGE, pair="e", cause="flaky"),
        NotRun("q", 0, ErrorInfo(type="LockUnavailable", message="")),
    ):
        tally.add(each)
    found = tally.summary()
    assert (found.same, found.different, found.replayed, found.share) == (3, 2, 5, 0.6)
    assert (found.flaky, found.only_messages, found.not_run) == (1, 1, {"LockUnavailable": 1})
    low, high = proportion_confint(3, 5, method="wilson")
    assert found.low is not None
    assert found.high is not None
    assert abs(found.low - low) < 1e-9
    assert abs(found.high - high) < 1e-9


def test_a_pair_counts_once_and_as_the_same_only_when_every_round_is() -> None:
    tally = Tally()
    for round in range(3):
        tally.add(ended(pair="a", round=round))
        tally.add(ended(*([STATUS] if round == 1 else []), pair="b", round=round))
    tally.add(NotRun("a", 3, ErrorInfo(type="LockUnavailable", message="")))
    found = tally.summary()
    assert (found.same, found.different, found.pairs_replayed, found.pairs_same, found.share) == (5, 1, 2, 1, 0.5)
    assert (found.low, found.high) == pytest.approx(proportion_confint(1, 2, method="wilson"), abs=1e-9)


def test_nothing_has_no_share() -> None:
    found = Tally().summary()
    assert (found.replayed, found.share, found.low, found.high) == (0, None, None, None)


KEYS = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 2)), unique=True).map(sorted)


@given(KEYS, st.integers(1, 10), st.integers())
def test_a_sample_has_so_many_pairs_with_all_their_rounds_and_is_the_same_for_a_seed(
    keys: list[tuple[str, int]], size: int, seed: int
) -> None:
    found = sampled(keys, size, seed)
    drawn = {pair for pair, _ in found}
    assert len(drawn) == min(size, len({pair for pair, _ in keys}))
    assert found == [key for key in keys if key[0] in drawn]
    assert found == sampled(keys, size, seed)


def test_another_seed_draws_others() -> None:
    keys = [(str(number), 0) for number in range(1000)]
    assert sampled(keys, 10, 0) != sampled(keys, 10, 1)


def test_only_what_is_drawn_is_asked_about() -> None:
    keys = [(str(number), 0) for number in range(1000)]
    asked: list[Key] = []

    def counts(key: Key) -> bool:
        asked.append(key)
        return int(key[0]) % 2 == 0

    found = sampled(keys, 10, 0, counts)
    assert found == [key for key in keys if key in asked and int(key[0]) % 2 == 0]
    assert len(found) == 10
    assert len(asked) < 100
    assert sampled(keys, 1000, 0, counts) == [key for key in keys if int(key[0]) % 2 == 0]


def test_every_pair_is_as_likely_to_be_drawn() -> None:
    keys = [(str(number), 0) for number in range(6)]
    drawn = Counter(key for seed in range(3000) for key in sampled(keys, 2, seed, lambda key: key[0] != "3"))
    assert ("3", 0) not in drawn
    assert all(1050 < count < 1350 for count in drawn.values())
