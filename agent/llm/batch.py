"""Request files, result files and operations for OpenAI's Batch API.

`OpenAIModel.request` runs the operations, with retries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

from agent.errors import ConfigError, ModelError
from agent.llm.base import LLM, MOST_REPLY_BYTES, Reply, get_address
from agent.llm.failures import Failure, parse_status
from agent.llm.langchain import parse_count
from agent.llm.models import Models
from agent.text import replace_surrogates
from agent.types import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agent.llm.openai import OpenAIModel

MOST_REQUESTS, MOST_BYTES = 50_000, 200_000_000
"""Maximum number of requests and of bytes in a batch. OpenAI's API reference says 200 MB without defining MB."""
PRICE_FACTOR = 0.5
"""OpenAI's price for batches, as a fraction of the list price."""
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
QUEUE_FULL = "token_limit_exceeded"
"""Error code of a batch that is refused because too many tokens are queued in other batches."""
_NOT_RUN = ("batch_expired", "batch_cancelled")
_KEY = re.compile(r"[0-9a-f]{64}")
_MOST_LINES_PER_REQUEST = 2
_MOST_LISTED = 10_000
_URL: Literal["/v1/chat/completions"] = "/v1/chat/completions"
_TOKEN = "test-driven-annotator"
_TRANSFER_SECONDS = 600.0
_CREATE_SECONDS = 30.0
_CLOCK_TOLERANCE = 3600


def select_batch_models(models: Models) -> dict[str, OpenAIModel]:
    """Check that all models support batches, and return the models, keyed by name.

    Raises:
        ConfigError: a model does not support batches.
    """
    from agent.llm.openai import OpenAIModel

    by_name: dict[str, OpenAIModel] = {}
    for model in models.list_models():
        if not isinstance(model, OpenAIModel):
            name = model.identity().get("model") or type(model).__name__
            raise ConfigError(f"{name} does not support batches. Use a model on an OpenAI-compatible server")
        by_name[name_model(model)] = model
    return by_name


def name_model(model: LLM) -> str:
    """Return the name under which a model's batches are stored. It is unique among the models of a run."""
    return f"{model.identity()['model']} at {get_address(model)}"


class ResultLine(NamedTuple):
    """A line in the output or error file of a batch.

    `status` is None if the line contains no HTTP status. `not_run` is true if the batch ended before the request was
    processed.
    """

    key: str
    status: int | None
    body: Any
    not_run: bool = False


def build_request_line(key: str, body: Mapping[str, Any]) -> bytes:
    """Return a request as a line for a batch file.

    Raises:
        ModelError: the line is too long for any batch.
    """
    record = {"custom_id": key, "method": "POST", "url": _URL, "body": body}
    line = replace_surrogates(json.dumps(record, ensure_ascii=False)).encode() + b"\n"
    if len(line) > MOST_BYTES:
        raise ModelError(f"the request has {len(line):,} bytes; a batch may contain at most {MOST_BYTES:,}")
    return line


def read_line(line: bytes) -> ResultLine | None:
    """Parse a result line. Return None if it belongs to another program's request.

    Raises:
        ValueError: the line is not a JSON object.
    """
    try:
        record = json.loads(line)
    except RecursionError as cause:
        raise ValueError("nested too deeply") from cause
    if not isinstance(record, dict):
        raise ValueError("not an object")
    key, response, error = (record.get(name) for name in ("custom_id", "response", "error"))
    if not isinstance(key, str) or not _KEY.fullmatch(key) or (response is None and error is None):
        return None
    response = response if isinstance(response, Mapping) else {}
    details = error if isinstance(error, Mapping) else {}
    status = parse_status(response.get("status_code")) or parse_status(details.get("code"))
    body = {"error": error} if error and (status is None or status < 400 or not response) else response.get("body")
    return ResultLine(key, status, body, details.get("code") in _NOT_RUN)


def extract_reply(line: ResultLine, model: OpenAIModel, factor: float) -> Reply:
    """Return the reply in a result line, marked as prepaid, with its cost multiplied by `factor`.

    Raises:
        Failure: the line contains no reply.
    """
    reply = model.parse_response(line.status, line.body)
    return replace(reply, prepaid=True, usage=scale_cost(factor, reply.usage))


def scale_cost(factor: float, usage: Usage) -> Usage:
    """Return the usage with its cost multiplied by `factor`."""
    cost = None if usage.cost_usd is None else usage.cost_usd * factor
    return usage.model_copy(update={"cost_usd": cost})


class BatchState(NamedTuple):
    """The state of a batch on the server. `problems` contains the codes and messages of validation errors."""

    status: str
    done: int
    files: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]


async def upload(client: AsyncOpenAI, file: BinaryIO) -> str:
    """Upload a file of requests and return its id."""
    file.seek(0)
    client = client.with_options(timeout=_TRANSFER_SECONDS)
    return str((await client.files.create(file=("batch.jsonl", file), purpose="batch")).id)


async def create(client: AsyncOpenAI, file_id: str, token: str) -> str:
    """Create a batch from a file and return its id. If this fails, the batch may still exist (see `find_batch`)."""
    client = client.with_options(timeout=_CREATE_SECONDS)
    batch = await client.batches.create(
        input_file_id=file_id, endpoint=_URL, completion_window="24h", metadata={_TOKEN: token}
    )
    return str(batch.id)


async def find_batch(client: AsyncOpenAI, token: str, since: float) -> str | None:
    """Return the id of the batch whose metadata contains `token`, or None if there is no such batch.

    Batches created long before `since` (Unix time) are ignored.
    """
    listed = 0
    async for batch in client.batches.list(limit=100):
        listed += 1
        if (batch.metadata or {}).get(_TOKEN) == token:
            return str(batch.id)
        if parse_count(batch.created_at) < since - _CLOCK_TOLERANCE or listed == _MOST_LISTED:  # may be endless
            break
    return None


async def retrieve(client: AsyncOpenAI, batch_id: str) -> BatchState:
    """Return the state of a batch."""
    batch = await client.batches.retrieve(batch_id)
    done = sum(parse_count(getattr(batch.request_counts, name, 0)) for name in ("completed", "failed"))
    files = tuple(str(file_id) for file_id in (batch.output_file_id, batch.error_file_id) if file_id)
    problems = getattr(batch.errors, "data", None) or ()
    return BatchState(
        str(batch.status), done, files, tuple((str(problem.code), str(problem.message)) for problem in problems)
    )


async def download(client: AsyncOpenAI, file_id: str, to: BinaryIO, requests: int) -> bool:
    """Download the results of a batch with that many requests into `to`, replacing its content.

    Always returns True. `OpenAIModel.request` returns None instead if the file is missing.

    Raises:
        Failure: the file is not in JSON Lines format, has too many lines, or has a line that is too long.
    """
    to.seek(0)
    to.truncate()
    lines = length = 0
    client = client.with_options(timeout=_TRANSFER_SECONDS)
    async with client.files.with_streaming_response.content(file_id) as response:
        async for part in response.iter_bytes():
            if not to.tell() and part.lstrip()[:1] not in (b"", b"{"):
                raise Failure("did not return a file of batch results")
            *ended, last = part.rsplit(b"\n", 1)
            lines += part.count(b"\n")
            length = len(last) if ended else length + len(last)
            if length > MOST_REPLY_BYTES or lines > _MOST_LINES_PER_REQUEST * requests:
                raise Failure(f"returned a file that is too large for the results of {requests:,} requests", "pair")
            to.write(part)
    to.seek(0)
    return True
