"""Requests that are answered later: models that write their calls down, lines of batch files, OpenAI's Batch API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from agent.errors import ConfigError, Deferred, ModelError
from agent.llm.base import LLM, Call, Reply
from agent.llm.gateway import key_of
from agent.llm.langchain import count
from agent.llm.models import Models
from agent.prompt_text import replace_surrogates
from agent.types import Usage

if TYPE_CHECKING:
    from agent.llm.openai import OpenAIModel

MOST_REQUESTS, MOST_BYTES = 50_000, 200_000_000
"""What OpenAI's Batch API takes in one batch (reference of `batches.create`, which does not say which MB it means)."""
PRICE_FACTOR = 0.5
"""What a batch costs by the list price, at OpenAI."""
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
UNTRIED = frozenset({"batch_expired", "batch_cancelled"})
"""The errors of lines that the batch ended before."""
QUEUE_FULL = "token_limit_exceeded"
"""Why a batch is refused while too many tokens wait in others."""
_URL, _TOKEN = "/v1/chat/completions", "test-driven-annotator"
_TRANSFER_SECONDS = 600.0
_CLOCKS_DIFFER = 3600

WriteDown = Callable[["OpenAIModel", str, Callable[[], bytes]], None]
"""Takes a model, and the key and the line of a request to it; raises a ModelError where that is not tried again."""


class DeferringModel:
    """Stands in for a model, and writes its calls down."""

    def __init__(self, model: OpenAIModel, write_down: WriteDown) -> None:
        self._model = model
        self._write_down = write_down

    def identity(self) -> Mapping[str, Any]:
        """Return what the model says."""
        return self._model.identity()

    async def reply(self, call: Call) -> Reply:
        """Write the request down, under the key that its reply will have in the cache.

        Raises:
            Deferred: it is.
            ModelError: it is not tried again.
        """
        key = key_of(self, call)
        self._write_down(self._model, key, lambda: _small_enough(request_line(key, self._model.body(call))))
        raise Deferred(f"{call.role} of pair {call.pair_id!r} waits for its batch")


def deferring(models: Models, write_down: WriteDown) -> tuple[Models, dict[str, OpenAIModel]]:
    """Return models that write their calls down, and by name those that they stand for.

    Raises:
        ConfigError: one of them has no batches.
    """
    from agent.llm.openai import OpenAIModel

    by_name: dict[str, OpenAIModel] = {}

    def stand_in(model: LLM) -> LLM:
        if not isinstance(model, OpenAIModel):
            name = model.identity().get("model") or type(model).__name__
            raise ConfigError(f"{name} has no batches: those are for models that are asked by name at a server")
        by_name[name_of(model)] = model
        return DeferringModel(model, write_down)

    return models.mapped(stand_in), by_name


def name_of(model: OpenAIModel) -> str:
    """Return what the models of a run are told apart by; a batch is for one of them."""
    return f"{model.identity()['model']} at {model.address}"


@dataclass(frozen=True)
class Line:
    """A line of an output or error file: `status` and `body` of a response, or the `error` that came in its place."""

    key: str
    status: int = 0
    body: Any = None
    error: Mapping[str, Any] | None = None


def request_line(key: str, body: Mapping[str, Any]) -> bytes:
    """Return the line of a request."""
    record = {"custom_id": key, "method": "POST", "url": _URL, "body": body}
    return replace_surrogates(json.dumps(record, ensure_ascii=False)).encode() + b"\n"


def _small_enough(line: bytes) -> bytes:
    if len(line) > MOST_BYTES:
        raise ModelError(f"its request has {len(line):,} bytes, and no batch may have more than {MOST_BYTES:,}")
    return line


def read_line(line: bytes) -> Line | None:
    """Return what a line says; None where it is not of the format."""
    try:
        found = json.loads(line)
        key, response, error = found["custom_id"], found.get("response"), found.get("error")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    if not isinstance(key, str) or not key.isascii():
        return None
    if isinstance(response, Mapping) and not error:
        status = response.get("status_code")
        return Line(key, status if isinstance(status, int) else 500, response.get("body"))
    return Line(key, error=error if isinstance(error, Mapping) else {"message": str(error or "no response")})


def reply_in(line: Line, model: OpenAIModel, factor: float) -> Reply:
    """Return the prepaid reply in a line, at so much of the list price.

    Raises:
        Failure: there is none.
    """
    reply = model.received(500, line.error) if line.error is not None else model.received(line.status, line.body)
    return replace(reply, prepaid=True, usage=priced_at(factor, reply.usage))


def priced_at(factor: float, usage: Usage) -> Usage:
    """Return the usage at so much of its price."""
    cost = None if usage.cost_usd is None else usage.cost_usd * factor
    return usage.model_copy(update={"cost_usd": cost})


@dataclass(frozen=True)
class BatchState:
    """A batch as its server sees it: of `total` requests so many are done; `files` hold lines that came of them.

    `problems` are codes and messages of what its validation found.
    """

    status: str
    total: int
    done: int
    files: tuple[str, ...]
    problems: tuple[tuple[str, str], ...] = ()


async def create(model: OpenAIModel, file: BinaryIO, token: str, ready: Callable[[], None]) -> str:
    """Make a batch of a file of requests and return its id; `ready` is called in between, before it is paid for.

    Raises, as all these do:
        AccountError: the server cannot be reached, or refuses whatever is asked.
        ModelError: it failed; the batch may have been made all the same (`find`).
    """

    async def send(client: Any) -> Any:
        file.seek(0)
        slow = client.with_options(timeout=_TRANSFER_SECONDS)
        return await slow.files.create(file=("batch.jsonl", file), purpose="batch")

    uploaded = await model.request(send)
    given: dict[str, Any] = {"endpoint": _URL, "completion_window": "24h", "metadata": {_TOKEN: token}}
    ready()
    made = await model.request(lambda client: client.batches.create(input_file_id=uploaded.id, **given), once=True)
    return str(made.id)


async def find(model: OpenAIModel, token: str, since: float) -> str | None:
    """Return the id of the batch that was made with a token, about then (Unix time) or later; None: there is none."""

    async def send(client: Any) -> str | None:
        async for batch in client.batches.list(limit=100):
            if isinstance(batch.metadata, Mapping) and batch.metadata.get(_TOKEN) == token:
                return str(batch.id)
            if count(batch.created_at) < since - _CLOCKS_DIFFER:
                break
        return None

    return await model.request(send)


async def look(model: OpenAIModel, batch_id: str) -> BatchState:
    """Return how a batch is."""
    batch: Any = await model.request(lambda client: client.batches.retrieve(batch_id))
    total, *done = (count(getattr(batch.request_counts, name, 0)) for name in ("total", "completed", "failed"))
    files = tuple(str(each) for each in (batch.output_file_id, batch.error_file_id) if each)
    state = BatchState(str(batch.status), total, sum(done), files)
    with suppress(TypeError, AttributeError):  # there are none, or they are of another form
        state = replace(state, problems=tuple((str(each.code), str(each.message)) for each in batch.errors.data))
    return state


async def download(model: OpenAIModel, file_id: str, to: BinaryIO) -> None:
    """Write a file's content in place of what `to` holds."""

    async def send(client: Any) -> None:
        to.seek(0)
        to.truncate()
        slow = client.with_options(timeout=_TRANSFER_SECONDS)
        async with slow.files.with_streaming_response.content(file_id) as response:
            async for part in response.iter_bytes():
                to.write(part)
        to.seek(0)

    await model.request(send)
