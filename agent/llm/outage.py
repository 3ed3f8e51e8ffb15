"""Ends a run whose model's server has gone, before every pair left becomes an error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agent.errors import ModelError, ModelOutage, ModelTimeout, ModelUnavailable
from agent.llm.base import LLM, Call, Reply, by_pair
from agent.llm.gateway import RoleModels

_FEWEST = 20


class SteadyModels:
    """The models of a run, each of which may fail so many calls in a row and no more.

    The limit is twice the calls that are made at once, and at least 20. A reply ends the row, and so does a refusal of
    one pair's text: the server is there. Models are counted apart.
    """

    def __init__(self, models: RoleModels, *, calls_at_once: int) -> None:
        self._models = models
        self._limit = max(_FEWEST, 2 * calls_at_once)
        self._steady: dict[int, _Steady] = {}

    def for_role(self, role: str) -> LLM:
        """Return the role's model with its count."""
        model = self._models.for_role(role)
        return self._steady.setdefault(id(model), _Steady(model, self._limit))

    @property
    def failing(self) -> bool:
        """Whether one of them did not answer its last call."""
        return any(each.failed for each in self._steady.values())


class _Steady:
    def __init__(self, model: LLM, limit: int) -> None:
        self._model = model
        self._limit = limit
        self.failed = 0
        self.by_pair = by_pair(model)

    def identity(self) -> Mapping[str, Any]:
        return self._model.identity()

    async def reply(self, call: Call) -> Reply:
        """Ask the model.

        Raises:
            ModelOutage: too many calls in a row failed.
        """
        if self.failed >= self._limit:
            raise self._outage("the model gave no reply")
        try:
            reply = await self._model.reply(call)
        except (ModelUnavailable, ModelTimeout) as error:
            self.failed += 1
            if self.failed >= self._limit:
                raise self._outage(str(error)) from error
            raise
        except asyncio.CancelledError:  # the pair's time was used up waiting
            self.failed += 1
            raise
        except ModelError:
            self.failed = 0
            raise
        self.failed = 0
        return reply

    def _outage(self, last: str) -> ModelOutage:
        return ModelOutage(f"{last.rstrip('.')}. So ended the last {self.failed} calls, all in a row.")
