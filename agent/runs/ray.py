"""Ray workers, on the cores of this machine or on a cluster.

The run's process (the driver) has the only gateway, so all workers share its cache, budget, limits and deduplication
of calls. Only the driver writes files. A lost worker is replaced, and other workers take over its pairs.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import chdir, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from agent.errors import AgentError, ModelError, Outage, UsageError, needs_extra
from agent.events import Note, PairStarted, Waiting
from agent.llm.base import Call, Reply, Wait, get_address
from agent.llm.gateway import Gateway
from agent.pipeline.history import HistoryItem, ModelCall, Recorder
from agent.runs.ray_worker import PACKAGE, Message, SandboxInfo, Worker, make_picklable
from agent.runs.spec import RunSpec
from agent.sandbox.folders import get_user_cache
from agent.text import plural
from agent.types import Annotation, Pair, Usage

_MAX_WAIT_SECONDS = 600
_MAX_LOSSES = 5
# Ray must not send usage statistics, copy a working folder to workers, or print messages about lost workers. Ray must
# not kill child processes either. A bubblewrap process exits with its worker anyway, but leaves files behind if it is
# killed early.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_kill_child_processes_on_worker_exit": "false",
}

_WorkerReply = Reply | Exception | Wait
_End = tuple[Annotation | Exception | None, Iterable[HistoryItem]]


@dataclass(eq=False)
class _Assignment:
    """A pair and round assigned to a worker. `paid` lists the calls that have been answered.

    `context` contains the current tracing span.
    """

    gateway: Gateway
    end: asyncio.Queue[_End] = field(default_factory=asyncio.Queue)
    paid: list[ModelCall] = field(default_factory=list)
    context: Context = field(default_factory=copy_context)


class RayEngine:
    """Starts workers for the run of `spec`, and emits their events."""

    def __init__(self, spec: RunSpec) -> None:
        self.emit = spec.emit
        self.numbers = count()
        self.ray: ModuleType
        self.spec = b""
        self.workers = 0
        self.folder: str | None = None
        self.find_language = spec.find_language
        self._config = spec.config.runner
        self._spec = spec
        self._owns_ray = False
        self._handles: list[_WorkerHandle] = []
        self._queue = asyncio.Lock()

    async def open(self) -> SandboxInfo:
        """Start the workers and return the sandbox of the first one that is ready.

        Raises:
            ExtraMissing: Ray is not installed.
            UsageError: the cluster cannot be reached, or a model or another part cannot be sent to workers.
            AgentError: the workers cannot start.
        """
        for name, value in _SETTINGS.items():  # Ray reads these variables when it is imported
            os.environ.setdefault(name, value)
        with needs_extra("ray"):
            import ray
            from ray import cloudpickle
        try:
            self.ray, self.spec = ray, cloudpickle.dumps(self._spec.for_worker())
        except Exception as error:
            raise UsageError(
                f"a model, node, language or sandbox cannot be sent to workers ({error}). With --engine ray, pass "
                "models by name, and do not pass objects with open connections, such as http_client."
            ) from error
        if not ray.is_initialized():
            self._owns_ray = True
            await self._connect()
        self.workers = self._config.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._handles = [_WorkerHandle(self) for _ in range(self.workers)]
        return (await self.wait_for_worker()).sandbox or SandboxInfo()

    async def _connect(self) -> None:
        """Start Ray on this machine, or connect to the cluster.

        Workers import modules from the folder in which Ray starts. The working folder may come from a stranger, so Ray
        starts in an empty folder that only the user can write.
        """
        address = self._config.address
        if address is not None and "://" in address:
            raise UsageError(
                f"--address {address}: Ray Client is not supported. Pass HOST:PORT, or auto on a cluster node."
            )
        local = {"address": "local", "num_cpus": self._config.workers, "num_gpus": 0, "include_dashboard": False}
        start = partial(self.ray.init, log_to_driver=False, logging_level="error")
        before = signal.getsignal(signal.SIGTERM)
        try:
            folder, empty = str(Path.cwd()), get_user_cache() / "empty"
            empty.mkdir(parents=True, exist_ok=True)
            with chdir(empty):
                if address is None:
                    self.folder = folder
                    start(**local)  # in this thread, because the kernel stops Ray's processes when their thread ends
                else:
                    await self._connect_in_thread(partial(start, address=address))
        except Exception as error:  # Ray raises many types of errors here
            failure = "Ray cannot start on this machine" if address is None else f"--address {address}"
            raise UsageError(f"{failure}: {str(error)[:600]}") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray's handler would exit the process immediately

    async def _connect_in_thread(self, connect: Callable[[], Any]) -> None:
        """Connect to a cluster. Ray retries for minutes, so the thread is abandoned if this call is cancelled."""
        connected = Future[None]()

        def run() -> None:
            try:
                connected.set_result(connect())
            except BaseException as error:  # noqa: BLE001 - raised in the event loop
                connected.set_exception(error)

        connected.set_running_or_notify_cancel()
        threading.Thread(target=run, daemon=True).start()
        await asyncio.wrap_future(connected)

    async def close(self) -> None:
        """Stop all workers, and Ray if this engine started it."""
        await asyncio.gather(*(handle.close() for handle in self._handles))
        if self._owns_ray:
            self.ray.shutdown()

    async def require_toolchains(self, languages: Sequence[str]) -> SandboxInfo:
        """Check the toolchains of these languages on the machine of one worker, and return its sandbox.

        Other workers check their own before each pair. Their machines must support the same languages.

        Raises:
            SandboxUnavailable: a toolchain is missing or too old.
        """
        handle = await self.wait_for_worker()
        try:
            info, untestable = await handle.actor.require_toolchains.remote(languages)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None
        self._spec.untestable.update(untestable)
        return cast(SandboxInfo, info)

    async def wait_for_worker(self) -> _WorkerHandle:
        """Wait until a worker is ready. Return the ready worker with the fewest pairs.

        Raises:
            Outage: Ray has exited, or no worker became ready in time.
            AgentError: no worker can start.
        """
        async with self._queue:
            deadline = time.monotonic() + _MAX_WAIT_SECONDS
            while time.monotonic() < deadline:
                if dead := {"raylet", "gcs_server"} & list_dead_processes(self.ray):
                    raise Outage(f"Ray has exited on this machine ({', '.join(dead)})")
                if ready := [handle for handle in self._handles if handle.sandbox is not None]:
                    return min(ready, key=lambda handle: len(handle.assignments))
                if all(failures := [handle.failure for handle in self._handles]):
                    raise failures[0] or AgentError("no worker can start")
                self.emit(Waiting("no Ray worker is ready", 1))
                await asyncio.sleep(0.2)
        raise Outage(f"no Ray worker became ready within {_MAX_WAIT_SECONDS} s. The cluster may have no free CPU.")


class _WorkerModel:
    """A placeholder for the model that a call uses. The worker calls the actual model."""

    def __init__(self, gateway: Gateway, call: Call, make: Callable[[Call], Coroutine[Any, Any, Reply]]) -> None:
        model = gateway.models.for_role(call.role)
        self.identity = model.identity
        self.address = get_address(model)
        self.reply = make


def list_dead_processes(ray: Any) -> set[str]:
    """Return the names of Ray's own processes on this machine that have died.

    Ray's public interface reports dead processes only after 15 seconds. This function uses a private interface, and
    returns an empty set if this version of Ray does not have it.
    """
    try:
        node = ray._private.worker._global_node
        return {name for name, _ in node.dead_processes()} if node else set()
    except AttributeError:
        return set()


@dataclass(frozen=True)
class RayRunner:
    """Sends each pair to the least busy worker.

    If a worker is lost, other workers annotate its pairs, and `on_abandoned` receives the calls for these pairs.
    """

    engine: RayEngine
    gateway: Gateway
    on_abandoned: Callable[[Iterable[ModelCall]], None]

    async def annotate(self, pair: Pair, round_number: int, recorder: Recorder) -> Annotation:
        self.engine.emit(PairStarted(pair.id, round_number))
        for _ in range(_MAX_LOSSES):
            handle, assignment = await self.engine.wait_for_worker(), _Assignment(self.gateway)
            events: Iterable[HistoryItem] = assignment.paid
            try:
                outcome, events = await handle.annotate(assignment, pair, round_number)
            finally:
                for event in events:
                    recorder.add(event)
            if isinstance(outcome, Exception):
                raise outcome
            if outcome is not None:
                return outcome
            self.on_abandoned(assignment.paid)
        raise Outage(
            f"{_MAX_LOSSES} workers were lost while annotating pair {pair.id!r}; this pair may have caused the crashes"
        )


class _WorkerHandle:
    """Supervises one worker: starts it, exchanges messages, and replaces it if it is lost or fails to start."""

    def __init__(self, engine: RayEngine) -> None:
        self.sandbox: SandboxInfo | None = None
        self.failure: AgentError | None = None
        self.assignments: dict[int, _Assignment] = {}
        self._engine = engine
        self._ray = engine.ray
        self.actor: Any = None
        self._calls: dict[int, tuple[asyncio.Task[None], asyncio.Queue[_WorkerReply]]] = {}
        self._out: list[Message] = []
        self._timer: asyncio.TimerHandle | None = None
        # Messages are expensive, so with more workers they are batched over a longer interval.
        self._pause = 0.005 + 0.002 * engine.workers
        self._on_event = engine.emit
        self._task = asyncio.ensure_future(self._supervise())

    async def annotate(self, assignment: _Assignment, pair: Pair, round_number: int) -> _End:
        """Annotate a pair in one round. Return the outcome (None if the worker was lost) and the events."""
        number = next(self._engine.numbers)
        self.assignments[number] = assignment
        is_tested = self._engine.find_language(pair.language) is not None
        self._send("annotate", number, pair, round_number, is_tested)
        try:
            return await assignment.end.get()
        except asyncio.CancelledError:
            self._send("drop", number)
            raise
        finally:
            del self.assignments[number]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        if self.sandbox is not None:
            with suppress(TimeoutError, self._ray.exceptions.RayError):
                async with asyncio.timeout(30):
                    await self.actor.close.remote()
        self._discard_worker()

    async def _supervise(self) -> None:
        errors, failures = self._ray.exceptions, 0
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        while True:
            self.actor = self._ray.remote(Worker).options(**options).remote()
            try:
                self.sandbox = info = await self.actor.start.remote(
                    version(PACKAGE), self._engine.spec, self._engine.folder
                )
                failures, self.failure = 0, None
                self._engine.emit(Note(f"worker on {info.node}: sandbox {info.name or 'not required'}"))
                while True:  # Poll, because a stream would end this process if Ray's daemon were killed.
                    self._receive(await self.actor.messages.remote())
                    await asyncio.sleep(self._pause)
            except errors.RayError as error:
                if self.sandbox is not None:
                    message = (
                        f"the worker on {self.sandbox.node} was lost. Starting another worker; "
                        f"{plural(len(self.assignments), 'pair')} will be annotated again."
                    )
                elif isinstance(error, errors.RayTaskError):
                    cause = error.cause
                    self.failure = cause if isinstance(cause, AgentError) else AgentError(f"in a worker: {cause!r}")
                    message = f"a worker could not start: {self.failure}"
                else:
                    message = f"a worker exited during start-up: {' '.join(str(error).split())[:600]}"
                failures += self.sandbox is None
                self._engine.emit(Note(message))
            self._discard_worker()
            await asyncio.sleep(min(60.0, 2.0**failures - 1))

    def _discard_worker(self) -> None:
        self.sandbox, actor, self.actor, self._out = None, self.actor, None, []
        for task, _ in self._calls.values():
            task.cancel()
        for assignment in self.assignments.values():
            assignment.end.put_nowait((None, ()))
        if actor is not None:
            self._ray.kill(actor)

    def _send(self, *message: Any) -> None:
        if self.sandbox is not None:
            self._out.append(message)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._pause, self._flush)

    def _flush(self) -> None:
        self._timer, messages, self._out = None, self._out, []
        if messages:
            self.actor.receive.options(num_returns=0).remote(pickle.dumps(messages))

    def _receive(self, data: bytes) -> None:
        try:
            for name, *arguments in pickle.loads(data):
                getattr(self, f"_on_{name}")(*arguments)
        except Exception as error:  # noqa: BLE001 - raised by a listener; ends the run as with the local engine
            for assignment in self.assignments.values():
                assignment.end.put_nowait((error, assignment.paid))

    def _on_ask(self, number: int, assignment_number: int, call: Call, key: str) -> None:
        if assignment_number in self.assignments:
            assignment, replies = self.assignments[assignment_number], asyncio.Queue[_WorkerReply]()
            coroutine = self._answer_call(number, assignment, call, key, replies)
            task = asyncio.get_running_loop().create_task(coroutine, context=assignment.context)
            self._calls[number] = task, replies
            task.add_done_callback(lambda _task: self._calls.pop(number))

    def _on_cancelled(self, number: int) -> None:
        if number in self._calls:
            self._calls[number][0].cancel()

    def _on_made(self, number: int, reply: _WorkerReply) -> None:
        if number in self._calls:
            self._calls[number][1].put_nowait(reply)

    def _on_end(self, number: int, end: _End) -> None:
        if number in self.assignments:
            self.assignments[number].end.put_nowait(end)

    async def _answer_call(
        self, number: int, assignment: _Assignment, call: Call, key: str, replies: asyncio.Queue[_WorkerReply]
    ) -> None:
        async def make(call: Call) -> Reply:
            """Tell the worker to call its model, and wait for the reply."""
            self._send("answer", number, None)
            while isinstance(reply := await replies.get(), Wait):
                await call.on_wait(reply)
                self._send("answer", number, None)
            if isinstance(reply, Exception):
                raise reply
            return reply

        answer: Reply | Exception
        try:
            answer = reply = await assignment.gateway.ask(call, key, model=_WorkerModel(assignment.gateway, call, make))
        except Exception as error:  # noqa: BLE001 - raised in the worker, and returned with the assignment
            answer = make_picklable(error)
            reply = Reply("", usage=(isinstance(error, ModelError) and error.usage) or Usage())
        assignment.paid.append(
            ModelCall(role=call.role, key=key, messages=(), reply=reply.text, model=reply.model, usage=reply.usage)
        )
        self._send("answer", number, answer)
