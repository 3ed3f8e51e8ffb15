"""Wilson's interval is that of statsmodels, and says nothing where nothing is known."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from agent.errors import ExtraMissing, UsageError
from agent.evaluation.statistics import Interval, ratio, wilson


@settings(deadline=None)
@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_is_that_of_statsmodels(counts: tuple[int, int], level: float) -> None:
    found = wilson(*counts, level)
    low, high = proportion_confint(*counts, alpha=1 - level, method="wilson")
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert found.low <= counts[0] / counts[1] <= found.high


def test_an_accuracy_of_92_percent_on_40_pairs_may_be_80_or_97() -> None:
    found = wilson(37, 40)
    assert (round(found.low, 3), round(found.high, 3)) == (0.801, 0.974)


def test_no_item_at_all_says_nothing() -> None:
    assert wilson(0, 0) == Interval(0.0, 1.0)


@pytest.mark.parametrize(("successes", "total", "level"), [(3, 2, 0.95), (-1, 2, 0.95), (1, 2, 0.0), (1, 2, 95.0)])
def test_what_is_no_share_or_no_level_is_refused(successes: int, total: int, level: float) -> None:
    with pytest.raises(ValueError, match=r"successes among|level of confidence"):
        wilson(successes, total, level)


@pytest.mark.parametrize(("library", "use"), [("scipy", lambda: wilson(1, 2)), ("numpy", lambda: ratio(1, 2))])
def test_a_missing_library_is_named_with_its_remedy(library: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.split(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ExtraMissing, match=rf"{library}.* is not installed: pip install 'test-driven-annotator\[stats\]"
    ) as told:
        use()
    assert isinstance(told.value, UsageError)
