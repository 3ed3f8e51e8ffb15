"""Answers model calls from the run's earlier replies, the cache, an identical call in flight, or a transport."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from agent.config import RunnerConfig
from agent.errors import AgentError, ModelError
from agent.llm.base import LLM, Call, ModelCall, Reply, Wait, answers_by_pair, get_address
from agent.llm.budget import Budget
from agent.llm.failures import sanitise
from agent.llm.limits import Limits, Slot
from agent.llm.models import Models
from agent.llm.truncation import find_truncation
from agent.tracing import UNTRACED, Tracer
from agent.types import Usage

_log = logging.getLogger(__name__)
_UNLIMITED = 1 << 30


@runtime_checkable
class ReplyCache(Protocol):
    """Stores replies under their cache keys, and shares the replies between runs."""

    def get(self, key: str) -> Reply | None:
        """Return the reply stored under a key, or None if there is none."""

    def put(self, key: str, reply: Reply) -> None:
        """Store a reply.

        Raises:
            StorageError: the reply could not be written.
        """

    def forget(self, key: str) -> None:
        """Remove the reply stored under a key, if any, so that the call is made again."""

    def mark(self, key: str, *, prepaid: bool) -> bool:
        """Set whether a stored reply is prepaid. Return whether the stored value changed."""


class MemoryReplyCache:
    """Stores the `limit` most recently used replies in memory, without their raw bodies."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._replies: OrderedDict[str, Reply] = OrderedDict()

    def get(self, key: str) -> Reply | None:
        """Return the reply stored under a key, or None if there is none."""
        if key in self._replies:
            self._replies.move_to_end(key)
        return self._replies.get(key)

    def put(self, key: str, reply: Reply) -> None:
        """Store a reply, and evict the least recently used reply if the cache is full."""
        self._replies[key] = replace(reply, raw={})
        if len(self._replies) > self._limit:
            self._replies.popitem(last=False)

    def forget(self, key: str) -> None:
        """Remove the reply stored under a key, if any."""
        self._replies.pop(key, None)

    def mark(self, key: str, *, prepaid: bool) -> bool:
        """Set whether a stored reply is prepaid. Return whether the stored value changed."""
        reply = self._replies.get(key)
        if reply is None or reply.prepaid == prepaid:
            return False
        self._replies[key] = replace(reply, prepaid=prepaid)
        return True


class Transport(Protocol):
    """Takes the place of direct calls to models, for example to send calls in batches whose replies arrive later."""

    async def send(self, model: LLM, call: Call, key: str) -> Reply:
        """Return the reply to a call that is not cached.

        Raises:
            ModelError: the model returned no usable reply.
            RunStopped: no call can succeed, or the budget is used up.
            Deferred: the reply will arrive later, in a batch.
        """

    def claim(self, key: str, reply: Reply, cache: ReplyCache) -> bool:
        """Claim a cached prepaid reply, and count the usage of the reply.

        Return False if another pair or round has already claimed the reply.
        """


