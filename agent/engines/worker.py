"""A worker: takes pairs through the pipeline with models and sandboxes of its own, as the process of the run says.

Before a model is called the run's process is asked: it has the cache, the budget and the limits of all workers. So a
worker holds nothing that the run needs, and may be lost at any time. The two send each other messages: the name of
what is to be done at the other end, a turn (a pair in a round) or a question by its number, and more.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import count
from typing import Any

from agent.errors import AgentError, UsageError
from agent.events import Event, Note, PairStarted, Waiting
from agent.history import Recorder
from agent.llm.base import LLM, Call, Reply, Wait, close
from agent.llm.gateway import Gateway, ask_model
from agent.llm.models import Models
from agent.sandbox.base import SandboxBackend, SandboxLimits
from agent.sandbox.dependencies.environments import REPORT_INTERVAL
from agent.sandbox.select import choose
from agent.tracing import export_traces
from agent.types import Pair

PACKAGE = "test-driven-annotator"
Message = tuple[Any, ...]
_turn: ContextVar[int] = ContextVar("turn")


@dataclass(frozen=True)
class SandboxInfo:
    """Where programs run: the node, and name, description and limits of its sandboxes' backend."""

    node: str = ""
    name: str | None = None
    description: Mapping[str, str] = field(default_factory=dict)
    limits: SandboxLimits | None = None

    @classmethod
    def of(cls, backend: SandboxBackend | None, node: str = "") -> SandboxInfo:
        """Return where programs run with a backend."""
        return cls(node) if backend is None else cls(node, backend.name, dict(backend.describe()), backend.limits)


class Worker:
    """One worker, in a process of its own; all methods are called in one event loop."""

    def __init__(self) -> None:
        self._out: list[Message] = []
        self._news = asyncio.Event()
        self._ends = AsyncExitStack()
        self._turns: dict[int, asyncio.Task[None]] = {}

    async def start(self, its_version: str, parts: bytes) -> SandboxInfo:
        """Make everything ready, and say where it is.

        `parts` are models, the user's backend or None, settings by which one is chosen or None, those of tracing, and a
        runner's maker.

        Raises:
            UsageError: another version of the package is here than where the run is, or something is missing.
            SandboxUnavailable: no sandbox can be had and the variant needs one.
        """
        node, here = socket.gethostname(), version(PACKAGE)
        if here != its_version:
            raise UsageError(f"{node} has {PACKAGE} {here}, the run {its_version}: install the same on all nodes")
        try:
            models, backend, config, tracing, make = pickle.loads(parts)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"{node} lacks a module that the run uses: {error}") from error
        # this node's own variables may switch LangSmith on
        self._ends.enter_context(export_traces(tracing, lambda note: self._emit(Note(note))))
        for model in models.list_models():
            self._ends.push_async_callback(close, model)
        if config is not None:
            backend = await choose(config, lambda note: self._emit(Note(note)))
            backend.listen(lambda what: self._emit(Waiting(what, REPORT_INTERVAL)))
            self._ends.push_async_callback(backend.close)
        self._gateway = RemoteGateway(models, self._send)
        self._runner = make(gateway=self._gateway, backend=backend, listener=self._emit)
        return SandboxInfo.of(backend, node)

    async def messages(self) -> bytes:
        """Return messages for the run once there are any."""
        await self._news.wait()
        self._news.clear()
        out, self._out = self._out, []
        return pickle.dumps(out)  # Ray's own pickler takes several times as long

    def receive(self, data: bytes) -> None:
        """Take in messages of the run."""
        for name, *more in pickle.loads(data):
            getattr(self._gateway if name == "answer" else self, name)(*more)

    async def close(self) -> None:
        """End what is in progress, and close sandboxes and connections."""
        for task in self._turns.values():
            task.cancel()
        await asyncio.gather(*self._turns.values(), return_exceptions=True)
        await self._ends.aclose()

    def turn(self, number: int, pair: Pair, round_number: int) -> None:
        """Work on a pair."""
        task = self._turns[number] = asyncio.ensure_future(self._work(number, pair, round_number))
        task.add_done_callback(lambda _task: self._turns.pop(number))

    def drop(self, number: int) -> None:
        """Leave a pair that nobody wants any more."""
        if number in self._turns:
            self._turns[number].cancel()

    async def _work(self, number: int, pair: Pair, round_number: int) -> None:
        _turn.set(number)
        recorder = Recorder(pair)
        try:
            outcome = await self._runner.annotate(pair, round_number, recorder)
        except Exception as error:  # noqa: BLE001 - it is raised where the run is
            outcome = make_picklable(error)
        self._send(("end", number, (outcome, recorder.history.events)))

    def _emit(self, event: Event) -> None:
        if not isinstance(event, PairStarted):
            self._send(("event", event))

    def _send(self, message: Message) -> None:
        self._out.append(message)
        self._news.set()


class RemoteGateway(Gateway):
    """Has every call allowed, or answered, where the run is; only when told so it asks the model."""

    def __init__(self, models: Models, send: Callable[[Message], None]) -> None:
        super().__init__(models)
        self._send = send
        self._numbers = count()
        self._answers: dict[int, asyncio.Queue[Reply | Exception | None]] = {}

    async def ask(self, call: Call, key: str | None = None, *, model: LLM | None = None) -> Reply:
        number, model = next(self._numbers), model or self.models.for_role(call.role)
        answers = self._answers[number] = asyncio.Queue[Reply | Exception | None]()
        # what its text was made of only the model here is given
        self._send(
            ("ask", number, _turn.get(), replace(call, variables={}, schema=None), key or self.compute_key(call))
        )

        async def on_wait(wait: Wait) -> None:
            self._send(("made", number, wait))
            if (answer := await answers.get()) is not None:
                answers.put_nowait(answer)
                raise AgentError("the run's process wants no other attempt")

        try:
            while (answer := await answers.get()) is None:
                try:
                    self._send(("made", number, await ask_model(model, replace(call, on_wait=on_wait))))
                except Exception as error:  # noqa: BLE001 - it is raised where the run is, and comes back
                    self._send(("made", number, make_picklable(error)))
        except asyncio.CancelledError:
            self._send(("cancelled", number))
            raise
        finally:
            del self._answers[number]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer(self, number: int, answer: Reply | Exception | None) -> None:
        """Take in the answer to a question; None: the model is to be called."""
        if number in self._answers:
            self._answers[number].put_nowait(answer)


def make_picklable(error: Exception) -> Exception:
    """Return an error as it is or, where it cannot be sent, one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a user's exception may fail in any way
        return AgentError(f"{type(error).__name__}: {error}")
    return error
