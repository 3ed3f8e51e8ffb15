"""Vectors of texts from any server that speaks OpenAI's embeddings protocol."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import openai

from agent.errors import AccountError, ConfigError, RunStopped
from agent.llm.endpoints import resolve_endpoint
from agent.llm.failures import Failure, build_failure, extract_error, parse_retry_after, sanitise
from agent.prompt_text import replace_surrogates

_RETRIES = 6
_DEADLINE = 120.0
_TOO_LONG = re.compile(
    r"context[ _]length|maximum.{0,40}tokens|too (long|large|many tokens)|exceeds? .{0,40}length|must have less than",
    re.I,
)
_SHORTEST = 200
"""Of a text that a server finds too long, in characters; what is shorter was refused for something else."""


@dataclass(frozen=True)
class Vectors:
    """A list of numbers for each text, how many `tokens` the server counted, and how many texts were `cut` for it."""

    values: list[Any]
    tokens: int = 0
    truncated: int = 0


class EmbeddingsServer:
    """Gives vectors of texts by a model behind an OpenAI-compatible server; may be used by several threads.

    The server is `base_url`, else `OPENAI_BASE_URL`, else OpenAI's own; the key is `OPENAI_API_KEY`, which servers on
    this machine and in its network may not need.

    Raises:
        ConfigError: the URL is none, or the key is missing.
    """

    def __init__(self, model: str, base_url: str | None = None) -> None:
        server = resolve_endpoint(base_url)
        key = os.environ.get("OPENAI_API_KEY") or None
        if key is None and not server.is_local and not server.headers:
            raise ConfigError(f"there is no key for the model {model!r} at {server.url}: set OPENAI_API_KEY")
        self.model, self.url = model, server.url
        self._secrets = {secret for secret in (key, *server.headers.values()) if secret}
        self._client = openai.OpenAI(
            api_key=key or "none",
            base_url=server.url,
            default_headers=dict(server.headers),
            timeout=_DEADLINE,
            max_retries=_RETRIES,  # it waits as long as the server asks
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Ask for the vectors of texts, again after failures that may pass.

        Texts that are refused together are asked for by halves, down to one, since servers limit the texts and the
        tokens of a request; a single text that the server finds too long is cut by a quarter until it is taken.

        Raises:
            AccountError: no call can succeed: key, credit, model name, a long wait.
            RunStopped: the server failed at every attempt, or its answer cannot be used.
        """
        # an empty text is refused by some
        return self._embed([replace_surrogates(text) or " " for text in texts])

    def _embed(self, texts: Sequence[str]) -> Vectors:
        try:
            return self._request(texts)
        except Failure as failure:
            refused = failure.meaning == "pair"
            if refused and len(texts) > 1:
                middle = len(texts) // 2
                one, two = self._embed(texts[:middle]), self._embed(texts[middle:])
                return Vectors(one.values + two.values, one.tokens + two.tokens, one.truncated + two.truncated)
            if refused and len(texts[0]) > _SHORTEST and _TOO_LONG.search(failure.why):
                return replace(self._embed([texts[0][: len(texts[0]) * 3 // 4]]), truncated=1)
            message = f"the model server at {self.url} {failure.why} (model {self.model!r})"
            raise (AccountError if failure.meaning == "run" else RunStopped)(message) from None

    def _request(self, texts: Sequence[str]) -> Vectors:
        """Ask once, or raise a `Failure`."""
        try:
            answer = self._client.embeddings.with_raw_response.create(
                model=self.model, input=list(texts), encoding_format="float"
            )
            body = json.loads(answer.content)
        except openai.APIStatusError as error:
            wait = parse_retry_after(error.response.headers, datetime.now(UTC))
            raise build_failure(error.status_code, extract_error(error.body), self._secrets, wait=wait) from None
        except openai.APITimeoutError:
            raise Failure(f"gave no answer within {_DEADLINE:g} s") from None
        except openai.APIConnectionError as error:
            raise Failure(
                f"cannot be reached or cut the connection ({self._sanitise(error.__cause__ or error)})"
            ) from None
        except (ValueError, RecursionError) as error:
            raise Failure(f"answered with a body that is no JSON ({self._sanitise(error)})") from None
        try:
            by_index = {each["index"]: each["embedding"] for each in body["data"]}
            vectors = [by_index[index] for index in range(len(texts))]
        except (LookupError, TypeError):
            message = self._sanitise(extract_error(body).get("message"))
            raise Failure(f"answered without embeddings ({message})", "run") from None
        usage = body.get("usage")
        tokens = usage.get("prompt_tokens") or usage.get("total_tokens") if isinstance(usage, dict) else 0
        return Vectors(vectors, tokens if isinstance(tokens, int) else 0)

    def _sanitise(self, cause: object) -> str:
        return sanitise(str(cause or "") or type(cause).__name__, self._secrets)
