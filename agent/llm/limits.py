"""Limits on concurrent model calls, and on calls and tokens per minute.

The number of concurrent calls adapts like TCP's congestion window (RFC 5681). It doubles in each round trip until the
first sign of overload, and then grows by one per round trip. Each sign of overload reduces it, at most once per round
trip. Signs of overload are rate limit errors, several failures within the time of one round trip, and a latency well
above the latency with few calls in flight. The use of latency follows TCP Vegas and Netflix's concurrency-limits
library (AIMDLimit, Gradient2Limit). The generic cell rate algorithm (ITU-T I.371) spreads calls and tokens evenly over
each minute.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from statistics import median

from agent.config import RunnerConfig
from agent.errors import ModelError, ModelTimeout, ModelUnavailable
from agent.llm.base import LLM, Call, Reply, Wait, get_address
from agent.types import Usage

Notify = Callable[[str, float], None]

START = 8
"""Initial value of an adaptive limit on calls in flight."""
_FEWEST_SAMPLES = 32
_LOW_RATIO, _HIGH_RATIO = 1.5, 2.0
_SLACK = 0.05
_FAILURE_FACTOR = 0.8
_MIN_FAILURES, _MIN_FAILURE_SHARE = 2, 0.1
_BURST_SECONDS = 1.0
_LONGEST_PAUSE = 60.0
_REPORTED_PAUSE = 1.0
_CHARACTERS_PER_TOKEN = 4
_COUNTED = ("requests", "tokens")
_LIMIT_HEADERS = "x-ratelimit-"
_MINUTE, _DAY = 60.0, 86_400.0
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?")
_UNITS = (3600.0, 60.0, 1.0, 0.001)


class Window:
    """The limit on a model's calls in flight. It is `fixed` or adapts to the outcomes of calls.

    Times are in seconds. Calls sent before the latest decrease do not affect the limit.
    """

    def __init__(self, most: int, *, fixed: bool) -> None:
        self.limit = float(most if fixed else min(START, most))
        self._most = most
        self._fixed = fixed
        self._doubling = True
        self._latency_is_low = True
        self._decreased_at = -math.inf
        self._baselines: dict[str, float] = {}
        self._latencies: defaultdict[str, list[float]] = defaultdict(list)
        self._begin_round()

    def record_reply(self, role: str, seconds: float, *, started_at: float, saturated: bool) -> None:
        """Count a reply. `saturated` is true if the limit was reached while the call was in flight."""
        if self._fixed or started_at <= self._decreased_at:
            return
        if saturated and self._latency_is_low:
            self.limit = min(self._most, self.limit + (1.0 if self._doubling else 1.0 / self.limit))
        self._latencies[role].append(seconds)
        self._replies += 1
        if self._replies >= self._round:
            self._evaluate_round(started_at + seconds)

    def record_failure(self, *, rate_limited: bool, started_at: float, now: float) -> None:
        """Count a failed call.

        A rate limit error shrinks the window. Other failures shrink it only if several occur within the time of one
        round trip.
        """
        self._failures += 1
        failing = self._failures >= max(_MIN_FAILURES, _MIN_FAILURE_SHARE * self.limit)
        if not self._fixed and started_at > self._decreased_at and (rate_limited or failing):
            self._shrink(_FAILURE_FACTOR, now)

    def _evaluate_round(self, now: float) -> None:
        """Compare the latencies of a round trip with a baseline for each role.

        Each role needs its own baseline, because reply lengths differ between roles. A baseline is the lowest
        median latency so far. It rises only if the model is also slower with few calls in flight.
        """
        latency = expected = 0.0
        is_small = self.limit <= START
        for role, seconds in self._latencies.items():
            if len(seconds) < _FEWEST_SAMPLES:
                continue
            typical = median(seconds)
            baseline = typical if is_small else min(typical, self._baselines.get(role, typical))
            self._baselines[role] = baseline
            latency += len(seconds) * typical
            expected += len(seconds) * (baseline + _SLACK)
            seconds.clear()
        self._begin_round()
        ratio = latency / expected if expected else 1.0
        self._latency_is_low = ratio <= _LOW_RATIO
        self._doubling = self._latency_is_low and (self._doubling or is_small)
        if ratio > _HIGH_RATIO and self.limit > START:
            self._shrink(max(0.5, _LOW_RATIO / ratio, START / self.limit), now)

    def _shrink(self, share: float, now: float) -> None:
        self.limit = max(1.0, self.limit * share)
        self._doubling = False
        self._decreased_at = now
        self._latencies.clear()
        self._begin_round()

    def _begin_round(self) -> None:
        self._replies = self._failures = 0
        self._round = max(self.limit, _FEWEST_SAMPLES)


class RateLimiter:
    """Spreads calls or their tokens evenly over time.

    In any `t` seconds, the calls may use at most `rate * (t + 1)`, plus the amount of one call. The amount of a call is
    1 or its number of tokens.

    No call waits longer than `longest`. Times are in seconds.
    """

    def __init__(self, rate: float = math.inf, *, longest: float = math.inf) -> None:
        self.rate = rate
        self._longest = longest
        self._free_at = -math.inf
        self._period = 0.0

    def compute_delay(self, now: float) -> float:
        """Return how long the next call must wait."""
        self._free_at = min(self._free_at, now + self._longest)
        return max(0.0, self._free_at - now)

    def consume(self, amount: float, now: float) -> None:
        """Count a call of the given amount that has been sent."""
        self._free_at = max(self._free_at, now - _BURST_SECONDS) + amount / self.rate

    def correct(self, amount: float) -> None:
        """Correct the estimated amount of calls that have been sent.

        `amount` is the actual amount minus the estimated amount.
        """
        self._free_at += amount / self.rate

    def learn(
        self, limit: float, remaining: float, reset: float | None, *, sent: float, age: float, now: float
    ) -> None:
        """Adopt the limit that a server reported `age` seconds ago. `sent` is the amount sent since then.

        The server reported that `remaining` of `limit` was left, and that the full limit would be available after
        `reset` seconds. The remaining amount is spread over that time. The resulting rate is exact for servers that
        reset their limit all at once. For servers that refill their limit steadily, the rate converges to the refill
        rate. Without a `reset`, as in the headers of LiteLLM, the limit is one per minute.
        """
        if reset is None:
            self.rate = limit / _MINUTE
            if remaining < 1:
                self._free_at = max(self._free_at, now + (1 - remaining) / self.rate)
            return
        self._period = max(self._period, reset)
        calls_left, seconds = remaining - sent, reset - age
        if seconds <= 0:
            calls_left, seconds = limit - sent, self._period
        if calls_left >= 1:
            self.rate = calls_left / seconds if seconds else math.inf
        else:
            self.rate = limit / self._period if self._period else math.inf
            self._free_at = max(self._free_at, now + seconds)


class Slot:
    """The slot that a call in flight occupies. The caller reports when the call is sent and how it ends.

    `sent_so_far` counts the calls and tokens sent to the model up to and including this call.
    """

    def __init__(self, limits: _ModelLimits, call: Call) -> None:
        self.role = call.role
        self.tokens = sum(len(message.content) for message in call.messages) / _CHARACTERS_PER_TOKEN
        self.entered_at = self.started_at = _now()
        self.sent_so_far = (0.0, 0.0)
        self._limits = limits
        self._retried = False

    def mark_sent(self) -> None:
        """Mark the call as sent now."""
        self.started_at = _now()

    async def wait_for_retry(self, wait: Wait) -> None:
        """Record a failed attempt, then wait until the next attempt may be made."""
        self._limits.correct_tokens(-self.tokens)
        self._limits.learn(self, wait.limits)
        self._limits.window.record_failure(rate_limited=wait.rate_limited, started_at=self.started_at, now=_now())
        self._retried = True
        await asyncio.sleep(wait.seconds)
        await self._limits.admit(self)
        self.started_at = _now()

    def record_failure(self, error: ModelError) -> None:
        """Record that the model returned no usable reply."""
        self._record_usage(error.usage or Usage())
        if isinstance(error, ModelUnavailable | ModelTimeout):
            self._limits.window.record_failure(rate_limited=False, started_at=self.started_at, now=_now())

    def record_reply(self, reply: Reply) -> None:
        """Record the model's reply."""
        self._record_usage(reply.usage)
        self._limits.learn(self, reply.limits)
        if not self._retried:
            saturated, seconds = self._limits.last_full >= self.entered_at, _now() - self.started_at
            self._limits.window.record_reply(self.role, seconds, started_at=self.started_at, saturated=saturated)

    def _record_usage(self, usage: Usage) -> None:
        self._limits.correct_tokens(usage.input_tokens + usage.output_tokens - self.tokens)


