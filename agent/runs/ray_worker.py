"""A worker, which annotates pairs for the run's process (the driver) and has its own models and sandboxes.

Each model call first goes to the driver, which has the cache, budget and limits for all workers. The run therefore does
not depend on the state of a worker, which may be lost at any time. Messages in both directions are tuples that contain
the name of an action and its arguments. The first argument is usually the number of an assignment (a pair and a round)
or of a call.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import count
from typing import Any

from agent.errors import AgentError, SandboxError, UsageError
from agent.events import Event, Note, PairStarted, Waiting
from agent.llm.base import LLM, Call, Reply, Wait, close
from agent.llm.gateway import Gateway, ask_model
from agent.llm.models import Models
from agent.pipeline.history import Recorder
from agent.runs.runner import PairRunner, require_toolchains
from agent.sandbox.base import SandboxBackend, SandboxLimits
from agent.sandbox.dependencies.environments import REPORT_INTERVAL
from agent.sandbox.select import choose
from agent.tracing import export_traces
from agent.types import Annotation, Pair

PACKAGE = "test-driven-annotator"
Message = tuple[Any, ...]
_assignment: ContextVar[int] = ContextVar("assignment")


@dataclass(frozen=True)
class SandboxInfo:
    """Where programs run: the machine, and the name, description and limits of its sandbox backend."""

    node: str = ""
    name: str | None = None
    description: Mapping[str, str] = field(default_factory=dict)
    limits: SandboxLimits | None = None

    @classmethod
    def of(cls, backend: SandboxBackend | None, node: str = "") -> SandboxInfo:
        """Describe a backend that runs on a machine."""
        return cls(node) if backend is None else cls(node, backend.name, dict(backend.describe()), backend.limits)


class Worker:
    """A worker in its own process. All methods run in the same event loop."""

    def __init__(self) -> None:
        self._out: list[Message] = []
        self._has_messages = asyncio.Event()
        self._resources = AsyncExitStack()
        self._assignments: dict[int, asyncio.Task[None]] = {}

    async def start(self, driver_version: str, spec: bytes, folder: str | None = None) -> SandboxInfo:
        """Set up the models, the sandbox and the runner, and return where programs run.

        `spec` is a pickled `RunSpec`. Relative paths in its settings start in `folder`, if it is set.

        Raises:
            UsageError: this machine has a different version of the package than the driver, or lacks a module that
                the run needs.
            SandboxUnavailable: the variant needs a sandbox, but none is available.
        """
        node, own_version = socket.gethostname(), version(PACKAGE)
        if own_version != driver_version:
            raise UsageError(
                f"{node} has {PACKAGE} {own_version}, but the driver has {driver_version}. "
                "Install the same version on all nodes."
            )
        if folder is not None:
            os.chdir(folder)  # modules are not imported from it, because it is not on `sys.path`
        try:
            run = replace(pickle.loads(spec), emit=self._emit)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"{node} lacks a module that the run needs: {error}") from error
        # The environment variables of this node may enable LangSmith.
        self._resources.enter_context(export_traces(run.config.tracing, lambda note: self._emit(Note(note))))
        for model in run.models.list_models():
            self._resources.push_async_callback(close, model)
        backend = run.backend
        if run.sandbox is not None:
            backend = await choose(run.sandbox, lambda note: self._emit(Note(note)))
            backend.listen(lambda reason: self._emit(Waiting(reason, REPORT_INTERVAL)))
            self._resources.push_async_callback(backend.close)
        self._gateway = RemoteGateway(run.models, self._send)
        self._runner = PairRunner(run, self._gateway, backend)
        return SandboxInfo.of(backend, node)

    async def require_toolchains(self, languages: Sequence[str]) -> tuple[SandboxInfo, dict[str, str | None]]:
        """Check the toolchains of these languages. Return where programs run, and `RunSpec.untestable`."""
        spec, backend = self._runner.spec, self._runner.backend
        await require_toolchains(spec, backend, languages)
        return SandboxInfo.of(backend, socket.gethostname()), spec.untestable

    async def messages(self) -> bytes:
        """Wait until there are messages for the driver, and return them as pickled bytes."""
        await self._has_messages.wait()
        self._has_messages.clear()
        out, self._out = self._out, []
        return pickle.dumps(out)  # several times faster than Ray's own pickler

    def receive(self, data: bytes) -> None:
        """Dispatch pickled messages from the driver."""
        for name, *arguments in pickle.loads(data):
            getattr(self._gateway if name == "answer" else self, name)(*arguments)

    async def close(self) -> None:
        """Cancel all assignments, and close sandboxes and connections."""
        for task in self._assignments.values():
            task.cancel()
        await asyncio.gather(*self._assignments.values(), return_exceptions=True)
        await self._resources.aclose()

    def annotate(self, number: int, pair: Pair, round_number: int, is_tested: bool) -> None:
        """Start to annotate a pair in one round. `is_tested` says whether the driver can test the pair's language."""
        task = self._assignments[number] = asyncio.ensure_future(self._work(number, pair, round_number, is_tested))
        task.add_done_callback(lambda _task: self._assignments.pop(number))

    def drop(self, number: int) -> None:
        """Cancel the annotation of a pair in one round."""
        if number in self._assignments:
            self._assignments[number].cancel()

    async def _work(self, number: int, pair: Pair, round_number: int, is_tested: bool) -> None:
        _assignment.set(number)
        recorder = Recorder(pair)
        outcome: Annotation | Exception
        try:
            spec = self._runner.spec
            with suppress(SandboxError):  # then the pair fails with this error
                await require_toolchains(spec, self._runner.backend, [pair.language])
            if spec.pipeline.needs_language and (spec.find_language(pair.language) is not None) != is_tested:
                raise UsageError(
                    f"{socket.gethostname()} and the driver do not have the same support for {pair.language!r}. "
                    "Install the same packages and toolchains on all nodes."
                )
            outcome = await self._runner.annotate(pair, round_number, recorder)
        except Exception as error:  # noqa: BLE001 - raised in the driver
            outcome = make_picklable(error)
        self._send(("end", number, (outcome, recorder.history.events)))

    def _emit(self, event: Event) -> None:
        if not isinstance(event, PairStarted):
            self._send(("event", event))

    def _send(self, message: Message) -> None:
        self._out.append(message)
        self._has_messages.set()


