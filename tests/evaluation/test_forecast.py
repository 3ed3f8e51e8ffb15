"""Forecasts without finished annotations, which are based on prompts and assumptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config import Config, RunnerConfig
from agent.evaluation.forecast import CHARACTERS_PER_TOKEN, Forecast, forecast_run
from agent.runs.spec import RunSpec
from agent.types import Pair
from tests.llm.server import free_port

MODEL = "gpt-4o-mini"


def make_pairs(count: int, queries: int | None = None) -> list[Pair]:
    return [
        Pair(id=str(n), query=f"q {n % (queries or count)}", code=f"def f(x):\n    # {n}\n    return x\n")
        for n in range(count)
    ]


def forecast(pairs: list[Pair], variant: str = "ps_tpg_fa", model: str = MODEL, **runner: Any) -> Forecast:
    config = Config(variant=variant, runner=RunnerConfig(**{"concurrency": 8, **runner}))
    spec = RunSpec.of({"model": model, "base_url": f"http://127.0.0.1:{free_port()}/v1", "config": config})
    prediction = forecast_run(pairs, spec, Path("gone"))
    assert prediction is not None
    return prediction


def test_tokens_and_unclear_pairs_are_assumed() -> None:
    short, long = (
        forecast([Pair(id=f"{n}", query="q", code="x" * length) for n in range(30)]) for length in (100, 1100)
    )
    added = long.roles["screen"].input_tokens - short.roles["screen"].input_tokens
    assert added == pytest.approx(30 * 1000 / CHARACTERS_PER_TOKEN)
    assert [round(role.calls) for role in short.roles.values()] == [30, 10, 10]
    assert short.calls == pytest.approx(50)
    assert short.input_tokens == pytest.approx(sum(role.input_tokens for role in short.roles.values()))
    assert (short.pairs, short.annotations, short.sampled) == (30, 30, 0)
    assert short.cost_usd > 0


def test_a_variant_with_one_call_per_pair_has_an_exact_number_of_calls() -> None:
    assert forecast(make_pairs(40), "single_llm").calls == pytest.approx(40)


def test_a_variant_without_screener_calls_every_role_for_each_pair() -> None:
    roles = forecast(make_pairs(40), "no_screen").roles
    assert [roles[name].calls for name in ("generate_test", "arbitrate")] == pytest.approx([40, 40])


def test_calls_shared_by_pairs_count_once_per_query() -> None:
    roles = forecast(make_pairs(60, queries=6), "cosqa").roles
    assert [roles[name].calls for name in ("judge_intent", "judge")] == pytest.approx([6, 60])


def test_the_mean_of_a_sample_is_extrapolated_to_all_pairs() -> None:
    few, many = (forecast(make_pairs(count), "single_llm") for count in (300, 900))
    assert many.input_tokens == pytest.approx(3 * few.input_tokens, rel=0.01)


def test_the_cost_is_none_if_the_price_is_unknown() -> None:
    prediction = forecast(make_pairs(20), model="unheard-of")
    assert prediction.cost_usd is None
    assert prediction.input_tokens > 0


def test_the_heuristic_costs_nothing() -> None:
    prediction = forecast(make_pairs(20), model="heuristic")
    assert (prediction.input_tokens, prediction.output_tokens, prediction.cost_usd) == (0, 0, 0)
    assert prediction.calls > 20


def test_concurrency_divides_the_time() -> None:
    one, ten = (forecast(make_pairs(40), concurrency=number).seconds for number in (1, 10))
    assert ten == pytest.approx(one / 10)


def test_the_time_with_automatic_concurrency_assumes_the_maximum() -> None:
    auto, most = (
        forecast(make_pairs(40), "single_llm", concurrency=number, llm_calls=20).seconds for number in ("auto", 20)
    )
    assert auto == most > 0


def test_the_number_of_sandboxes_limits_the_speed_of_programs() -> None:
    seconds = forecast(make_pairs(400), "no_screen", concurrency=400).seconds
    assert seconds == pytest.approx(400 * 2 / RunnerConfig().sandboxes)