class Gateway:
    """Answers calls from the cache, from an identical call in flight, or from the model.

    A reused reply has `cached=True`, no usage, and its original usage in `saved`, unless it is prepaid. Errors are
    never cached. Without a cache, the latest replies to shared calls are stored in memory. `recall` takes the key of a
    shared call and returns the reply that earlier pairs of the run received for this call. Recalled replies take
    precedence over cached replies that are not prepaid. Without a `transport`, models are called immediately, within
    `limits` and `budget`. `on_reply` is called with each call and its reply after the reply is cached. Exceptions from
    `on_reply` propagate to the caller. `on_wait` is called with the reason and the number of seconds before each wait
    for a retry. A gateway can be used in only one event loop.
    """

    def __init__(
        self,
        models: Models,
        *,
        transport: Transport | None = None,
        cache: ReplyCache | None = None,
        recall: Callable[[str], Reply | None] | None = None,
        limits: Limits | None = None,
        budget: Budget | None = None,
        on_reply: Callable[[Call, Reply], None] | None = None,
        on_wait: Callable[[str, float], None] | None = None,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self.models = models
        self._limits = limits or Limits(RunnerConfig(concurrency=_UNLIMITED, llm_calls=_UNLIMITED))
        self._budget = budget or Budget()
        self._on_wait = on_wait
        self._transport = transport
        self._cache = cache
        self._shared = MemoryReplyCache() if cache is None else cache
        self._recall = recall
        self._on_reply = on_reply
        self._tracer = tracer
        self._flights: dict[str, asyncio.Future[Reply | AgentError | None]] = {}

    def compute_key(self, call: Call) -> str:
        """Return the cache key (hex) for a call: a hash of everything that determines the reply."""
        return compute_key(self.models.for_role(call.role), call)

    async def ask(self, call: Call, key: str | None = None, *, model: LLM | None = None) -> Reply:
        """Answer one call. `key` is its cache key, if known. `model` overrides the role's model.

        Raises:
            ModelError: the model returned no usable reply.
            PromptTruncated: the model's server did not read the whole prompt.
            RunStopped: no call can succeed, the budget is used up, or the reply could not be stored.
            Deferred: the reply will arrive later, in a batch.
        """
        model = model or self.models.for_role(call.role)
        identity = model.identity()
        name = str(identity.get("model", ""))
        with self._tracer.span("model call", f"chat {name}", operation="chat", model=name, role=call.role) as record:
            record(provider=identity.get("kind"), server=get_address(model) or None, prompt=call.messages)
            key = key or compute_key(model, call)
            reply = await self._answer(model, call, key)
            if (error := find_truncation(call.messages, reply)) is not None:
                self._shared.forget(key)
                raise error
            record(served=reply.model, cached=reply.cached, usage=reply.usage, reply=reply.text)
            record(seconds=reply.seconds, finish_reasons=reply.finish_reason and [reply.finish_reason])
        if self._on_reply is not None:
            self._on_reply(call, reply)
        return reply

    def mark_prepaid(self, model_calls: Iterable[ModelCall]) -> None:
        """Mark the paid replies of a pair in one round as prepaid.

        Their usage is then counted when this round of the pair is repeated.
        """
        for model_call in model_calls:
            if self._cache is not None and not model_call.cached:
                self._cache.mark(model_call.key, prepaid=True)

    async def _answer(self, model: LLM, call: Call, key: str) -> Reply:
        cache = self._shared if call.shared else self._cache
        while True:
            reply = None if cache is None else cache.get(key)
            if call.shared and self._recall is not None and not (reply is not None and reply.prepaid):
                reply = self._recall(key) or reply
            if reply is not None:
                _log.info("%s call for pair %r: cached reply", call.role, call.pair_id)
                if reply.prepaid and cache is not None and self._claim(key, reply, cache):
                    return replace(reply, prepaid=False)
                return _as_cached(reply)
            if key not in self._flights:
                return await self._lead(model, call, key, cache)
            # The shield keeps a cancelled follower from cancelling the future that others wait for.
            outcome = await asyncio.shield(self._flights[key])
            if isinstance(outcome, AgentError):
                raise _without_usage(outcome) from outcome
            if outcome is not None:
                return _as_cached(outcome)

    async def _lead(self, model: LLM, call: Call, key: str, cache: ReplyCache | None) -> Reply:
        """Send the call, and share its outcome with the identical calls that wait for it (followers).

        If the call is cancelled, followers receive None, and one of them sends the call instead.
        """
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            if self._transport is not None:
                reply = await self._transport.send(model, call, key)
            else:
                async with self._limits.acquire_slot(model, call) as slot, self._budget.reserve():
                    reply = await self._call_model(model, call, slot)
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

    async def _call_model(self, model: LLM, call: Call, slot: Slot) -> Reply:
        async def on_wait(wait: Wait) -> None:
            if self._on_wait is not None:
                self._on_wait(wait.reason, wait.seconds)
            await slot.wait_for_retry(wait)

        start = time.monotonic()
        slot.mark_sent()
        try:
            reply = await ask_model(model, replace(call, on_wait=on_wait))
        except ModelError as error:
            self._budget.add(error.usage)
            slot.record_failure(error)
            seconds = time.monotonic() - start
            _log.info(
                "%s call for pair %r: no reply in %.2f s (%s)", call.role, call.pair_id, seconds, type(error).__name__
            )
            raise
        self._budget.add(reply.usage)
        slot.record_reply(reply)
        reply = replace(reply, seconds=round(time.monotonic() - start, 3))
        _log.info(
            "%s call for pair %r: reply from %s in %.2f s, tokens: %d in (%d cached), %d out, calls: %d",
            call.role,
            call.pair_id,
            reply.model,
            reply.seconds,
            reply.usage.input_tokens,
            reply.usage.cached_input_tokens,
            reply.usage.output_tokens,
            reply.usage.calls,
        )
        return reply

    def _claim(self, key: str, reply: Reply, cache: ReplyCache) -> bool:
        """Claim a prepaid reply and count its usage. Return False if it has already been claimed."""
        if self._transport is not None:
            return self._transport.claim(key, reply, cache)
        claimed = cache.mark(key, prepaid=False)
        if claimed:
            self._budget.add(reply.usage)
        return claimed


async def ask_model(model: LLM, call: Call) -> Reply:
    """Return a model's reply.

    An unexpected exception from a user-defined model ends only the pair. One from a built-in model ends the run.

    Raises:
        ModelError: the model returned no usable reply, or a user-defined model raised any other exception.
        RunStopped: no call can succeed.
    """
    name = type(model).__name__
    built_in = type(model).__module__.startswith("agent.")
    try:
        reply = await model.reply(call)
    except Exception as error:
        if built_in or isinstance(error, AgentError):
            raise
        raise ModelError(f"{name} raised {type(error).__name__}: {sanitise(str(error), ())}") from error
    if not isinstance(reply, Reply):
        raise ModelError(f"{name} returned {type(reply).__name__}, not a Reply")
    return reply


def compute_key(model: LLM, call: Call) -> str:
    """Return the cache key (hex) for a call to a model."""
    decisive = {
        "identity": dict(model.identity()),
        "messages": [[message.role, message.content] for message in call.messages],
        "reply": call.reply,
        "sample": call.sample,
        "schema": None if call.schema is None else dict(call.schema),
    }
    if answers_by_pair(model) and not call.shared:
        decisive["call"] = [call.pair_id, call.role, call.turn]
    canonical = json.dumps(decisive, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def _as_cached(reply: Reply) -> Reply:
    return replace(reply, cached=True, prepaid=False, usage=Usage(), saved=reply.usage)


def _without_usage(error: AgentError) -> AgentError:
    """Return a copy of an error with its usage removed.

    A caller that waited for another caller's identical request does not pay for the failed call.
    """
    follower_error = copy.copy(error)
    if isinstance(follower_error, ModelError):
        follower_error.usage = None
    return follower_error
