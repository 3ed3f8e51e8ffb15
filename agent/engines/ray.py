"""Workers on Ray: on the cores of this machine, or on a cluster.

The run's process has the only gateway: cache, budget, limits, and the merging of equal calls are one for all workers.
It alone writes. A worker that is lost is replaced, and its pairs are given to others.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import count
from types import ModuleType
from typing import Any

from agent.config import RunnerConfig
from agent.engines import wire
from agent.engines.wire import Message, Parts, Site
from agent.engines.worker import PACKAGE, Worker
from agent.errors import AgentError, ExtraMissing, ModelError, Outage, UsageError
from agent.events import Event, Note, PairStarted, Waiting
from agent.history import Exchange, Recorder
from agent.llm.base import Call, Reply
from agent.llm.gateway import Gateway
from agent.types import Annotation, Pair, Usage
from agent.wording import counted

Abandoned = Callable[[Iterable[Exchange]], None]

_PATIENCE = 600.0
_MOST_LOSSES = 5
_MOST_STARTS = 3
_CLOSING = 30.0
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}


class _Lost(Exception):
    """The worker that had a turn is lost."""


@dataclass(eq=False)
class _Turn:
    """A pair in one round, in one worker; `paid` are its replies so far, `context` is its span's."""

    pair: Pair
    round: int
    gateway: Gateway
    end: asyncio.Future[tuple[Annotation | BaseException, Iterable[Any]]]
    paid: list[Exchange] = field(default_factory=list)
    context: Context = field(default_factory=copy_context)


class RayEngine:
    """Keeps a number of workers at work.

    Args:
        config: names the cluster's `address` (None: this machine) and the number of `workers`.
        parts: what workers are made of.
        emit: called with the workers' events.
    """

    def __init__(self, config: RunnerConfig, parts: Parts, emit: Callable[[Event], None]) -> None:
        self.emit = emit
        self.numbers = count()
        self.ray: ModuleType
        self.parts = b""
        self._config = config
        self._parts = parts
        self._ours = False
        self._stations: list[_Station] = []
        self._changed = asyncio.Event()
        self._queue = asyncio.Lock()
        self._failure: AgentError | None = None
        self._noted: set[str] = set()

    async def open(self) -> Site:
        """Start the workers; return where the first one is that is ready.

        Raises:
            ExtraMissing: Ray is not installed.
            UsageError: the cluster cannot be reached, or a model or another part cannot be sent to workers.
            AgentError: no worker can be had.
        """
        for name, value in _QUIET.items():  # read when Ray is imported
            os.environ.setdefault(name, value)
        try:
            import ray
            from ray import cloudpickle
        except ImportError as error:
            raise ExtraMissing("ray", error) from error
        self.ray = ray
        try:
            self.parts = cloudpickle.dumps(self._parts)
        except Exception as error:
            raise UsageError(
                f"a model, node, language or sandbox cannot be sent to workers ({error}): with --engine ray give "
                "models by name, and nothing that holds connections, such as http_client"
            ) from error
        if not ray.is_initialized():
            self._ours = True
            _connect(ray, self._config)
        number = self._config.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._stations = [_Station(self) for _ in range(number)]
        found = (await self.least_busy()).site
        assert found is not None
        return found

    async def close(self) -> None:
        """End all workers, and Ray where it was started here."""
        await asyncio.gather(*(station.close() for station in self._stations))
        if self._ours:
            self.ray.shutdown()

    def runner(self, gateway: Gateway, abandoned: Abandoned) -> RayRunner:
        """Return what has pairs annotated by the workers; `abandoned` is told of replies that were paid for nothing."""
        return RayRunner(self, gateway, abandoned)

    @property
    def workers(self) -> int:
        """How many workers there are, or are to be."""
        return len(self._stations)

    @property
    def linger(self) -> float:
        """How long messages wait for others, in seconds: the more workers, the longer, as each exchange costs."""
        return 0.02 + 0.002 * len(self._stations)

    async def least_busy(self) -> _Station:
        """Return the worker with the fewest pairs; wait where none is ready.

        Raises:
            Outage: none became ready for ten minutes.
        """
        async with self._queue:
            waited = 0.0
            while True:
                if self._failure is not None:
                    raise self._failure
                if ready := [station for station in self._stations if station.site is not None]:
                    return min(ready, key=lambda station: len(station.turns))
                if waited >= _PATIENCE:
                    raise Outage(f"Ray gave no worker for {waited:g} s; its cluster may have no free CPU")
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(10):
                        await self._changed.wait()
                        continue
                waited += 10
                self.emit(Waiting("Ray has no worker ready", 10))

    def ready(self, site: Site) -> None:
        """Take in that a worker is."""
        self._changed.set()
        self.note(f"worker on {site.node}: {'no sandbox needed' if site.name is None else f'sandbox {site.name}'}")

    def failed(self, error: AgentError) -> None:
        """Take in that a worker cannot start: this ends the run unless others are there."""
        if any(station.site is not None for station in self._stations):
            self.note(f"a worker could not start: {error}")
        else:
            self._failure = error
        self._changed.set()

    def note(self, message: str) -> None:
        """Report, once."""
        if message not in self._noted:
            self._noted.add(message)
            self.emit(Note(message))


