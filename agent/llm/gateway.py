"""Where calls go out: cache, merging of equal requests, and the limit on calls in flight."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from agent.errors import AgentError, ModelError
from agent.llm.base import LLM, Call, Reply, by_pair
from agent.types import Usage


class ReplyCache(Protocol):
    """Keeps replies by key, across runs."""

    def get(self, key: str) -> Reply | None:
        """Return the reply stored under a key."""
        ...

    def put(self, key: str, reply: Reply) -> None:
        """Store a reply.

        Raises:
            StorageError: it could not be written.
        """
        ...

    def forget(self, key: str) -> None:
        """Drop the reply stored under a key, if there is one: the call is to be made again."""
        ...


class MemoryReplyCache:
    """Keeps the latest replies, `limit` of them, for as long as it lives; raw bodies are left out."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._replies: OrderedDict[str, Reply] = OrderedDict()

    def get(self, key: str) -> Reply | None:
        """Return the reply stored under a key."""
        if key in self._replies:
            self._replies.move_to_end(key)
        return self._replies.get(key)

    def put(self, key: str, reply: Reply) -> None:
        """Store a reply; the one unused longest goes."""
        self._replies[key] = replace(reply, raw={})
        if len(self._replies) > self._limit:
            self._replies.popitem(last=False)

    def forget(self, key: str) -> None:
        """Drop the reply stored under a key."""
        self._replies.pop(key, None)


class RoleModels(Protocol):
    """Anything that knows the model of each role."""

    def for_role(self, role: str) -> LLM:
        """Return the model that answers this role's calls."""
        ...


class Gateway:
    """Answers calls from the cache, from an equal call in flight, or from the role's model.

    A reply that was not paid for has `cached=True`, no usage, and in `saved` what it cost. Errors are never cached.
    Replies to calls that pairs share are kept while the gateway lives where no cache keeps them; `recall` gives by key
    those that earlier pairs of the run went by, which come before the cache's. `on_reply` is told every reply handed
    out, once the cache holds it; what it raises reaches the caller. `tell` takes the lines that models have for the
    user. One gateway serves one event loop.
    """

    def __init__(
        self,
        models: RoleModels,
        *,
        cache: ReplyCache | None = None,
        recall: Callable[[str], Reply | None] | None = None,
        limit: asyncio.Semaphore | None = None,
        on_reply: Callable[[Call, Reply], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._models = models
        self._cache = cache
        self._shared = MemoryReplyCache() if cache is None else cache
        self._recall = recall
        self._limit = limit
        self._on_reply = on_reply
        self._tell = tell
        self._flights: dict[str, asyncio.Future[Reply | AgentError | None]] = {}

    def key(self, call: Call) -> str:
        """Return the cache key (hex): what decides the reply, and nothing that merely names the call."""
        return _key(self._models.for_role(call.role), call)

    async def ask(self, call: Call) -> Reply:
        """Answer one call.

        Raises:
            ModelError: the model gave no usable reply.
            RunStopped: no call can succeed, or the reply could not be stored.
        """
        reply = await self._answer(call)
        if self._on_reply is not None:
            self._on_reply(call, reply)
        return reply

    async def _answer(self, call: Call) -> Reply:
        model = self._models.for_role(call.role)
        key = _key(model, call)
        cache = self._shared if call.shared else self._cache
        while True:
            stored = self._recall(key) if call.shared and self._recall is not None else None
            if stored is None and cache is not None:
                stored = cache.get(key)
            if stored is not None:
                return _unpaid(stored)
            flight = self._flights.get(key)
            if flight is None:
                return await self._lead(model, call, key, cache)
            # The shield keeps a cancelled follower from cancelling the future that others wait for.
            outcome = await asyncio.shield(flight)
            if isinstance(outcome, AgentError):
                raise _unpaid_error(outcome) from outcome
            if outcome is not None:
                return _unpaid(outcome)

    async def _lead(self, model: LLM, call: Call, key: str, cache: ReplyCache | None) -> Reply:
        """Make the call; followers get its reply or its error, or None when it was given up and one of them leads."""
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            limit: AbstractAsyncContextManager[Any] = nullcontext() if self._limit is None else self._limit
            async with limit:
                started = time.monotonic()
                reply = await model.reply(call if self._tell is None else replace(call, tell=self._tell))
                reply = replace(reply, seconds=round(time.monotonic() - started, 3))
            if cache is not None:
                cache.put(key, reply)
            flight.set_result(reply)
            return reply
        except AgentError as error:
            flight.set_result(error)
            raise
        finally:
            del self._flights[key]
            if not flight.done():
                flight.set_result(None)


def _key(model: LLM, call: Call) -> str:
    decisive = {
        "identity": dict(model.identity()),
        "messages": [[message.role, message.content] for message in call.messages],
        "reply": call.reply,
        "sample": call.sample,
        "schema": None if call.schema is None else dict(call.schema),
    }
    if by_pair(model) and not call.shared:
        decisive["call"] = [call.pair_id, call.role, call.turn]
    canonical = json.dumps(decisive, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def _unpaid(reply: Reply) -> Reply:
    return replace(reply, cached=True, usage=Usage(), saved=reply.usage)


def _unpaid_error(error: AgentError) -> AgentError:
    """Return the leader's error for a follower, which paid nothing for it."""
    same = copy.copy(error)
    if isinstance(same, ModelError):
        same.usage = None
    return same
