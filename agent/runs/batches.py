"""Sends the model calls of a run through OpenAI's Batch API and imports the replies into the cache.

The state is stored on disk, so an interrupted run can resume its batches.
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from agent.config import RunnerConfig
from agent.errors import (
    ConfigError,
    Deferred,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    Outage,
    RunStopped,
    UsageError,
)
from agent.events import Event, Note, Waiting
from agent.llm import batch as api
from agent.llm.base import LLM, Call, Reply
from agent.llm.batch import MOST_BYTES, MOST_REQUESTS, PRICE_FACTOR, BatchState, name_model
from agent.llm.budget import Budget
from agent.llm.failures import Failure
from agent.llm.gateway import ReplyCache
from agent.llm.models import Models
from agent.runs.store import files
from agent.runs.store.batches import Batch, BatchStore
from agent.runs.store.cache import SqliteReplyCache
from agent.sandbox.base import RunResult
from agent.temp_database import TempDatabase, as_key
from agent.text import plural
from agent.types import Usage

if TYPE_CHECKING:
    from agent.llm.openai import OpenAIModel

_FIRST_PAUSE, _MAX_PAUSE, _GROWTH = 1.0, 60.0, 1.5
_SEND_PAUSES = (10.0, 30.0, 60.0, 120.0, 300.0)
_CREATION_TIMEOUT = 120.0
"""Seconds to wait for a new batch to become visible on the server.

