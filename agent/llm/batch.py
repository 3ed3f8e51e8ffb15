"""OpenAI's Batch API: the lines of its files, and requests for `OpenAIModel.request`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

from agent.errors import ConfigError, ModelError
from agent.llm.base import LLM, Reply, get_address
from agent.llm.langchain import parse_count
from agent.llm.models import Models
from agent.prompt_text import replace_surrogates
from agent.types import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agent.llm.openai import OpenAIModel

MOST_REQUESTS, MOST_BYTES = 50_000, 200_000_000
"""What OpenAI's Batch API takes in one batch (reference of `batches.create`, which does not say which MB it means)."""
PRICE_FACTOR = 0.5
"""What a batch costs by the list price, at OpenAI."""
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
QUEUE_FULL = "token_limit_exceeded"
"""Why a batch is refused while too many tokens wait in others."""
_NOT_RUN = ("batch_expired", "batch_cancelled")
_KEY = re.compile(r"[0-9a-f]{64}")
_LONGEST_LINE = 16 << 20
_URL: Literal["/v1/chat/completions"] = "/v1/chat/completions"
_TOKEN = "test-driven-annotator"
_TRANSFER_SECONDS = 600.0
_CREATE_SECONDS = 30.0
_CLOCKS_DIFFER = 3600


def select_batch_models(models: Models) -> dict[str, OpenAIModel]:
    """Return the models by name.

    Raises:
        ConfigError: one of them has no batches.
    """
    from agent.llm.openai import OpenAIModel

    by_name: dict[str, OpenAIModel] = {}
    for model in models.list_models():
        if not isinstance(model, OpenAIModel):
            name = model.identity().get("model") or type(model).__name__
            raise ConfigError(f"{name} has no batches: those are for models that are asked by name at a server")
        by_name[name_model(model)] = model
    return by_name


def name_model(model: LLM) -> str:
    """Return what the models of a run are told apart by; a batch is for one of them."""
    return f"{model.identity()['model']} at {get_address(model)}"


class ResultLine(NamedTuple):
    """A line of an output or error file; `not_run`: the batch ended before its request was answered."""

    key: str
    status: int
    body: Any
    not_run: bool = False


def build_request_line(key: str, body: Mapping[str, Any]) -> bytes:
    """Return the line of a request.

    Raises:
        ModelError: no batch can hold it.
    """
    record = {"custom_id": key, "method": "POST", "url": _URL, "body": body}
    line = replace_surrogates(json.dumps(record, ensure_ascii=False)).encode() + b"\n"
    if len(line) > MOST_BYTES:
        raise ModelError(f"its request has {len(line):,} bytes, and no batch may have more than {MOST_BYTES:,}")
    return line


def iterate_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file's lines; one above 16 MB, which is no reply, comes in parts, which are none either."""
    return iter(partial(file.readline, _LONGEST_LINE), b"")


def read_line(line: bytes) -> ResultLine | None:
    """Return what a line says; None where it is not of the format, or of no request of ours."""
    try:
        record = json.loads(line)
        key, response, error = record["custom_id"], record.get("response"), record.get("error")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    if not isinstance(key, str) or not _KEY.fullmatch(key) or (response is None and error is None):
        return None
    if isinstance(response, Mapping) and not error:
        status = response.get("status_code")
        return ResultLine(key, status if isinstance(status, int) else 500, response.get("body"))
    not_run = isinstance(error, Mapping) and error.get("code") in _NOT_RUN
    return ResultLine(key, 500, {"error": error}, not_run)


def extract_reply(line: ResultLine, model: OpenAIModel, factor: float) -> Reply:
    """Return the prepaid reply in a line, at so much of the list price.

    Raises:
        Failure: there is none.
    """
    reply = model.parse_response(line.status, line.body)
    return replace(reply, prepaid=True, usage=scale_cost(factor, reply.usage))


def scale_cost(factor: float, usage: Usage) -> Usage:
    """Return the usage at so much of its price."""
    cost = None if usage.cost_usd is None else usage.cost_usd * factor
    return usage.model_copy(update={"cost_usd": cost})


class BatchState(NamedTuple):
    """A batch as its server sees it; `problems` are codes and messages of what its validation found."""

    status: str
    done: int
    files: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]


async def upload(client: AsyncOpenAI, file: BinaryIO) -> str:
    """Upload a file of requests, and return its id."""
    file.seek(0)
    slow = client.with_options(timeout=_TRANSFER_SECONDS)
    return str((await slow.files.create(file=("batch.jsonl", file), purpose="batch")).id)


async def create(client: AsyncOpenAI, file_id: str, token: str) -> str:
    """Make a batch of a file, and return its id; where this fails, it may have been made all the same (`find`)."""
    quick = client.with_options(timeout=_CREATE_SECONDS)
    batch = await quick.batches.create(
        input_file_id=file_id, endpoint=_URL, completion_window="24h", metadata={_TOKEN: token}
    )
    return str(batch.id)


async def find_batch(client: AsyncOpenAI, token: str, since: float) -> str | None:
    """Return the id of the batch that was made with a token, about then (Unix time) or later; None: there is none."""
    async for batch in client.batches.list(limit=100):
        if (batch.metadata or {}).get(_TOKEN) == token:
            return str(batch.id)
        if parse_count(batch.created_at) < since - _CLOCKS_DIFFER:
            break
    return None


async def retrieve(client: AsyncOpenAI, batch_id: str) -> BatchState:
    """Return the state of a batch."""
    batch = await client.batches.retrieve(batch_id)
    done = sum(parse_count(getattr(batch.request_counts, name, 0)) for name in ("completed", "failed"))
    files = tuple(str(each) for each in (batch.output_file_id, batch.error_file_id) if each)
    problems = getattr(batch.errors, "data", None) or ()
    return BatchState(str(batch.status), done, files, tuple((str(each.code), str(each.message)) for each in problems))


async def download(client: AsyncOpenAI, file_id: str, to: BinaryIO) -> bool:
    """Write a file's content in place of what `to` holds, and return True."""
    to.seek(0)
    to.truncate()
    slow = client.with_options(timeout=_TRANSFER_SECONDS)
    async with slow.files.with_streaming_response.content(file_id) as response:
        async for part in response.iter_bytes():
            to.write(part)
    to.seek(0)
    return True