class _ModelLimits:
    """One model's limits: a window, and rate limiters for calls and for tokens.

    Calls and tokens each have a limiter for the configured rate and a limiter that learns from response headers.
    """

    def __init__(self, window: Window, notify: Notify | None, config: RunnerConfig) -> None:
        self.window = window
        self.in_flight = 0
        self.last_full = -math.inf
        self._calls, self._tokens = (
            (RateLimiter(math.inf if rate is None else rate / 60), RateLimiter(longest=_LONGEST_PAUSE))
            for rate in (config.calls_per_minute, config.tokens_per_minute)
        )
        self._sent = (0.0, 0.0)
        self._notify = notify
        self._turn = asyncio.Lock()
        self._admission = asyncio.Lock()
        self._slot_freed = asyncio.Event()

    @property
    def allowed(self) -> int:
        return int(self.window.limit)

    async def enter(self, call: Call) -> Slot:
        """Wait for a free slot and for the rate limiters, one call at a time."""
        async with self._turn:
            while self.in_flight >= self.allowed:
                self._slot_freed.clear()
                await self._slot_freed.wait()
            await self.admit(slot := Slot(self, call))
            self.in_flight += 1
        if self.in_flight >= self.allowed:
            self.last_full = _now()
        return slot

    async def admit(self, slot: Slot) -> None:
        """Wait for the rate limiters, then count the call or retry. A cancelled call is not counted."""
        async with self._admission:
            pause = max(limiter.compute_delay(_now()) for limiter in (*self._calls, *self._tokens))
            if pause > _REPORTED_PAUSE and self._notify is not None:
                self._notify("the rate limit of the model's server", pause)
            if pause > 0:
                await asyncio.sleep(pause)
            for amount, limiters in ((1.0, self._calls), (slot.tokens, self._tokens)):
                for limiter in limiters:
                    limiter.consume(amount, _now())
            slot.sent_so_far = self._sent = (self._sent[0] + 1, self._sent[1] + slot.tokens)

    def leave(self) -> None:
        if self.in_flight >= self.allowed:
            self.last_full = _now()
        self.in_flight -= 1
        self._slot_freed.set()

    def correct_tokens(self, tokens: float) -> None:
        """Correct the estimated number of tokens of a call that has been sent.

        `tokens` is the actual number minus the estimated number.
        """
        for limiter in self._tokens:
            limiter.correct(tokens)

    def learn(self, slot: Slot, headers: Mapping[str, str]) -> None:
        if not headers:
            return
        now = _now()
        for number, (_, limiter) in enumerate((self._calls, self._tokens)):
            if (values := read_limit(headers, _COUNTED[number])) is not None:
                limiter.learn(
                    *values,
                    sent=self._sent[number] - slot.sent_so_far[number],
                    age=max(0.0, now - slot.started_at),
                    now=now,
                )


