"""How many model calls are in flight, and how many calls and tokens go out a minute.

The number in flight is determined as TCP does its congestion window (RFC 5681): it doubles each round trip until the
first sign, then grows by one a round trip, and shrinks at most once a round trip. Signs are refusals and, as in TCP
Vegas and Netflix's concurrency-limits (AIMDLimit, Gradient2Limit), latency well above what it is with few in flight.
What may go out a minute goes out evenly, by the generic cell rate algorithm (ITU-T I.371).
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
"""Calls in flight that a run begins with, where the number is determined automatically."""
_FEWEST_SAMPLES = 32
_NEAR, _FAR = 1.5, 2.0
_SLACK = 0.05
_REFUSED = 0.8
_FEWEST_FAILURES, _FAILING = 2, 0.1
_BURST_SECONDS = 1.0
_LONGEST_PAUSE = 60.0
_REPORTED_PAUSE = 1.0
_CHARACTERS_PER_TOKEN = 4
_COUNTED = ("requests", "tokens")
_OF_LIMITS = "x-ratelimit-"
_DAY = 86_400.0
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?")
_UNITS = (3600.0, 60.0, 1.0, 0.001)


class Window:
    """How many calls of one model may be in flight: `limit`, `fixed` or determined by what becomes of them.

    Times are in seconds. Calls that went out before the latest decrease say nothing of the limit as it is.
    """

    def __init__(self, most: int, *, fixed: bool) -> None:
        self.limit = float(most if fixed else min(START, most))
        self._most = most
        self._fixed = fixed
        self._doubling = True
        self._near = True
        self._changed = -math.inf
        self._baselines: dict[str, float] = {}
        self._latencies: defaultdict[str, list[float]] = defaultdict(list)
        self._begin_round()

    def record_reply(self, role: str, seconds: float, *, began: float, saturated: bool) -> None:
        """Count a reply; `saturated` says whether the limit was reached while it was on its way."""
        if self._fixed or began <= self._changed:
            return
        if saturated and self._near:
            self.limit = min(self._most, self.limit + (1.0 if self._doubling else 1.0 / self.limit))
        self._latencies[role].append(seconds)
        self._replies += 1
        if self._replies >= self._round:
            self._evaluate_round(began + seconds)

    def record_failure(self, *, rate_limited: bool, began: float, now: float) -> None:
        """Count a call that was refused, or failed otherwise: a stray failure in a round trip is no sign."""
        self._failures += 1
        failing = self._failures >= max(_FEWEST_FAILURES, _FAILING * self.limit)
        if not self._fixed and began > self._changed and (rate_limited or failing):
            self._shrink(_REFUSED, now)

    def _evaluate_round(self, now: float) -> None:
        """Compare a round trip's latencies with the baselines, by role, as the lengths of replies differ.

        A baseline is the least there was, until it turns out that the model became slower with few in flight, too.
        """
        took = expected = 0.0
        few = self.limit <= START
        for role, seconds in self._latencies.items():
            if len(seconds) < _FEWEST_SAMPLES:
                continue
            typical = median(seconds)
            baseline = typical if few else min(typical, self._baselines.get(role, typical))
            self._baselines[role] = baseline
            took += len(seconds) * typical
            expected += len(seconds) * (baseline + _SLACK)
            seconds.clear()
        self._begin_round()
        ratio = took / expected if expected else 1.0
        self._near = ratio <= _NEAR
        self._doubling = self._near and (self._doubling or few)
        if ratio > _FAR and self.limit > START:
            self._shrink(max(0.5, _NEAR / ratio, START / self.limit), now)

    def _shrink(self, share: float, now: float) -> None:
        self.limit = max(1.0, self.limit * share)
        self._doubling = False
        self._changed = now
        self._latencies.clear()
        self._begin_round()

    def _begin_round(self) -> None:
        self._replies = self._failures = 0
        self._round = max(self.limit, _FEWEST_SAMPLES)


class RateLimiter:
    """Lets so much out a second, evenly: in any `t` seconds no more than `rate * (t + 1)`, and one item more.

    No item waits longer than `longest`. Times are in seconds.
    """

    def __init__(self, rate: float = math.inf, *, longest: float = math.inf) -> None:
        self.rate = rate
        self._longest = longest
        self._free = -math.inf
        self._period = 0.0

    def compute_delay(self, now: float) -> float:
        """Return how long the next item has to wait."""
        self._free = min(self._free, now + self._longest)
        return max(0.0, self._free - now)

    def consume(self, amount: float, now: float) -> None:
        """Count an item that goes out."""
        self._free = max(self._free, now - _BURST_SECONDS) + amount / self.rate

    def correct(self, amount: float) -> None:
        """Count what items took more (or less) than was said when they went out."""
        self._free += amount / self.rate

    def learn(self, limit: float, remaining: float, reset: float, *, sent: float, age: float, now: float) -> None:
        """Go by what a server said `age` seconds ago, since when so much more was `sent`.

        It has `remaining` of `limit` left, and all of it after `reset` seconds. What is left is spread over that time,
        which is right for servers that refill at once, and settles at the rate of those that refill steadily.
        """
        self._period = max(self._period, reset)
        left, seconds = remaining - sent, reset - age
        if seconds <= 0:
            left, seconds = limit - sent, self._period
        if left >= 1:
            self.rate = left / seconds if seconds else math.inf
        else:
            self.rate = limit / self._period if self._period else math.inf
            self._free = max(self._free, now + seconds)


class Slot:
    """One call's place in flight. Whoever makes the call says when it is sent and what becomes of it.

    `before` are the calls and tokens that the model was sent up to this one.
    """

    def __init__(self, limits: _ModelLimits, call: Call) -> None:
        self.role = call.role
        self.tokens = sum(len(message.content) for message in call.messages) / _CHARACTERS_PER_TOKEN
        self.entered = self.began = _now()
        self.before = (0.0, 0.0)
        self._limits = limits
        self._retried = False

    def mark_sent(self) -> None:
        """The call is made now."""
        self.began = _now()

    async def wait_for_retry(self, wait: Wait) -> None:
        """An attempt failed: wait so many seconds, and then until another may be made."""
        self._limits.correct_tokens(-self.tokens)
        self._limits.learn(self, wait.limits)
        self._limits.window.record_failure(rate_limited=wait.rate_limited, began=self.began, now=_now())
        self._retried = True
        await asyncio.sleep(wait.seconds)
        await self._limits.admit(self)
        self.began = _now()

    def record_failure(self, error: ModelError) -> None:
        """The model gave no reply that is of use."""
        self._record_usage(error.usage or Usage())
        if isinstance(error, ModelUnavailable | ModelTimeout):
            self._limits.window.record_failure(rate_limited=False, began=self.began, now=_now())

    def record_reply(self, reply: Reply) -> None:
        """The model answered."""
        self._record_usage(reply.usage)
        self._limits.learn(self, reply.limits)
        if not self._retried:
            saturated, seconds = self._limits.full >= self.entered, _now() - self.began
            self._limits.window.record_reply(self.role, seconds, began=self.began, saturated=saturated)

    def _record_usage(self, usage: Usage) -> None:
        self._limits.correct_tokens(usage.input_tokens + usage.output_tokens - self.tokens)


class _ModelLimits:
    """Keeps one model's limits: a window, and limiters of calls and of tokens, as given and as learnt."""

    def __init__(self, window: Window, notify: Notify | None, config: RunnerConfig) -> None:
        self.window = window
        self.in_flight = 0
        self.full = -math.inf
        self._calls, self._tokens = (
            (RateLimiter(math.inf if rate is None else rate / 60), RateLimiter(longest=_LONGEST_PAUSE))
            for rate in (config.calls_per_minute, config.tokens_per_minute)
        )
        self._sent = (0.0, 0.0)
        self._notify = notify
        self._turn = asyncio.Lock()
        self._admission = asyncio.Lock()
        self._left = asyncio.Event()

    @property
    def allowed(self) -> int:
        return int(self.window.limit)

    async def enter(self, call: Call) -> Slot:
        """Wait for a place and until the call may be made, one call after another."""
        async with self._turn:
            while self.in_flight >= self.allowed:
                self._left.clear()
                await self._left.wait()
            await self.admit(slot := Slot(self, call))
            self.in_flight += 1
        if self.in_flight >= self.allowed:
            self.full = _now()
        return slot

    async def admit(self, slot: Slot) -> None:
        """Wait until a call, or another attempt at it, may be made, and count it; a cancelled waiter is not counted."""
        async with self._admission:
            pause = max(each.compute_delay(_now()) for each in (*self._calls, *self._tokens))
            if pause > _REPORTED_PAUSE and self._notify is not None:
                self._notify("room in the calls or tokens a minute that the model's server allows", pause)
            if pause > 0:
                await asyncio.sleep(pause)
            for amount, limiters in ((1.0, self._calls), (slot.tokens, self._tokens)):
                for each in limiters:
                    each.consume(amount, _now())
            slot.before = self._sent = (self._sent[0] + 1, self._sent[1] + slot.tokens)

    def leave(self) -> None:
        if self.in_flight >= self.allowed:
            self.full = _now()
        self.in_flight -= 1
        self._left.set()

    def correct_tokens(self, tokens: float) -> None:
        """Count tokens that were not known when a call was made; fewer where they are negative."""
        for each in self._tokens:
            each.correct(tokens)

    def learn(self, slot: Slot, headers: Mapping[str, str]) -> None:
        if not headers:
            return
        now = _now()
        for number, (_, learnt) in enumerate((self._calls, self._tokens)):
            if (said := read_limit(headers, _COUNTED[number])) is not None:
                learnt.learn(
                    *said, sent=self._sent[number] - slot.before[number], age=max(0.0, now - slot.began), now=now
                )


