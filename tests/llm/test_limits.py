"""The number of concurrent calls adapts to the server, and rate limits are not exceeded."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.config import RunnerConfig
from agent.llm.base import Call, ScriptedLLM
from agent.llm.limits import START, Limits, read_limit
from tests.llm.simulation import OUTPUT, TOKENS, LiteLLM, Metered, Traffic, make_calls, server
from tests.simulated import run_simulated


def traffic(number: int, serve: Any, **config: Any) -> Traffic:
    return run_simulated(make_calls(number, RunnerConfig(**config), serve))


def most_in_a_minute(starts: list[float]) -> int:
    return max(bisect_left(starts, start + 60) - number for number, start in enumerate(starts))


class TestInFlight:
    def test_the_limit_doubles_each_round_trip_up_to_the_cap(self) -> None:
        result = traffic(400, server(), llm_calls=96)
        seconds = [sum(1 for start in result.starts if second <= start < second + 1) for second in range(6)]
        assert seconds == [8, 16, 32, 64, 96, 96]
        assert result.most == 96

    @pytest.mark.parametrize("spread", [0.0, 0.5])
    def test_random_latencies_do_not_lower_the_limit(self, spread: float) -> None:
        assert traffic(3000, server(spread=spread), llm_calls=128).limit[-1] == 128

    @pytest.mark.parametrize("spread", [0.0, 0.5])
    def test_the_limit_converges_below_the_number_that_the_server_refuses(self, spread: float) -> None:
        result = traffic(10_000, server(most=40, spread=spread))
        assert 30 <= mean(result.limit[1000:]) <= 41
        assert result.refused < 0.01 * 10_000

    @pytest.mark.parametrize("spread", [0.0, 0.5])
    def test_the_limit_converges_to_where_latency_grows_with_the_load(self, spread: float) -> None:
        result = traffic(5000, server(capacity=20, spread=spread))
        assert 15 <= mean(result.limit[2000:]) <= 45

    @pytest.mark.parametrize("share", [0.005, 0.02])
    def test_rare_errors_do_not_lower_the_limit(self, share: float) -> None:
        assert traffic(5000, server(errors=share, spread=0.5)).limit[-1] > 96

    def test_a_server_that_mostly_fails_receives_few_calls(self) -> None:
        assert max(traffic(300, server(errors=0.7)).limit) <= START

    def test_an_unused_limit_does_not_grow(self) -> None:
        limits = Limits(RunnerConfig(sandboxes=1))

        async def call_sequentially() -> None:
            for _ in range(200):
                async with limits.acquire_slot(ScriptedLLM([]), Call("judge", ())) as slot:
                    slot.mark_sent()
                    await asyncio.sleep(1)

        run_simulated(call_sequentially())
        assert (limits.allowed, limits.count_pairs()) == (START, START + 2)

    def test_the_limit_recovers_if_the_model_itself_becomes_slower(self) -> None:
        async def serve(traffic: Traffic) -> Any:
            return await server(seconds=1.0 if len(traffic.starts) < 1000 else 4.0)(traffic)

        result = traffic(6000, serve, llm_calls=64)
        assert min(result.limit[1000:]) <= 2 * START
        assert result.limit[-1] == 64

    def test_a_fixed_limit_does_not_change(self) -> None:
        result = traffic(500, server(most=10, errors=0.1), concurrency=24)
        assert (set(result.limit), result.most) == ({24}, 24)

    def test_models_have_separate_limits_and_a_common_cap(self) -> None:
        limits, inside = Limits(RunnerConfig(concurrency=64, llm_calls=10)), []

        async def make_call(model: ScriptedLLM, number: int) -> None:
            async with limits.acquire_slot(model, Call("judge", ())):
                inside.append(number)
                most.append(len(inside))
                await asyncio.sleep(1)
                inside.remove(number)

        async def call_both() -> None:
            models = [ScriptedLLM([], name=name) for name in "ab"]
            await asyncio.gather(*(make_call(models[number % 2], number) for number in range(60)))

        most: list[int] = []
        run_simulated(call_both())
        assert max(most) == 10


class TestRateLimits:
    @settings(max_examples=25, deadline=None)
    @given(
        rate=st.integers(1, 2000),
        concurrency=st.integers(1, 64),
        seconds=st.floats(0.01, 20),
        errors=st.sampled_from([0.0, 0.5, 0.9]),
    )
    def test_no_minute_exceeds_the_call_limit_by_more_than_one_second_of_calls(
        self, rate: int, concurrency: int, seconds: float, errors: float
    ) -> None:
        serve = server(seconds=seconds, spread=0.5, errors=errors)
        result = traffic(200, serve, concurrency=concurrency, calls_per_minute=rate)
        assert result.most <= concurrency
        assert most_in_a_minute(result.starts) <= rate + rate / 60 + 1

    @settings(max_examples=25, deadline=None)
    @given(rate=st.integers(100, 100_000), concurrency=st.integers(1, 64))
    def test_no_minute_exceeds_the_token_limit_by_more_than_replies_in_flight(
        self, rate: int, concurrency: int
    ) -> None:
        result = traffic(200, server(), concurrency=concurrency, tokens_per_minute=rate)
        assert TOKENS * most_in_a_minute(result.starts) <= rate + rate / 60 + TOKENS + concurrency * OUTPUT

    def test_failed_attempts_use_no_tokens(self) -> None:
        result = traffic(300, server(errors=0.8), concurrency=64, tokens_per_minute=600 * TOKENS)
        assert len(result.starts) > 4 * 300
        assert result.starts[-1] < 100

    def test_cancelled_calls_use_no_quota(self) -> None:
        starts: list[float] = []
        limits = Limits(RunnerConfig(concurrency=16, calls_per_minute=60))

        async def make_call() -> None:
            async with limits.acquire_slot(ScriptedLLM([]), Call("judge", ())):
                starts.append(asyncio.get_running_loop().time())

        async def cancel_six() -> None:
            begin = asyncio.get_running_loop().time()
            waiting = [asyncio.ensure_future(make_call()) for _ in range(9)]
            for waiter in waiting[2:8]:
                await asyncio.sleep(0.1)
                waiter.cancel()
            await waiting[8]
            assert [start - begin for start in starts] == [0, 0, 1]

        run_simulated(cancel_six())

    def test_the_call_limit_is_used_fully(self) -> None:
        result = traffic(1200, server(seconds=0.2), concurrency=64, calls_per_minute=600)
        assert result.starts[-1] == pytest.approx(120, abs=2)

    @pytest.mark.parametrize("steady", [False, True])
    @pytest.mark.parametrize(("calls", "period"), [(60, 60.0), (300, 60.0), (50, 2.0)])
    def test_limits_in_headers_are_respected_and_used_fully(self, calls: int, period: float, steady: bool) -> None:
        number = 6 * calls
        result = traffic(number, Metered(calls, period, steady=steady))
        assert result.refused <= 0.02 * number
        assert result.starts[-1] <= 1.25 * number * period / calls

    @pytest.mark.parametrize(("calls", "number"), [(1, 8), (60, 360), (300, 1800)])
    def test_limits_without_a_reset_are_limits_per_minute(self, calls: int, number: int) -> None:
        result = traffic(number, LiteLLM(calls))
        assert result.refused <= 7 + 0.02 * number  # eight calls are in flight before the first reply
        assert result.starts[-1] <= 1.25 * number * 60 / calls


LIMIT, REMAINING, RESET = (f"x-ratelimit-{name}-requests" for name in ("limit", "remaining", "reset"))


class TestHeaders:
    @pytest.mark.parametrize(
        ("reset", "seconds"),
        [("1s", 1), ("6m0s", 360), ("1h2m3.5s", 3723.5), ("8.64s", 8.64), ("20ms", 0.02), ("12", 12)],
    )
    def test_resets_are_durations_or_seconds(self, reset: str, seconds: float) -> None:
        assert read_limit({LIMIT: "60", REMAINING: "59", RESET: reset}, "requests") == (60, 59, pytest.approx(seconds))

    @pytest.mark.parametrize(
        "hostile",
        [
            *({LIMIT: value} for value in ("0", "-1", "1e999", "9" * 5000, "٣")),
            *({REMAINING: value} for value in ("--1", "61", "nan")),
            *({RESET: value} for value in ("", "-1s", "inf", "9" * 5000 + "s", "1 day", "25h", "2026-11-22T00:00:00Z")),
        ],
    )
    def test_invalid_headers_are_ignored(self, hostile: dict[str, str]) -> None:
        assert read_limit({LIMIT: "60", REMAINING: "59", RESET: "1s", **hostile}, "requests") is None

    def test_the_reset_may_be_missing_and_the_remaining_amount_negative(self) -> None:
        assert read_limit({LIMIT: "300", REMAINING: "-30"}, "requests") == (300, -30, None)

    @given(st.dictionaries(st.sampled_from([LIMIT, REMAINING, RESET]), st.text()))
    def test_any_header_text_is_handled(self, headers: dict[str, str]) -> None:
        result = read_limit(headers, "requests")
        assert result is None or (result[0] >= 1 and result[1] <= result[0] and (result[2] or 0) >= 0)

    def test_no_call_waits_longer_than_a_minute_for_headers_without_quota(self) -> None:
        class Never(Metered):
            def _headers(self, _now: float) -> dict[str, str]:
                return {LIMIT: "1000", REMAINING: "0", RESET: "23h"}

        result = traffic(4, Never(1000, 60, steady=True), concurrency=1)
        assert max(b - a for a, b in zip(result.starts, result.starts[1:], strict=False)) <= 61
