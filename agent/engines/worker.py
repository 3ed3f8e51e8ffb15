"""A worker: takes pairs through the pipeline with models and sandboxes of its own, as the process of the run says.

Before a model is called the run's process is asked: there are the cache, the budget and the limits of all workers. So
it holds no state that the run needs, and may be lost at any time.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from typing import Any

from agent.engines import wire
from agent.engines.wire import Message, Parts, Site
from agent.errors import UsageError
from agent.events import Event, Note, PairStarted, Waiting
from agent.history import Recorder
from agent.llm.base import LLM, Call, Reply, close
from agent.llm.gateway import Gateway
from agent.llm.models import Models
from agent.runner import PairRunner
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies.environments import AGAIN
from agent.sandbox.select import choose
from agent.types import Pair

PACKAGE = "test-driven-annotator"
_IDLE = 10.0
_turn: ContextVar[int] = ContextVar("turn")


class Worker:
    """One worker, in a process of its own; all methods are called in one event loop."""

    def __init__(self) -> None:
        self._out: list[Message] = []
        self._news = asyncio.Event()
        self._listeners = 0
        self._parts: Parts | None = None
        self._backend: SandboxBackend | None = None
        self._turns: dict[int, asyncio.Task[None]] = {}

    async def start(self, its_version: str, parts: bytes) -> Site:
        """Make everything ready and say where it is.

        Raises:
            UsageError: another version of the package is here than where the run is, or something is missing.
            SandboxUnavailable: no sandbox can be had and the variant needs one.
        """
        node, here = socket.gethostname(), version(PACKAGE)
        if here != its_version:
            raise UsageError(
                f"the worker on {node} has {PACKAGE} {here}, the run {its_version}: install the same version on all "
                "nodes of the cluster"
            )
        try:
            chosen: Parts = pickle.loads(parts)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"the worker on {node} lacks a module that the run uses: {error}") from error
        self._parts, self._backend = chosen, chosen.backend
        if chosen.pipeline.uses_sandbox and self._backend is None:
            self._backend = await choose(chosen.config.sandbox, lambda note: self._emit(Note(note)))
            self._backend.listen(lambda what: self._emit(Waiting(what, AGAIN)))
        self._gateway = AskingGateway(chosen.models, self._say)
        self._runner = PairRunner(
            chosen.pipeline,
            chosen.fallback,
            self._gateway,
            chosen.prompts,
            chosen.languages,
            self._backend,
            chosen.config,
            None,
            self._emit,
        )
        return Site.of(node, self._backend)

    async def exchange(self, data: bytes) -> bytes:
        """Take in messages, and return those for the run once there are any, or another exchange begins."""
        for kind, number, *more in wire.unpacked(data):
            self._take(kind, number, *more)
        self._listeners += 1
        mine = self._listeners
        self._news.set()  # an earlier exchange ends
        with suppress(TimeoutError):
            async with asyncio.timeout(_IDLE):
                while not self._out and mine == self._listeners:
                    self._news.clear()
                    await self._news.wait()
        out, self._out = self._out, []
        return wire.packed(out)

    async def close(self) -> None:
        """End what is in progress, and close sandboxes and connections."""
        for task in self._turns.values():
            task.cancel()
        if self._turns:
            await asyncio.wait(self._turns.values())
        if self._parts is None:
            return
        if self._backend is not None and self._parts.backend is None:
            await self._backend.close()
        for model in self._parts.models.all():
            await close(model)

    def _take(self, kind: str, number: int, *more: Any) -> None:
        if kind == wire.TURN:
            task = self._turns[number] = asyncio.ensure_future(self._work(number, *more))
            task.add_done_callback(lambda _task: self._turns.pop(number))
        elif kind == wire.DROP:
            if number in self._turns:
                self._turns[number].cancel()
        elif kind == wire.CALL:
            self._gateway.make(number)
        elif kind == wire.ANSWER:
            self._gateway.answered(number, *more)

    async def _work(self, number: int, pair: Pair, round_number: int) -> None:
        _turn.set(number)
        recorder = Recorder(pair)
        outcome: Any
        try:
            outcome = await self._runner.annotate(pair, round_number, recorder)
        except Exception as error:  # noqa: BLE001 - it is raised where the run is
            outcome = wire.sendable(error)
        self._say((wire.END, number, outcome, recorder.history.events))

    def _emit(self, event: Event) -> None:
        if not isinstance(event, PairStarted):
            self._say((wire.EVENT, 0, event))

    def _say(self, message: Message) -> None:
        self._out.append(message)
        self._news.set()


class AskingGateway(Gateway):
    """Has every call allowed, or answered, where the run is; only when told so it asks the model."""

    def __init__(self, models: Models, say: Callable[[Message], None]) -> None:
        super().__init__(models)
        self._say = say
        self._numbers = count()
        self._asked: dict[int, tuple[Call, asyncio.Future[Reply]]] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def ask(self, call: Call, key: str | None = None, *, model: LLM | None = None) -> Reply:  # noqa: ARG002
        """Answer one call.

        Raises:
            ModelError: the model gave no usable reply.
            RunStopped: no call can succeed, the budget is used up, or the reply could not be stored.
        """
        number = next(self._numbers)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[number] = call, future
        bare = replace(call, variables={}, schema=None)
        self._say((wire.ASK, number, _turn.get(), bare, key or self.key(call)))
        try:
            return await future
        except asyncio.CancelledError:
            self._say((wire.GONE, number))
            if number in self._calls:
                self._calls[number].cancel()
            raise
        finally:
            del self._asked[number]

    def make(self, number: int) -> None:
        """Call the model for a question."""
        if number in self._asked:
            task = self._calls[number] = asyncio.ensure_future(self._make(number, self._asked[number][0]))
            task.add_done_callback(lambda _task: self._calls.pop(number))

    def answered(self, number: int, answer: Reply | BaseException) -> None:
        """Take in the answer to a question."""
        _call, future = self._asked.get(number, (None, None))
        if future is None or future.done():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    async def _make(self, number: int, call: Call) -> None:
        made: Reply | BaseException
        try:
            waits = replace(call, on_wait=lambda wait: self._say((wire.WAIT, number, wait)))
            made = await self._models.for_role(call.role).reply(waits)
        except Exception as error:  # noqa: BLE001 - it is raised where the run is
            made = wire.sendable(error)
        self._say((wire.MADE, number, made))