class RayRunner:
    """A `Runner` that gives each pair to the least busy worker, and to another one when that is lost."""

    def __init__(self, engine: RayEngine, gateway: Gateway, abandoned: Abandoned) -> None:
        self._engine = engine
        self._gateway = gateway
        self._abandoned = abandoned

    async def annotate(self, pair: Pair, round_number: int, recorder: Recorder) -> Annotation:
        self._engine.emit(PairStarted(pair.id, round_number))
        for _ in range(_MOST_LOSSES):
            station = await self._engine.least_busy()
            turn = _Turn(pair, round_number, self._gateway, asyncio.get_running_loop().create_future())
            try:
                outcome, events = await station.work(turn)
            except _Lost:
                self._abandoned(turn.paid)
                continue
            except asyncio.CancelledError:
                for exchange in turn.paid:
                    recorder.add(exchange)
                raise
            for event in events:
                recorder.add(event)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        raise Outage(f"{_MOST_LOSSES} workers were lost with pair {pair.id!r} in progress; it may be what ends them")


class _Station:
    """The place of one worker: starts it, talks to it, and starts another when it is lost."""

    def __init__(self, engine: RayEngine) -> None:
        self.site: Site | None = None
        self.turns: dict[int, _Turn] = {}
        self.calls: dict[int, tuple[Call, asyncio.Future[Reply]]] = {}
        self._engine = engine
        self._ray = engine.ray
        self._actor: Any = None
        self._asks: dict[int, asyncio.Task[None]] = {}
        self._out: list[Message] = []
        self._timer: asyncio.TimerHandle | None = None
        self._exchanges: set[asyncio.Task[None]] = set()
        self._loss: asyncio.Future[BaseException]
        self._task = asyncio.ensure_future(self._keep())

    async def work(self, turn: _Turn) -> tuple[Annotation | BaseException, Iterable[Any]]:
        """Have a turn worked on.

        Raises:
            _Lost: the worker is lost.
        """
        number = next(self._engine.numbers)
        self.turns[number] = turn
        self.send((wire.TURN, number, turn.pair, turn.round))
        try:
            return await turn.end
        except asyncio.CancelledError:
            self.send((wire.DROP, number))
            raise
        finally:
            self.turns.pop(number, None)

    def send(self, message: Message) -> None:
        """Send a message soon, with others."""
        self._out.append(message)
        self._soon()

    async def close(self) -> None:
        """End the worker, and wait for it."""
        self._task.cancel()
        await asyncio.wait([self._task])
        actor = self._actor
        if self.site is not None:
            with suppress(TimeoutError, self._ray.exceptions.RayError):
                async with asyncio.timeout(_CLOSING):
                    await actor.close.remote()
        self._forget()

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                site = await self._start()
            except AgentError as error:
                self._engine.failed(error)
                failures += 1
            except self._ray.exceptions.RayError as error:
                failures += 1
                if failures >= _MOST_STARTS:
                    self._engine.failed(Outage(f"a worker ended while it started: {_first_lines(error)}"))
            else:
                failures = 0
                self.site = site
                self._engine.ready(site)
                self._flush()
                await self._loss
                lost = counted(len(self.turns), "pair")
                self._engine.note(f"the worker on {site.node} was lost; others take its {lost}, and another one starts")
            self._forget()
            await asyncio.sleep(min(60.0, 2.0**failures - 1))

    async def _start(self) -> Site:
        self._loss = asyncio.get_running_loop().create_future()
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._actor = self._ray.remote(Worker).options(**options).remote()
        try:
            site: Site = await self._actor.start.remote(version(PACKAGE), self._engine.parts)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, AgentError) else AgentError(f"a worker cannot start: {cause!r}") from error
        return site

    def _forget(self) -> None:
        """Give up the worker, its turns and its calls."""
        self.site = None
        actor, self._actor, self._out = self._actor, None, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in (*self._asks.values(), *self._exchanges):
            task.cancel()
        for turn in self.turns.values():
            if not turn.end.done():
                turn.end.set_exception(_Lost())
        if actor is not None:
            self._ray.kill(actor)

    def _soon(self) -> None:
        if self._timer is None and self.site is not None:
            self._timer = asyncio.get_running_loop().call_later(self._engine.linger, self._flush)

    def _flush(self) -> None:
        self._timer = None
        messages, self._out = self._out, []
        task = asyncio.ensure_future(self._exchange(messages))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, messages: list[Message]) -> None:
        """Tell the worker something and take in what it says; one exchange at least is always under way."""
        try:
            heard = wire.unpacked(await self._actor.exchange.remote(wire.packed(messages)))
        except self._ray.exceptions.RayError as error:
            if not self._loss.done():
                self._loss.set_result(error)
            return
        for kind, number, *more in heard:
            self._take(kind, number, *more)
        if len(self._exchanges) == 1:
            self._soon()

    def _take(self, kind: str, number: int, *more: Any) -> None:
        if kind == wire.ASK:
            turn_number, call, key = more
            if turn_number in self.turns:
                turn = self.turns[turn_number]
                work = self._answer(number, turn, call, key)
                task = asyncio.get_running_loop().create_task(work, context=turn.context)
                self._asks[number] = task
                task.add_done_callback(lambda _task: self._asks.pop(number))
        elif kind == wire.GONE:
            if number in self._asks:
                self._asks[number].cancel()
        elif kind == wire.MADE:
            self._made(number, *more)
        elif kind == wire.WAIT:
            if number in self.calls:
                self.calls[number][0].on_wait(*more)
        elif kind == wire.END:
            if number in self.turns and not self.turns[number].end.done():
                self.turns[number].end.set_result((more[0], more[1]))
        elif kind == wire.EVENT:
            self._heard(more[0])

    def _heard(self, event: Event) -> None:
        if isinstance(event, Note):
            self._engine.note(event.message)
        else:
            self._engine.emit(event)

    def _made(self, number: int, made: Reply | BaseException) -> None:
        _call, future = self.calls.get(number, (None, None))
        if future is None or future.done():
            return
        if isinstance(made, BaseException):
            future.set_exception(made)
        else:
            future.set_result(made)

    async def _answer(self, number: int, turn: _Turn, call: Call, key: str) -> None:
        answer: Reply | BaseException
        try:
            answer = await turn.gateway.ask(call, key, model=_Distant(self, number))
            paid = answer
        except Exception as error:  # noqa: BLE001 - it is raised in the worker, and comes back with the turn
            answer = wire.sendable(error)
            paid = Reply("", usage=(isinstance(error, ModelError) and error.usage) or Usage())
        exchange = Exchange(role=call.role, key=key, messages=(), reply=paid.text, model=paid.model, usage=paid.usage)
        turn.paid.append(exchange)
        self.send((wire.ANSWER, number, answer))


