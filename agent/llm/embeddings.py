"""Text embeddings from any OpenAI-compatible server."""

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
from agent.llm.background import run_in_background
from agent.llm.clients import AsyncClient
from agent.llm.endpoints import resolve_endpoint
from agent.llm.failures import Failure, build_connection_failure, build_status_failure, extract_error, sanitise
from agent.text import replace_surrogates

_RETRIES = 6
_DEADLINE = 120.0
_TOO_LONG = re.compile(
    r"context[ _]length|maximum.{0,40}tokens|too (long|large|many tokens)|exceeds? .{0,40}length|must have less than",
    re.I,
)
_MIN_TRUNCATED = 200
"""Minimum length of a text that may be truncated, in characters.

If a server refuses a shorter text, the reason cannot be the text's length.
"""


@dataclass(frozen=True)
class EmbeddingReply:
    """One vector per text, the number of `tokens` that the server counted, and the number of `truncated` texts."""

    values: list[Any]
    tokens: int = 0
    truncated: int = 0


class EmbeddingsServer:
    """Embeds texts with a model on an OpenAI-compatible server. Thread-safe.

    `base_url` defaults to the value of `OPENAI_BASE_URL` or, if that is unset, of `OPENAI_API_BASE`. If neither is set,
    OpenAI's URL is used. The key is read from `OPENAI_API_KEY`. It is optional for servers on this machine or the local
    network.

    Raises:
        ConfigError: the URL is invalid, or the key is missing.
    """

    def __init__(self, model: str, base_url: str | None = None) -> None:
        server = resolve_endpoint(base_url)
        key = os.environ.get("OPENAI_API_KEY") or None
        if key is None and not server.is_local and not server.headers:
            raise ConfigError(f"no API key for model {model!r} at {server.url}: set OPENAI_API_KEY")
        self.model, self.url, self._explain_proxy = model, server.url, server.explain_proxy
        self._secrets = {secret for secret in (key, *server.headers.values()) if secret}
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=server.url,
            default_headers=dict(server.headers),
            timeout=_DEADLINE,
            http_client=AsyncClient(),
            max_retries=_RETRIES,  # the client waits as long as the server requests
        )

    def embed(self, texts: Sequence[str]) -> EmbeddingReply:
        """Embed texts, with retries after transient errors.

        Servers limit the number of texts and tokens per request. If a request is refused, its texts are split into two
        halves, which are sent separately. This is repeated down to single texts. If a single text is too long, its last
        quarter is removed, repeatedly if necessary, until the server accepts the text.

        Raises:
            AccountError: no call can succeed, because the server rejects the key, the credit or the model name, or
                requests a long wait.
            RunStopped: every attempt failed, or the response is unusable.
        """
        # some servers refuse empty texts
        return self._embed([replace_surrogates(text) or " " for text in texts])

    def _embed(self, texts: Sequence[str]) -> EmbeddingReply:
        try:
            return self._request(texts)
        except Failure as failure:
            refused = failure.meaning == "pair" and not failure.usage.calls
            if refused and len(texts) > 1:
                middle = len(texts) // 2
                first, second = self._embed(texts[:middle]), self._embed(texts[middle:])
                tokens, truncated = first.tokens + second.tokens, first.truncated + second.truncated
                return EmbeddingReply(first.values + second.values, tokens, truncated)
            if refused and len(texts[0]) > _MIN_TRUNCATED and _TOO_LONG.search(failure.message):
                return replace(self._embed([texts[0][: len(texts[0]) * 3 // 4]]), truncated=1)
            message = f"the model server at {self.url} {failure.message} (model {self.model!r})"
            message += f". {hint}" if (hint := self._explain_proxy()) else ""
            raise (AccountError if failure.meaning == "run" else RunStopped)(message) from None

    def _request(self, texts: Sequence[str]) -> EmbeddingReply:
        """Send one request. Raises a `Failure` if the request fails."""
        try:
            body = json.loads(run_in_background(self._send(texts)).result())
        except openai.APIStatusError as error:
            now = datetime.now(UTC)
            raise build_status_failure(error.response, extract_error(error.body), self._secrets, now) from None
        except openai.APIConnectionError as error:
            timeout = isinstance(error, openai.APITimeoutError)
            raise build_connection_failure(error, self._secrets, timeout=timeout) from None
        except (ValueError, RecursionError) as error:
            raise Failure(f"returned invalid JSON ({self._sanitise(error)})") from None
        try:
            by_index = {row["index"]: row["embedding"] for row in body["data"]}
            vectors = [by_index[index] for index in range(len(texts))]
        except (LookupError, TypeError):
            message = self._sanitise(extract_error(body).get("message"))
            raise Failure(f"returned no embeddings ({message})", "run") from None
        usage = body.get("usage")
        tokens = usage.get("prompt_tokens") or usage.get("total_tokens") if isinstance(usage, dict) else 0
        return EmbeddingReply(vectors, tokens if isinstance(tokens, int) else 0)

    async def _send(self, texts: Sequence[str]) -> bytes:
        response = await self._client.embeddings.with_raw_response.create(
            model=self.model, input=list(texts), encoding_format="float"
        )
        return response.content

    def _sanitise(self, cause: object) -> str:
        return sanitise(str(cause or "") or type(cause).__name__, self._secrets)
