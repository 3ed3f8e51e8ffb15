"""Any server that speaks OpenAI's embeddings protocol."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from threading import Event
from typing import Any

import openai
from tenacity import (
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential_jitter,
)
from tenacity.wait import wait_base

from agent.datasets.encoding import loads
from agent.errors import AccountError, ConfigError, RunStopped
from agent.llm.endpoints import endpoint
from agent.llm.failures import Failure, error_object, for_message, judged, retry_after
from agent.prompt_text import replace_surrogates
from agent.retrieval.searchers.base import numpy
from agent.retrieval.searchers.dense import DenseSearcher, Embedded, Kind
from agent.retrieval.searchers.recipes import ModelOptions, recipe_of
from agent.wording import counted

_ATTEMPTS = 6
_DEADLINE = 120.0
_AT_ONCE = 4
_TOO_LONG = re.compile(
    r"context[ _]length|maximum.{0,40}tokens|too (long|large|many tokens)|exceeds? .{0,40}length", re.I
)
_SHORTEST = 200
"""Of a text that a server finds too long, in characters; what is shorter was refused for something else."""


def searcher(model: str, options: ModelOptions) -> DenseSearcher:
    """Return the searcher `openai:MODEL`.

    Raises:
        ConfigError: the URL is none, or the key is missing.
    """
    return DenseSearcher(EndpointEmbedder(model, options), options.embeddings)


class EndpointEmbedder:
    """Asks a server for the vectors of texts, several batches at a time, and makes them of unit length.

    The server is `base_url`, else `OPENAI_BASE_URL`, else OpenAI's own; the key is `OPENAI_API_KEY`, which servers on
    this machine and in its network may not need. Prefixes that nobody gave are those of the model's family.

    Raises:
        ConfigError: the URL is none, or the key is missing.
    """

    at_once = _AT_ONCE
    notes: Sequence[str] = ()

    def __init__(self, model: str, options: ModelOptions) -> None:
        server = endpoint(options.base_url)
        key = os.environ.get("OPENAI_API_KEY") or None
        if key is None and not server.local and not server.headers:
            raise ConfigError(f"there is no key for the model {model!r} at {server.url}: set OPENAI_API_KEY")
        self._model, self._server = model, server
        recipe, given = recipe_of(model), (options.query_prefix, options.code_prefix)
        known = (recipe.query_prefix, recipe.code_prefix) if recipe else ("", "")
        query, code = (mine if mine is not None else theirs for mine, theirs in zip(given, known, strict=True))
        self._prefixes: Mapping[Kind, str] = {"query": query, "code": code}
        self._secrets = {secret for secret in (key, *server.headers.values()) if secret}
        self._stopping = Event()
        self._client = openai.OpenAI(
            api_key=key or "none",
            base_url=server.url,
            default_headers=dict(server.headers),
            timeout=_DEADLINE,
            max_retries=0,
        )
        self.name = f"openai:{model}"
        self.about = f"cosine of the embeddings that {server.url} gives for {model}"
        # the server counts: under one name (`default`), two servers may have two models
        self.settings: Mapping[str, Any] = {
            "model": model,
            "server": server.url,
            "similarity": "cosine",
            "query_prefix": query,
            "code_prefix": code,
        }

    def embed(self, texts: Sequence[str], kind: Kind) -> Embedded:
        """Ask for the vectors of one batch, again after failures that may pass.

        A text that the server finds too long is cut by a quarter until it is taken.

        Raises:
            AccountError: no call can succeed: key, credit, model name, a long wait.
            RunStopped: the server failed at every attempt, or its answer cannot be used.
        """
        return self._embed([replace_surrogates(self._prefixes[kind] + text) or " " for text in texts])

    def stop(self) -> None:
        """Wait for no further attempts."""
        self._stopping.set()

    def _embed(self, texts: Sequence[str]) -> Embedded:
        try:
            for attempt in self._attempts():
                with attempt:
                    return self._ask(texts)
        except Failure as failure:
            if failure.meaning == "pair" and _TOO_LONG.search(failure.why) and len(texts[0]) > _SHORTEST:
                return self._shorter(texts)
            raise self._error(failure) from None
        raise AssertionError("tenacity ends with a result or an error")

    def _shorter(self, texts: Sequence[str]) -> Embedded:
        if len(texts) > 1:
            middle = len(texts) // 2
            halves = [self._embed(texts[:middle]), self._embed(texts[middle:])]
            counts = Counter(halves[0].counts) + Counter(halves[1].counts)
            return Embedded(numpy().concatenate([half.vectors for half in halves]), counts)
        shorter = self._embed([texts[0][: len(texts[0]) * 3 // 4]])
        return Embedded(shorter.vectors, {**shorter.counts, "cut": 1})

    def _ask(self, texts: Sequence[str]) -> Embedded:
        """Ask once, or raise a `Failure`."""
        try:
            answer = self._client.embeddings.with_raw_response.create(
                model=self._model, input=list(texts), encoding_format="float"
            )
        except openai.APIStatusError as error:
            wait = retry_after(error.response.headers, datetime.now(UTC))
            raise judged(error.status_code, error_object(error.body), self._secrets, wait=wait) from None
        except openai.APITimeoutError:
            raise Failure(f"gave no answer within {_DEADLINE:g} s") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            why = for_message(str(cause) or type(cause).__name__, self._secrets)
            raise Failure(f"cannot be reached or cut the connection ({why})") from None
        try:
            body = loads(answer.content)
        except ValueError as error:
            raise Failure(f"answered with a body that is no JSON ({for_message(str(error), self._secrets)})") from None
        return self._read(body, len(texts))

    def _read(self, body: Any, expected: int) -> Embedded:
        np = numpy()
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, list):
            message = for_message(str(error_object(body).get("message") or ""), self._secrets)
            raise Failure(f"answered without embeddings{': ' + message if message else ''}", "run")
        try:
            by_index = {int(each["index"]): each["embedding"] for each in data}
            if sorted(by_index) != list(range(expected)) or len(data) != expected:
                raise Failure(f"gave {counted(len(data), 'vector')} for {counted(expected, 'text')}", "run")
            vectors = np.array([by_index[at] for at in range(expected)], dtype=np.float32)
            _, dimensions = vectors.shape
        except (LookupError, TypeError, ValueError) as error:
            raise Failure(f"gave something else than a vector for each text ({error})", "run") from None
        if not dimensions or not np.isfinite(vectors).all():
            raise Failure("gave a vector that is empty, or has values that are no finite numbers (NaN)", "run")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        usage = body.get("usage")
        tokens = usage.get("prompt_tokens") or usage.get("total_tokens") if isinstance(usage, dict) else 0
        counts = {"tokens": tokens} if isinstance(tokens, int) and tokens > 0 else {}
        return Embedded(vectors / np.where(lengths > 0, lengths, 1), counts)

    def _attempts(self) -> Retrying:
        return Retrying(
            stop=stop_after_attempt(_ATTEMPTS) | stop_when_event_set(self._stopping),
            wait=_AsAsked(),
            sleep=sleep_using_event(self._stopping),
            retry=retry_if_exception(lambda error: isinstance(error, Failure) and error.meaning == "retry"),
            reraise=True,
        )

    def _error(self, failure: Failure) -> RunStopped:
        message = f"{self.name}: the server at {self._server.url} {failure.why}"
        if failure.meaning == "retry":
            message += f"; given up after {_ATTEMPTS} attempts. What was embedded is kept: give the same command again"
        return (AccountError if failure.meaning == "run" else RunStopped)(message)


class _AsAsked(wait_base):
    """Waits as long as the server asks, else longer each time."""

    _backoff = wait_exponential_jitter(initial=1.0, max=30.0, jitter=1)

    def __call__(self, retry_state: Any) -> float:
        asked = getattr(retry_state.outcome.exception(), "wait", None)
        return self._backoff(retry_state) if asked is None else float(asked)