class Limits:
    """The limits of a run's calls: those in flight at once, of all models together and of each, and those a minute.

    Limits by the minute are a model's at its server, so each pair of those has its own. `concurrency` is the number of
    pairs in progress, or `auto`: the calls in flight are then determined, and pairs follow. `notify` is called with
    what is waited for and how long where that is more than a second. `workers` have `config`'s sandboxes each.
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
        """Calls in flight."""
        return sum(each.in_flight for each in self._models.values())

    @property
    def allowed(self) -> int:
        """Calls that may be in flight as things stand."""
        begin = START if self._config.concurrency == "auto" else self._most
        return min(self._most, sum(each.allowed for each in self._models.values()) or begin)

    def count_pairs(self) -> int:
        """Return how many pairs are in progress: enough for the calls, and for the sandboxes, which pairs wait for."""
        given = self._config.concurrency
        return self.allowed + 2 * self._sandboxes if given == "auto" else given

    @asynccontextmanager
    async def acquire_slot(self, model: LLM, call: Call) -> AsyncIterator[Slot]:
        """Wait until a call to a model may go out, and hold its place meanwhile."""
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
    """Return what a response's headers say of limits, as `Reply.limits` has it."""
    return {name: value for name, value in headers.items() if name.startswith(_OF_LIMITS)}


def read_limit(headers: Mapping[str, str], what: str) -> tuple[float, float, float] | None:
    """Return limit, what remains of it, and the seconds to its reset, as headers say; None where they do not.

    The headers are `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, a reset as in `1m30s`, `20ms` or `2.5`.
    """
    limit, remaining = (_parse_count(headers.get(f"x-ratelimit-{name}-{what}", "")) for name in ("limit", "remaining"))
    reset = _parse_duration(headers.get(f"x-ratelimit-reset-{what}", ""))
    if limit is None or remaining is None or reset is None or not 1 <= limit >= remaining or reset > _DAY:
        return None
    return limit, remaining, reset


def _parse_count(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None


def _parse_duration(text: str) -> float | None:
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        return float(text)
    duration = _DURATION.fullmatch(text)
    if not text or duration is None:
        return None
    return sum(float(part) * unit for part, unit in zip(duration.groups(), _UNITS, strict=True) if part)
