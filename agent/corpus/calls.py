"""Calls Python functions with many inputs in a sandbox, and reads the results. The snippets may be hostile."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeVar

from agent.errors import PairError
from agent.sandbox.base import ReportLine, SandboxBackend, SandboxJob
from agent.sandbox.inside import read_source
from agent.sandbox.session import SandboxSession
from agent.streams import run_concurrently

T = TypeVar("T")
R = TypeVar("R")

RAN, DIED = "ran", "process died"
_SECONDS, _SECONDS_PER_FUNCTION = 30, 40
_STATUSES = {
    *(RAN, "too few results", "flaky", "timed out", "arguments", "uses self", "unknown names", "not one function"),
    *("does not parse", "does not load"),
}


class CallResult(NamedTuple):
    """The result of a call in its canonical form, cut to 200 characters. `digest` is that of the whole form.

    `input` has one expression for each argument, one on each line. If results were expected, `input` is the number of
    the input. `outcome` is `value`, `same` (None or an argument), `raised`, `timeout` or `memory`.
    """

    input: str
    outcome: str
    digest: str
    text: str


@dataclass(frozen=True)
class Calls:
    """The results of a function. They are empty unless the status is `RAN`.

    `changed` is the number of inputs whose expected outcome is `value` and whose result differs. `shared` has a digest
    for each shared input, between spaces. A digest is empty without a result. It starts with `=` if the outcome is
    `same`.
    """

    status: str
    results: tuple[CallResult, ...] = ()
    changed: int = 0
    shared: str = ""


@dataclass(frozen=True)
class CallTask:
    """Functions to call with the same inputs. Without inputs, there is one function, and inputs are chosen for it.

    `like` is code with the arguments of the functions, and with examples in its docstring. Without it, each function is
    called with the inputs that all functions with as many arguments share. `expected` contains the outcome and the
    digest for each input. With it, only the first different result of each outcome is reported.
    """

    functions: Sequence[str]
    like: str | None
    inputs: Sequence[str] | None = None
    expected: Sequence[tuple[str, str]] | None = None


async def run_in_sessions(
    batches: Iterable[list[T]],
    work: Callable[[SandboxSession, list[T], str | None], Awaitable[list[R]]],
    fail: Callable[[T], R],
    backend: SandboxBackend,
    concurrency: int,
) -> AsyncGenerator[R, None]:
    """Iterate over the results of `work` for each batch, in order. If the sandbox fails, those of `fail` are used.

    `work` gets a session and the key of the environment with the packages for all programs.

    Raises:
        UsageError: the packages cannot be installed.
    """

    async def run(batch: list[T]) -> list[R]:
        session = SandboxSession(backend)
        try:
            environment = await session.build_initial_environment()
            return await work(session, batch, None if environment is None else environment.key)
        except PairError:
            return [fail(item) for item in batch]
        finally:
            await session.close()

    async with aclosing(run_concurrently(batches, run, concurrency=concurrency, ordered=True)) as results:
        async for batch in results:
            for item in batch:
                yield item


async def run_tasks(session: SandboxSession, tasks: Sequence[CallTask], environment: str | None) -> list[list[Calls]]:
    """Return the calls of each function of each task. If a task stops the sandbox, the others run without it.

    Raises:
        SandboxError: every sandbox failed.
    """
    if not tasks:
        return []
    count = sum(len(task.functions) for task in tasks)
    program = json.dumps([asdict(task) for task in tasks])
    job = SandboxJob(
        harness=read_source("python_calls"),
        program=program,
        environment=environment,
        timeout=_SECONDS + _SECONDS_PER_FUNCTION * count,
    )
    result = await session.run(job)
    if result.clean:
        calls = _read_calls(result.records, tasks)
        if all(len(own) == len(task.functions) for own, task in zip(calls, tasks, strict=True)):
            return calls
    await session.renew()
    if len(tasks) == 1:
        return [[Calls(DIED)] * count]
    middle = len(tasks) // 2
    halves = tasks[:middle], tasks[middle:]
    return [calls for half in halves for calls in await run_tasks(session, half, environment)]


def _read_calls(records: Sequence[ReportLine], tasks: Sequence[CallTask]) -> list[list[Calls]]:
    calls: list[list[Calls]] = [[] for _ in tasks]
    results: list[CallResult] = []
    for record in records:
        if record.kind == "result":
            results.append(CallResult(record.name, record.outcome, record.error_type, record.message))
        elif record.kind == "function":
            status = record.outcome if record.outcome in _STATUSES else DIED
            own, number = tuple(results) if status == RAN else (), int(record.name)
            if tasks[number].like is None:
                calls[number].append(Calls(status, shared="".join(result.text for result in own)))
            else:
                calls[number].append(Calls(status, own, int(record.error_type or 0)))
            results = []
    return calls