class _Distant:
    """The model of a worker, for one question: told to answer, it has the worker call its own."""

    def __init__(self, station: _Station, number: int) -> None:
        self._station = station
        self._number = number

    def identity(self) -> dict[str, Any]:
        """Return nothing: the question came with its key."""
        return {}

    async def reply(self, call: Call) -> Reply:
        """Return what the worker's model answers, or raise what it raises."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._station.calls[self._number] = call, future
        self._station.send((wire.CALL, self._number))
        try:
            return await future
        finally:
            del self._station.calls[self._number]


def _connect(ray: ModuleType, config: RunnerConfig) -> None:
    """Connect to the cluster, or start Ray on this machine.

    Raises:
        UsageError: that fails.
    """
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if config.address is None:
        cores = config.workers or len(os.sched_getaffinity(0))
        options |= {"address": "local", "num_cpus": cores, "num_gpus": 0, "include_dashboard": False}
    else:
        options |= {"address": config.address}
    try:
        with _own_signals():
            ray.init(**options)
    except Exception as error:  # Ray raises a dozen kinds here
        where = "Ray does not start here" if config.address is None else f"--address {config.address}"
        raise UsageError(f"{where}: {_first_lines(error)}") from error


@contextmanager
def _own_signals() -> Any:
    """Keep this process's answer to a terminate signal, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _first_lines(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]