After that, the batch is assumed not to exist. A creation request times out well before that.
"""
_CHARACTERS_PER_TOKEN = 4
_DEFAULT_REPLY_TOKENS = 500
_LINES_PER_SLICE = 500


class ResultsOnDisk:
    """Stores execution results on disk for the lifetime of the process.

    Without this store, every pass over the pairs would run the programs again. A program whose output varies would then
    lead to new prompts in every pass, and its pair would never finish.
    """

    def __init__(self) -> None:
        self._scratch = TempDatabase("CREATE TABLE results (key BLOB PRIMARY KEY, result BLOB NOT NULL)")

    def get(self, key: Hashable) -> RunResult | None:
        """Return the result for a key, or None."""
        rows = self._scratch.execute("SELECT result FROM results WHERE key = ?", (_digest(key),))
        return pickle.loads(rows[0][0]) if rows else None

    def __setitem__(self, key: Hashable, result: RunResult) -> None:
        self._scratch.execute_many(
            "INSERT OR REPLACE INTO results VALUES (?, ?)", [(_digest(key), pickle.dumps(result))]
        )


def _digest(key: Hashable) -> bytes:
    return hashlib.sha256(as_key(repr(key))).digest()


def check_batch_support(config: RunnerConfig, models: Models, run_dir: Path | None, cache: object) -> None:
    """Check that a run supports batches.

    Raises:
        UsageError: the run does not support batches. The message names the argument to change.
    """
    if config.engine == "ray":
        raise UsageError("runner.batch works in one process only: remove --engine ray (engine)")
    if run_dir is None or not isinstance(cache, str | Path | SqliteReplyCache):
        raise UsageError("runner.batch needs run_dir= and a file as cache= to store batches and replies")
    api.select_batch_models(models)


class Batches:
    """A `Transport` that queues model calls for batches.

    If a pair's call is queued, the pair is annotated in a later pass.

    Before a batch is sent, its usage is estimated. The estimate for the input is one token per four characters. The
    estimate for each reply is the mean length of the model's replies in this run, or 500 tokens before the first reply.
    A reply is charged to the budget when it is imported. A reply from another run's batch is charged when it is first
    used.

    Raises:
        ConfigError: a model does not support batches.
    """

    def __init__(
        self,
        folder: Path,
        models: Models,
        cache: SqliteReplyCache,
        budget: Budget,
        emit: Callable[[Event], None],
        *,
        retry_errors: bool = False,
    ) -> None:
        self._by_name = api.select_batch_models(models)
        self._folder = folder
        self._cache = cache
        self._budget = budget
        self._emit = emit
        self._store = BatchStore(folder / files.BATCHES)
        self._store.begin(retry_errors=retry_errors)
        # usage recorded by earlier sessions that is not yet part of an annotation
        budget.add(sum(map(self._store.get_usage, cache.list_prepaid()), Usage()))
        self._max_requests: dict[str, int] = {}  # maximum number of requests per batch, for models whose queue was full
        self._progress = 0
        self._problem = ModelError("")
        self._pauses = iter(_SEND_PAUSES)
        self._stop: RunStopped | None = None

    def close(self) -> None:
        """Close the batch store."""
        self._store.close()

    async def wait_for_open_batches(self) -> None:
        """Wait for the batches in progress, including batches from earlier sessions, and import their replies.

        Raises:
            RunStopped: the deadline has passed, or the server rejects every request.
        """
        async with self._enforce_deadline():
            await self._wait_for_batches()

    async def send_and_wait(self) -> None:
        """Send all queued calls and wait for their replies.

        Raises:
            RunStopped: see `wait_for_open_batches`. Also raised if the budget is too small for a batch, or if no batch
                returned a reply.
        """
        async with self._enforce_deadline():
            while True:
                before, self._problem = self._progress, ModelError("the server reported no cause")
                for name in self._by_name:
                    while await self._send(name) and name not in self._max_requests:
                        pass
                await self._wait_for_batches()
                if self._progress > before:
                    self._pauses = iter(_SEND_PAUSES)
                else:
                    await self._pause_after(self._problem, self._pauses)
                if not self._store.has_waiting():
                    return

    @asynccontextmanager
    async def _enforce_deadline(self) -> AsyncIterator[None]:
        try:
            async with self._budget.enforce_deadline():
                yield
        except BaseException:
            if count := len(self._store.list_batches()):
                batches = f"{plural(count, 'batch', 'batches')} still in progress on the server"
                self._emit(Note(f"{batches}. To wait for them, run the same command again; no call is charged twice"))
            raise

    async def _pause_after(self, problem: ModelError, pauses: Iterator[float]) -> None:
        """Pause after a problem. Raises an `Outage` if it is permanent, or if the server has never responded."""
        transient = isinstance(problem, ModelUnavailable | ModelTimeout)
        connected = any(model.has_connected for model in self._by_name.values())
        if not transient or not connected or (pause := next(pauses, None)) is None:
            raise Outage(f"the batches returned no replies: {problem}")
        self._emit(Waiting(str(problem), pause))
        await asyncio.sleep(pause)

    async def send(self, model: LLM, call: Call, key: str) -> Reply:
        """Queue a call for the next batch.

        Raises:
            ModelError: all attempts at this call have failed, or its request is too large for a batch.
            Deferred: the call is queued.
        """
        name = name_model(model)
        batch_model = self._by_name[name]
        problem = self._store.add(
            key, name, lambda: api.build_request_line(key, batch_model.build_body(call)), batch_model.attempts
        )
        if problem is not None:
            raise ModelError(problem)
        raise Deferred(f"the {call.role} call for pair {call.pair_id!r} is waiting for its batch")

    def claim(self, key: str, reply: Reply, cache: ReplyCache) -> bool:
        """Claim a reply from a batch. The usage of the reply is counted unless this run has already counted it."""
        claimed = cache.mark(key, prepaid=False)
        if claimed and self._store.record_usage_once(key, reply.usage):
            self._budget.add(reply.usage)
        return claimed

    async def _send(self, name: str) -> bool:
        """Send one batch. Return False if there was nothing to send, or if the server did not accept the batch."""
        model = self._by_name[name]
        with files.writing(self._folder), tempfile.TemporaryFile(dir=self._folder) as file:
            waiting = self._store.iterate_waiting(name, self._max_requests.get(name, MOST_REQUESTS), MOST_BYTES)
            numbers = [number for number, line in waiting if file.write(line)]
            if not (count := len(numbers)):
                return False
            expected = self._estimate_usage(model, count, file.tell())
            self._budget.check(sum((batch.expected for batch in self._store.list_batches()), expected))
            try:
                file_id = await model.request(api.upload, file)
                batch = Batch(uuid4().hex, name, None, time.time(), count, expected)
                self._store.create(batch, numbers[-1])
                self._store.sync()
                batch_id = await model.request(api.create, file_id, batch.token, once=True)
            except ModelError as error:
                self._problem = error
                return False
        self._store.set_batch_id(batch.token, batch_id)
        self._emit(Note(f"batch {batch_id}: {plural(count, 'request')} to {name}"))
        return True

    def _estimate_usage(self, model: OpenAIModel, requests: int, size: int) -> Usage:
        output = requests * (self._store.average_output_tokens(name_model(model)) or _DEFAULT_REPLY_TOKENS)
        usage = Usage(input_tokens=size // _CHARACTERS_PER_TOKEN, output_tokens=int(output))
        return api.scale_cost(PRICE_FACTOR, usage.model_copy(update={"cost_usd": model.price(usage, "")}))

    async def _wait_for_batches(self) -> None:
        pause, send_pauses = _FIRST_PAUSE, iter(_SEND_PAUSES)
        while batches := self._store.list_batches():
            waiting, problem = [], None
            for batch in batches:
                try:
                    waiting.append(await self._poll_batch(batch))
                except (ModelUnavailable, ModelTimeout) as error:
                    # The batch continues, and its files remain available for days.
                    problem = error
                except ModelError as error:
                    raise Outage(f"{error}. If this happens again: {self._store.path}: {self._store.remedy}") from error
            if self._stop is not None:
                raise self._stop
            if problem is not None:
                await self._pause_after(problem, send_pauses)
                continue
            send_pauses = iter(_SEND_PAUSES)
            if waiting := [progress for progress in waiting if progress is not None]:
                more = f" (and {len(waiting) - 1} more)" if waiting[1:] else ""
                self._emit(Waiting(f"{waiting[0]}{more}", pause))
                await asyncio.sleep(pause)
                pause = min(pause * _GROWTH, _MAX_PAUSE)

    async def _poll_batch(self, batch: Batch) -> str | None:
        """Return the progress of a batch, or None if it is no longer in progress.

        The replies of a finished batch are imported.
        """
        model = self._by_name.get(batch.model)
        if model is None:
            raise ConfigError(
                f"a batch of this run for {batch.model} is still in progress: use that model (--model, --base-url)"
            )
        age = time.time() - batch.created
        batch_id = batch.id or await model.request(api.find_batch, batch.token, batch.created)
        state = batch_id and await model.request(api.retrieve, batch_id, may_be_gone=True)
        if batch_id is None or state is None:
            if age < _CREATION_TIMEOUT:
                return f"searching for a batch that may have been created ({age:,.0f} s so far)"
            if batch_id is not None:
                self._problem = ModelUnavailable(f"the server no longer has batch {batch_id}")
                self._emit(Note(f"{self._problem}; sending its requests again"))
            self._store.end(batch.token)
            return None
        if batch.id is None:
            self._store.set_batch_id(batch.token, batch_id)
        if state.status not in ("validating", "failed"):
            self._store.discard_bodies(batch.token)
        progress = f"batch {batch_id}: {state.status}, {state.done:,} of {batch.requests:,} done"
        if state.status not in api.ENDED:
            return f"{progress}, started {age / 60:,.0f} min ago"
        await self._import_batch(batch, model, state)
        self._emit(Note(progress))
        return None

    async def _import_batch(self, batch: Batch, model: OpenAIModel, state: BatchState) -> None:
        before, complete = self._progress, state.status == "completed"
        with files.writing(self._folder), tempfile.TemporaryFile(dir=self._folder) as file:
            for file_id in state.files:
                complete &= bool(await model.request(api.download, file_id, file, batch.requests, may_be_gone=True))
                for number, line in enumerate(file):
                    self._import_line(batch, model, line)
                    if not number % _LINES_PER_SLICE:
                        await asyncio.sleep(0)
        self._cache.sync()
        if complete:
            lost = None if self._stop else "the completed batch contains no result for this call"
            self._progress += self._store.end(batch.token, lost)
            return
        alone = [other.token for other in self._store.list_batches() if other.model == batch.model] == [batch.token]
        self._store.end(batch.token)
        if any(code == api.QUEUE_FULL for code, _ in state.problems) and not (alone and batch.requests == 1):
            self._max_requests[batch.model] = batch.requests // 2 if alone else batch.requests
            self._progress += 1
        elif self._progress == before and state.status == "completed":
            self._problem = ModelUnavailable("the server no longer has the output of a completed batch")
        elif self._progress == before:
            causes = "; ".join(f"{code}: {message}" for code, message in state.problems[:3])
            self._problem = ModelError(f"a batch {state.status}{f' ({causes})' if causes else ''}")

    def _import_line(self, batch: Batch, model: OpenAIModel, raw: bytes) -> None:
        """Import a line of a batch's output unless it has already been imported."""
        line = None
        with suppress(ValueError):
            line = api.read_line(raw)
        if line is None or line.not_run or not self._store.contains(batch.token, line.key):
            return
        try:
            reply = api.extract_reply(line, model, PRICE_FACTOR)
        except Failure as failure:
            error = model.build_error(failure)
            if isinstance(error, RunStopped):
                self._stop = self._stop or error
                return
            self._store.record_failure(line.key, str(error), 1 if failure.meaning == "retry" else model.attempts)
        else:
            self._cache.put(line.key, reply)
            self._store.record_reply(line.key, reply.usage)
            self._budget.add(reply.usage)
        self._progress += 1
