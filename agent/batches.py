"""Takes what passes over the pairs ask to OpenAI's Batch API, and the replies into the cache; survives any end."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
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
from agent.sandbox.base import RunResult
from agent.scratch import Scratch, as_key
from agent.store import files
from agent.store.batches import Batch, BatchStore
from agent.store.cache import SqliteReplyCache
from agent.types import Usage
from agent.wording import plural

if TYPE_CHECKING:
    from agent.llm.openai import OpenAIModel

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 1.0, 60.0, 1.5
_SEND_PAUSES = (10.0, 30.0, 60.0, 120.0, 300.0)
_CREATION_TIMEOUT = 120.0
"""Seconds after which a batch that its server does not know was not made; `create` has ended well before."""
_CHARACTERS_PER_TOKEN = 4
_DEFAULT_REPLY_TOKENS = 500
_LINES_PER_SLICE = 500


class ResultsOnDisk:
    """Results of programs, for as long as the process lives.

    Run again in a later pass, a program whose output changes would have its pair ask another question in each.
    """

    def __init__(self) -> None:
        self._scratch = Scratch("CREATE TABLE results (key BLOB PRIMARY KEY, result BLOB NOT NULL)")

    def get(self, key: Hashable) -> RunResult | None:
        """Return the result under a key."""
        rows = self._scratch.execute("SELECT result FROM results WHERE key = ?", (_digest(key),))
        return pickle.loads(rows[0][0]) if rows else None

    def __setitem__(self, key: Hashable, result: RunResult) -> None:
        self._scratch.execute_many(
            "INSERT OR REPLACE INTO results VALUES (?, ?)", [(_digest(key), pickle.dumps(result))]
        )


def _digest(key: Hashable) -> bytes:
    return hashlib.sha256(as_key(repr(key))).digest()


def check_batch_support(config: RunnerConfig, models: Models, run_dir: Path | None, cache: object) -> None:
    """Refuse what has no batches.

    Raises:
        UsageError: says what is to be otherwise.
    """
    if config.engine == "ray":
        raise UsageError("batches are made in one process: leave out --engine ray (engine)")
    if run_dir is None or not isinstance(cache, str | Path | SqliteReplyCache):
        raise UsageError("runner.batch needs run_dir= and, as cache=, a file: batches and replies are kept there")
    api.select_batch_models(models)


class Batches:
    """The batches of a run: a `Transport` that writes calls down, so that their turns come again in a later pass.

    What a batch may use is estimated from a token per four characters of its requests, and for each reply as many
    tokens as the model's replies of this run had in the mean, 500 where there are none yet. The budget counts replies
    when they are imported, and those of others' batches when they are first taken.

    Raises:
        ConfigError: one of the models has no batches.
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
        # what earlier starts counted, and no annotation has used
        budget.add(sum(map(self._store.get_usage, cache.list_prepaid()), Usage()))
        self._max_requests: dict[str, int] = {}  # requests in a batch of a model whose server's queue was full
        self._progress = 0
        self._problem = ModelError("")
        self._pauses = iter(_SEND_PAUSES)
        self._stop: RunStopped | None = None

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    async def wait_for_open(self) -> None:
        """Wait for the batches in progress, those of an earlier start among them, and import what they hold.

        Raises:
            RunStopped: the deadline came, or the server refuses all that is asked.
        """
        async with self._enforce_deadline():
            await self._wait_for_batches()

    async def send_and_wait(self) -> None:
        """Send all that a pass wrote down, and wait for the answers.

        Raises:
            RunStopped: as `wait_for_open` raises; the budget is not enough for a batch; or nothing was answered.
        """
        async with self._enforce_deadline():
            while True:
                before, self._problem = self._progress, ModelError("there was none in what the batches gave")
                for name in self._by_name:
                    while await self._send(name) and name not in self._max_requests:
                        pass
                await self._wait_for_batches()
                if self._progress > before:
                    self._pauses = iter(_SEND_PAUSES)
                else:
                    await self._pause_to_send()
                if not self._store.has_waiting():
                    return

    @asynccontextmanager
    async def _enforce_deadline(self) -> AsyncIterator[None]:
        try:
            async with self._budget.enforce_deadline():
                yield
        except BaseException:
            if going := len(self._store.list_batches()):
                batches = f"{plural(going, 'batch', 'batches')} {'goes' if going == 1 else 'go'} on"
                self._emit(Note(f"{batches} at the server; the same command waits for that, and pays nothing twice"))
            raise

    async def _pause_to_send(self) -> None:
        passing = isinstance(self._problem, ModelUnavailable | ModelTimeout)
        if not passing or (pause := next(self._pauses, None)) is None:
            raise Outage(f"the batches returned no replies: {self._problem}")
        self._emit(Waiting(str(self._problem), pause))
        await asyncio.sleep(pause)

    async def send(self, model: LLM, call: Call, key: str) -> Reply:
        """Write a call down for the next batch.

        Raises:
            Deferred: always, unless the call failed as often as its model allows.
            ModelError: the call failed that often.
        """
        name = name_model(model)
        served = self._by_name[name]
        problem = self._store.add(
            key, name, lambda: api.build_request_line(key, served.build_body(call)), served.attempts
        )
        if problem is not None:
            raise ModelError(problem)
        raise Deferred(f"{call.role} of pair {call.pair_id!r} waits for its batch")

    def claim(self, key: str, reply: Reply, cache: ReplyCache) -> bool:
        """Take a prepaid reply, and count its usage unless this run imported it."""
        claimed = cache.mark(key, prepaid=False)
        if claimed and self._store.record_usage_once(key, reply.usage):
            self._budget.add(reply.usage)
        return claimed

    async def _send(self, name: str) -> bool:
        """Send one batch, and say whether there was one to send."""
        model = self._by_name[name]
        with files.writing(self._folder), tempfile.TemporaryFile(dir=self._folder) as file:
            waiting = self._store.iterate_waiting(name, self._max_requests.get(name, MOST_REQUESTS), MOST_BYTES)
            numbers = [number for number, line in waiting if file.write(line)]
            if not (count := len(numbers)):
                return False
            expected = self._estimate_usage(model, count, file.tell())
            self._budget.check(sum((each.expected for each in self._store.list_batches()), expected))
            try:
                file_id = await model.request(api.upload, file)
                batch = Batch(uuid4().hex, name, None, time.time(), count, expected)
                self._store.create(batch, numbers[-1])
                self._store.sync()
                made = await model.request(api.create, file_id, batch.token, once=True)
            except ModelError as error:
                self._problem = error
                return False
        self._store.set_batch_id(batch.token, made)
        self._emit(Note(f"batch {made}: {plural(count, 'request')} to {name}"))
        return True

    def _estimate_usage(self, model: OpenAIModel, requests: int, size: int) -> Usage:
        output = requests * (self._store.average_output_tokens(name_model(model)) or _DEFAULT_REPLY_TOKENS)
        usage = Usage(input_tokens=size // _CHARACTERS_PER_TOKEN, output_tokens=int(output))
        return api.scale_cost(PRICE_FACTOR, usage.model_copy(update={"cost_usd": model.price(usage, "")}))

    async def _wait_for_batches(self) -> None:
        pause = _FIRST_PAUSE
        while batches := self._store.list_batches():
            waiting = []
            for batch in batches:
                try:
                    waiting.append(await self._poll_batch(batch))
                except (ModelUnavailable, ModelTimeout) as error:  # the batch goes on, and its files stay for days
                    waiting.append(str(error))
                except ModelError as error:
                    raise Outage(f"{error}. If this comes again: {self._store.path}: {self._store.remedy}") from error
            if self._stop is not None:
                raise self._stop
            if waiting := [what for what in waiting if what is not None]:
                more = f" (and {len(waiting) - 1} more)" if waiting[1:] else ""
                self._emit(Waiting(f"{waiting[0]}{more}", pause))
                await asyncio.sleep(pause)
                pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    async def _poll_batch(self, batch: Batch) -> str | None:
        """Look at a batch, and describe its progress to the user; None: it is over."""
        model = self._by_name.get(batch.model)
        if model is None:
            raise ConfigError(f"a batch of this run is in progress for {batch.model}: name that (--model, --base-url)")
        age = time.time() - batch.created
        batch_id = batch.id or await model.request(api.find_batch, batch.token, batch.created)
        state = batch_id and await model.request(api.retrieve, batch_id, may_be_gone=True)
        if batch_id is None or state is None:
            if age < _CREATION_TIMEOUT:
                return f"a batch that may have been made: looking for it for {age:,.0f} s"
            if batch_id is not None:
                self._problem = ModelUnavailable(f"the server knows of no batch {batch_id} any more")
                self._emit(Note(f"{self._problem}: its requests are sent again"))
            self._store.end(batch.token)
            return None
        if batch.id is None:
            self._store.set_batch_id(batch.token, batch_id)
        if state.status not in ("validating", "failed"):
            self._store.discard_bodies(batch.token)
        what = f"batch {batch_id}: {state.status}, {state.done:,} of {batch.requests:,} done"
        if state.status not in api.ENDED:
            return f"{what}, for {age / 60:,.0f} min"
        await self._import_batch(batch, model, state)
        self._emit(Note(what))
        return None

    async def _import_batch(self, batch: Batch, model: OpenAIModel, state: BatchState) -> None:
        before, complete = self._progress, state.status == "completed"
        with files.writing(self._folder), tempfile.TemporaryFile(dir=self._folder) as file:
            for file_id in state.files:
                complete &= bool(await model.request(api.download, file_id, file, may_be_gone=True))
                for number, line in enumerate(api.iterate_lines(file)):
                    self._import_line(batch, model, line)
                    if not number % _LINES_PER_SLICE:
                        await asyncio.sleep(0)
        self._cache.sync()
        if complete:
            lost = None if self._stop else "its batch was completed, and said nothing of it"
            self._progress += self._store.end(batch.token, lost)
            return
        alone = [each.token for each in self._store.list_batches() if each.model == batch.model] == [batch.token]
        self._store.end(batch.token)
        if any(code == api.QUEUE_FULL for code, _ in state.problems) and not (alone and batch.requests == 1):
            self._max_requests[batch.model] = batch.requests // 2 if alone else batch.requests
            self._progress += 1
        elif self._progress == before and state.status == "completed":
            self._problem = ModelUnavailable("the output of a completed batch is not at the server any more")
        elif self._progress == before:
            why = "; ".join(f"{code}: {message}" for code, message in state.problems[:3])
            self._problem = ModelError(f"a batch {state.status}{f' ({why})' if why else ''}")

    def _import_line(self, batch: Batch, model: OpenAIModel, raw: bytes) -> None:
        """Import a line of a batch that was not imported before."""
        line = api.read_line(raw)
        if line is None or line.not_run or not self._store.contains(batch.token, line.key):
            return
        try:
            reply = api.extract_reply(line, model, PRICE_FACTOR)
        except Failure as failure:
            error = model.error(failure)
            if isinstance(error, RunStopped):
                self._stop = self._stop or error
                return
            self._store.record_failure(line.key, str(error), 1 if failure.meaning == "retry" else model.attempts)
        else:
            self._cache.put(line.key, reply)
            self._store.record_reply(line.key, reply.usage)
            self._budget.add(reply.usage)
        self._progress += 1
