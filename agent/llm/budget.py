"""Limits on what a run spends: dollars, tokens and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Self

from agent.config import RunnerConfig
from agent.deadline import Deadline
from agent.errors import BudgetExceeded
from agent.types import Usage

_WITHOUT = "without a budget"
_WITHOUT_TOKENS = "without runner.max_tokens_total"
_MORE_TOKENS = "with more tokens (-c runner.max_tokens_total=N)"


class Budget:
    """Counts the cost and tokens of all models in a run, and enforces the limits on them.

    Args:
        limit_usd: limit in US dollars.
        max_tokens: limit on the total number of input and output tokens. A call counts as 0 tokens if the server
            reports none.
        deadline: the time at which the run must end.
        before_usd: cost of earlier sessions of the run, or None if unknown. The limit applies to all sessions together.
        before_tokens: tokens used by earlier sessions, or None if unknown.
    """

    def __init__(
        self,
        limit_usd: float | None = None,
        *,
        max_tokens: int | None = None,
        deadline: Deadline | None = None,
        before_usd: float | None = 0.0,
        before_tokens: int | None = 0,
    ) -> None:
        self.limit_usd = limit_usd
        self.max_tokens = max_tokens
        self.deadline = deadline
        self.before_usd = before_usd
        self.before_tokens = before_tokens
        self.spent = Usage()
        self._first_call = asyncio.Lock()
        self._untried = limit_usd is not None

    @classmethod
    def of(cls, config: RunnerConfig) -> Self:
        """Return the budget for a configuration. A deadline given as a duration is measured from now."""
        deadline = None if config.deadline is None else Deadline.of(config.deadline)
        return cls(config.budget_usd, max_tokens=config.max_tokens_total, deadline=deadline)

    def with_spending(self, before_usd: float | None, before_tokens: int | None) -> Self:
        """Return a budget with the same limits for a run whose earlier sessions spent the given amounts."""
        return type(self)(
            self.limit_usd,
            max_tokens=self.max_tokens,
            deadline=self.deadline,
            before_usd=before_usd,
            before_tokens=before_tokens,
        )

    @asynccontextmanager
    async def reserve(self) -> AsyncIterator[None]:
        """Check that the limits allow a call, then enter the block that makes the call.

        With a limit in dollars, calls run one at a time until the first reply, which shows whether a price is known.

        Raises:
            BudgetExceeded: a limit is reached, or it cannot be enforced because the cost or the number of tokens so far
                is unknown.
            DeadlineReached: the deadline has passed.
        """
        if self._untried:
            async with self._first_call:
                if self._untried:
                    self.check()
                    yield
                    self._untried = False
                    return
        self.check()
        yield

    def enforce_deadline(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager that cancels its block at the deadline, and cannot be entered afterwards.

        Raises:
            DeadlineReached: the deadline has passed.
        """
        return nullcontext() if self.deadline is None else self.deadline.enforce()

    def check(self, expected: Usage | None = None) -> None:
        """Check that the limits allow more calls with a total usage of about `expected`.

        Raises:
            BudgetExceeded: see `reserve`.
            DeadlineReached: the deadline has passed.
        """
        if self.deadline is not None:
            self.deadline.check()
        more = expected or Usage()
        if self.max_tokens is not None:
            self._check_tokens(self.max_tokens, more.input_tokens + more.output_tokens)
        if self.limit_usd is not None:
            self._check_cost(self.limit_usd, more.cost_usd)

    def _check_tokens(self, limit: int, more: int) -> None:
        before, tokens = self.before_tokens, self.spent.input_tokens + self.spent.output_tokens
        if before is None:
            raise BudgetExceeded(
                "runner.max_tokens_total cannot be enforced: the number of tokens used by earlier sessions is unknown",
                _WITHOUT_TOKENS,
            )
        if tokens + before + more >= limit:
            earlier = f", {before:,} of them in earlier sessions" if before else ""
            problem = f"does not cover the next calls, which need about {more:,} tokens" if more else "is used up"
            raise BudgetExceeded(
                f"the limit of {limit:,} tokens {problem} ({tokens + before:,} spent{earlier})", _MORE_TOKENS
            )

    def _check_cost(self, limit: float, more: float | None) -> None:
        cost, before = self.spent.cost_usd, self.before_usd
        if cost is None or more is None:
            raise BudgetExceeded(
                "the budget cannot be enforced: no price is known for the model (-c prices=FILE adds one)", _WITHOUT
            )
        if before is None:
            raise BudgetExceeded(
                "the budget cannot be enforced: the cost of earlier sessions is unknown, because no price was known "
                "for their model. Pass one with -c prices=FILE, or use a new run folder: cached replies cost nothing",
                _WITHOUT,
            )
        if cost + before + more >= limit:
            earlier = f", ${before:.4f} of it in earlier sessions" if before else ""
            problem = f"does not cover the next calls, which cost about ${more:.4f}" if more else "is used up"
            raise BudgetExceeded(f"the budget of ${limit:g} {problem} (${cost + before:.4f} spent{earlier})")

    def add(self, usage: Usage | None) -> None:
        """Count the usage of a call."""
        if usage is not None:
            self.spent = self.spent + usage