class RemoteGateway(Gateway):
    """Forwards each call to the driver, which answers it or tells this worker to call the model."""

    def __init__(self, models: Models, send: Callable[[Message], None]) -> None:
        super().__init__(models)
        self._send = send
        self._numbers = count()
        self._answers: dict[int, asyncio.Queue[Reply | Exception | None]] = {}

    async def ask(self, call: Call, key: str | None = None, *, model: LLM | None = None) -> Reply:
        number, model = next(self._numbers), model or self.models.for_role(call.role)
        answers = self._answers[number] = asyncio.Queue[Reply | Exception | None]()
        # The driver needs neither the variables nor the schema.
        self._send(
            ("ask", number, _assignment.get(), replace(call, variables={}, schema=None), key or self.compute_key(call))
        )

        async def on_wait(wait: Wait) -> None:
            self._send(("made", number, wait))
            if (answer := await answers.get()) is not None:
                answers.put_nowait(answer)
                raise AgentError("the driver refused another attempt")

        try:
            while (answer := await answers.get()) is None:
                try:
                    self._send(("made", number, await ask_model(model, replace(call, on_wait=on_wait))))
                except Exception as error:  # noqa: BLE001 - raised in the driver, which returns it
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
        """Receive the driver's answer to a call. None tells this worker to call the model."""
        if number in self._answers:
            self._answers[number].put_nowait(answer)


def make_picklable(error: Exception) -> Exception:
    """Return the error, or an `AgentError` with the same message if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a user's exception may fail in any way
        return AgentError(f"{type(error).__name__}: {error}")
    return error