class Limits:
    """Limits on a run's calls in flight (in total and per model), and on its calls and tokens per minute.

    Each model has its own limits on each server. `config.concurrency` is the number of pairs in progress. With `auto`,
    the limit on calls in flight adapts, and the number of pairs is derived from it. `notify` is called with the reason
    and the number of seconds before each wait of more than one second. Each of the `workers` has `config.sandboxes`
    sandboxes.
    """

    def __init__(self, config: RunnerConfig, notify: Notify | None = None, *, workers: int = 1) -> None:
        self._config = config
        self._sandboxes = config.sandboxes * workers
        self._notify = notify
        self._most = config.llm_calls if config.concurrency == "auto" else min(config.concurrency, config.llm_calls)
        self._all = asyncio.Semaphore(self._most)
        self._models: dict[tuple[str, str], _ModelLimits] = {}

    @property
    def in_flight(self) -> int:
        """Number of calls in flight."""
        return sum(model.in_flight for model in self._models.values())

    @property
    def allowed(self) -> int:
        """Number of calls that may be in flight now."""
        begin = START if self._config.concurrency == "auto" else self._most
        return min(self._most, sum(model.allowed for model in self._models.values()) or begin)

    def count_pairs(self) -> int:
        """Return the number of pairs to keep in progress: enough to keep all call slots and sandboxes busy."""
        concurrency = self._config.concurrency
        return self.allowed + 2 * self._sandboxes if concurrency == "auto" else concurrency

    @asynccontextmanager
    async def acquire_slot(self, model: LLM, call: Call) -> AsyncIterator[Slot]:
        """Wait until a call may be sent, and release its slot afterwards."""
        limits = self._get_limits(model)
        slot = await limits.enter(call)
        try:
            async with self._all:
                yield slot
        finally:
            limits.leave()

    def _get_limits(self, model: LLM) -> _ModelLimits:
        key, config = (get_address(model), str(model.identity().get("model"))), self._config
        if key not in self._models:
            window = Window(self._most, fixed=config.concurrency != "auto")
            self._models[key] = _ModelLimits(window, self._notify, config)
        return self._models[key]


def _now() -> float:
    return asyncio.get_running_loop().time()


def select_limits(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the rate limit headers of a response, in the same form as `Reply.limits`."""
    return {name: value for name, value in headers.items() if name.startswith(_LIMIT_HEADERS)}


def read_limit(headers: Mapping[str, str], unit: str) -> tuple[float, float, float | None] | None:
    """Return the limit, the remaining amount and the seconds until the reset, or None if a header is invalid.

    The headers are `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`. A reset looks like `1m30s`, `20ms` or
    `2.5`. It is None if its header is missing. The remaining amount may be negative.
    """
    limit, remaining = (_parse_count(headers.get(f"x-ratelimit-{name}-{unit}", "")) for name in ("limit", "remaining"))
    if limit is None or remaining is None or not 1 <= limit >= remaining:
        return None
    if (text := headers.get(f"x-ratelimit-reset-{unit}")) is None:
        return limit, remaining, None
    reset = _parse_duration(text)
    return None if reset is None or reset > _DAY else (limit, remaining, reset)


def _parse_count(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?\d{1,9}", text, re.ASCII) else None


def _parse_duration(text: str) -> float | None:
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        return float(text)
    duration = _DURATION.fullmatch(text)
    if not text or duration is None:
        return None
    return sum(float(part) * unit for part, unit in zip(duration.groups(), _UNITS, strict=True) if part)
