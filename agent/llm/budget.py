"""Stops a run before it spends more than it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agent.errors import BudgetExceeded, ModelError
from agent.llm.base import LLM, Call, Reply, by_pair
from agent.llm.gateway import RoleModels
from agent.types import Usage

_WITHOUT = "without a budget"


class Budget:
    """Counts what all models of a run cost; `limit_usd` None counts only.

    `before_usd` is what earlier starts of the run cost, None where that is not known: the limit is for all of them.
    While there is no reply yet by which to know whether the limit can be held, it is `untried`.
    """

    def __init__(self, limit_usd: float | None = None, *, before_usd: float | None = 0.0) -> None:
        self.limit_usd = limit_usd
        self.before_usd = before_usd
        self.spent = Usage()
        self.first_call = asyncio.Lock()
        self.untried = limit_usd is not None

    def check(self) -> None:
        """Refuse another call once the limit is reached.

        Raises:
            BudgetExceeded: the limit is reached, or what the replies so far cost is unknown.
        """
        if self.limit_usd is None:
            return
        cost, before = self.spent.cost_usd, self.before_usd
        if cost is None:
            raise BudgetExceeded(
                "the budget cannot be held: no price is known for the model; give one with --prices",
                _WITHOUT,
            )
        if before is None:
            raise BudgetExceeded(
                "the budget cannot be held: what the run cost before is not known, as no price was; give one with "
                "--prices, or begin a new folder, in which replies from the cache cost nothing",
                _WITHOUT,
            )
        if cost + before >= self.limit_usd:
            earlier = f", ${before:.4f} of it before this start" if before else ""
            raise BudgetExceeded(f"the budget of ${self.limit_usd:g} is used up (${cost + before:.4f} spent{earlier})")

    def add(self, usage: Usage | None) -> None:
        """Count what a call cost."""
        if usage is not None:
            self.spent = self.spent + usage


class BudgetedModels:
    """The models of a run, each call checked against the budget and counted."""

    def __init__(self, models: RoleModels, budget: Budget) -> None:
        self._models = models
        self._budget = budget

    def for_role(self, role: str) -> LLM:
        """Return the role's model behind the budget."""
        return _Budgeted(self._models.for_role(role), self._budget)


class _Budgeted:
    def __init__(self, model: LLM, budget: Budget) -> None:
        self._model = model
        self._budget = budget
        self.by_pair = by_pair(model)

    def identity(self) -> Mapping[str, Any]:
        return self._model.identity()

    async def reply(self, call: Call) -> Reply:
        if self._budget.untried:
            async with self._budget.first_call:  # the others wait: without a price the first is the last
                if self._budget.untried:
                    return await self._asked(call)
        return await self._asked(call)

    async def _asked(self, call: Call) -> Reply:
        self._budget.check()
        try:
            reply = await self._model.reply(call)
        except ModelError as error:
            self._budget.add(error.usage)
            raise
        self._budget.add(reply.usage)
        self._budget.untried = False
        return reply
