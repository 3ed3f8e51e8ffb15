"""Any server that speaks OpenAI's chat protocol, through langchain-openai."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agent.config import ModelConfig
from agent.errors import (
    AccountError,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    OptionRefused,
    PromptTruncated,
    RunStopped,
)
from agent.llm.base import Call, Reply
from agent.llm.completions import Completion, UnusableBody, read_completion, truncated
from agent.llm.endpoints import endpoint, max_tokens_field, merged, thinking_body
from agent.llm.failures import Failure, error_object, meaning_of, remedy, retry_after
from agent.llm.keys import ApiKey, KeyRing
from agent.llm.prices import Prices
from agent.llm.retries import persist
from agent.llm.tap import Heard, listening, tap
from agent.prompt_text import sound
from agent.types import Usage

if TYPE_CHECKING:
    import openai
    from langchain_openai import ChatOpenAI

_CONNECT_TIMEOUT = 10.0
# A server that asks for more stops the run: to wait in vain for every pair takes days, to ask before gives nothing.
_LONGEST_WAIT = 600.0
_TOLD_WAIT = 20.0
_NOT_CONNECTED = frozenset({"ConnectError", "ConnectTimeout", "ProxyError"})
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
# What langchain-openai and openai raise on bodies that they did not expect, besides openai.OpenAIError.
_BODY_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)


@dataclass(frozen=True)
class _Client:
    chat: ChatOpenAI
    http: Any


class OpenAIModel:
    """A model behind an OpenAI-compatible server.

    Args:
        config: name, server, parameters, deadline and attempts.
        api_key: the key, or a function (it may be async) that is asked for it at every attempt.
        http_client: an `httpx2.AsyncClient` (or `httpx.AsyncClient`) to use. You close it yourself, and use it in one
            event loop. It gets a response hook that only listens.
        prices: what tokens cost.
        sleep: waits, in seconds, between attempts.
        now: the time that dates in `Retry-After` are compared with.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        api_key: ApiKey | None = None,
        http_client: Any = None,
        prices: Prices | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._config = config
        self._server = endpoint(config.base_url)
        self._http_client = http_client
        self._prices = prices or Prices.of()
        self._sleep = sleep
        self._now = now
        self._headers = {**self._server.headers, **config.headers}
        self._keys = KeyRing(api_key, self._headers.values())
        self._succeeded = False
        self._formats = False
        self._waiting_until = datetime.min.replace(tzinfo=UTC)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"OpenAIModel({self._config.name!r} at {self._server.url})"

    def identity(self) -> Mapping[str, Any]:
        """Return model, parameters, extra body and reply format as requested, however the server is sent them."""
        config = self._config
        requested = config.model_dump(include={"temperature", "max_tokens", "thinking"}, exclude_none=True)
        return {
            "kind": "openai",
            "model": config.name,
            "parameters": requested,
            "extra_body": config.extra_body,
            "reply_format": config.reply_format,
        }

    @property
    def address(self) -> str:
        """The server's URL, without credentials."""
        return self._server.url

    def price(self, usage: Usage, served: str) -> float | None:
        """Return what tokens of a served model cost in US dollars, None when no price is known."""
        return self._prices.cost(usage, self._config.name, served)

    async def reply(self, call: Call) -> Reply:
        """Ask the server, again after failures that may pass.

        Raises:
            ModelUnavailable: the server failed or was not reached at the last attempt; `usage` is what they cost.
            ModelError: a reply that cannot come, whatever else is tried.
            ModelTimeout: the last attempt reached the deadline.
            PromptTruncated: the server cut the prompt.
            AccountError: no call can succeed: key, credit, model name, a server that was never reached or that asks to
                wait for more than ten minutes.
            OptionRefused: the server does not take the format that replies are asked for in.
        """
        spent = Usage()
        formatted = "response_format" in self._body(call)

        async def attempt() -> Completion:
            nonlocal spent
            try:
                return await self._attempt(call)
            except Failure as failure:
                spent += failure.usage
                raise

        try:
            completion = await persist(
                attempt, attempts=self._config.attempts, sleep=self._sleep, on_wait=partial(self._tell_of_wait, call)
            )
        except Failure as failure:
            raise self._error(failure, spent, formatted) from failure.__cause__
        self._succeeded = True
        self._formats = self._formats or formatted
        spent += self._priced(completion.usage, completion.model)
        if truncated(call.messages, completion.prompt_tokens):
            raise PromptTruncated(
                f"the model server at {self._server.url} read only {completion.usage.input_tokens:,} tokens of a "
                f"longer prompt: the context of {self._config.name!r} there is too small. Enlarge it (Ollama: num_ctx)",
                usage=spent,
            )
        return Reply(
            text=completion.text,
            usage=spent,
            model=completion.model or self._config.name,
            fingerprint=completion.fingerprint,
            finish_reason=completion.finish_reason,
            reasoning=completion.reasoning,
            raw=completion.raw,
            address=self.address,
        )

    async def aclose(self) -> None:
        """Close the connections made in this event loop; a later call makes new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and client.http is not self._http_client:
            await client.http.aclose()

    async def _attempt(self, call: Call) -> Completion:
        import openai

        chat = self._client().chat.bind(**self._parameters(call))
        messages = [(message.role, sound(message.content)) for message in call.messages]
        with listening() as heard:
            try:
                async with asyncio.timeout(self._config.deadline) as deadline:
                    await chat.ainvoke(messages)
            except TimeoutError as error:
                if not deadline.expired():
                    raise
                why = f"gave no complete reply within {self._config.deadline:g} s"
                raise Failure(why, usage=self._wasted(heard), timeout=True) from error
            except openai.APIConnectionError as error:
                raise self._disconnected(error, heard) from error
            except (openai.OpenAIError, *_BODY_ERRORS):
                if heard.body is None:
                    raise
        return self._read(heard.response)

    def _read(self, response: Any) -> Completion:
        if not response.is_success:
            wait = retry_after(response.headers, self._now())
            raise self._judged(response.status_code, _error_in(response.content), wait=wait)
        try:
            return read_completion(response.content)
        except UnusableBody as error:
            usage, details = self._priced(error.usage), error.error
            if details is None:
                raise Failure(f"answered with {self._keys.shown(str(error))}", usage=usage) from None
            code = details.get("code")
            raise self._judged(code if isinstance(code, int) else 500, details, usage=usage) from None

    def _judged(
        self, status: int, error: Mapping[str, Any], *, wait: float | None = None, usage: Usage | None = None
    ) -> Failure:
        said = self._keys.shown(str(error.get("message") or error.get("code") or ""))
        why = f"answered HTTP {status}{': ' + said if said else ''}"
        todo, meaning = remedy(status, error), meaning_of(status, error)
        if meaning == "retry" and wait is not None and wait > _LONGEST_WAIT:
            meaning = "run"
            todo = f"It asks to wait {wait / 60:,.4g} minutes: run the same command after that, it goes on from here."
        why = f"{why.rstrip('.')}. {todo}" if todo else why
        return Failure(why, meaning, wait=wait, usage=usage or Usage())

    def _tell_of_wait(self, call: Call, failure: Failure) -> None:
        """Tell of a long wait, once for all calls that it holds up."""
        now, wait = self._now(), failure.wait or 0.0
        if wait >= _TOLD_WAIT and now >= self._waiting_until:
            self._waiting_until = now + timedelta(seconds=wait)
            call.tell(f"the model server at {self._server.url} {failure.why.rstrip('.')}; it asks to wait {wait:.0f} s")

    def _disconnected(self, error: openai.APIConnectionError, heard: Heard) -> Failure:
        import openai

        cause: BaseException = error
        while cause.__cause__ is not None and type(cause).__name__ not in _NOT_CONNECTED:
            cause = cause.__cause__
        # By name: the user's client decides whether the error is httpx's or httpx2's.
        kind = type(cause).__name__
        if heard.response is None and kind in _NOT_CONNECTED:
            return Failure(f"cannot be reached ({kind}: {self._keys.shown(str(cause))})", unreachable=True)
        timeout = isinstance(error, openai.APITimeoutError)
        what = "gave no complete reply in time" if timeout else "cut the connection"
        return Failure(f"{what} ({kind})", usage=self._wasted(heard), timeout=timeout)

    def _error(self, failure: Failure, usage: Usage, formatted: bool) -> RunStopped | ModelError:
        message = f"the model server at {self._server.url} {failure.why}"
        if failure.meaning == "run":
            return AccountError(f"{message} (model {self._config.name!r})")
        # A server that took it before speaks of something else, such as what stands in the text.
        if failure.meaning == "option" and formatted and not self._formats:
            return OptionRefused(message)
        if failure.meaning == "retry":
            message += f"; given up after {self._config.attempts} attempts"
        if failure.unreachable and not self._succeeded:
            return AccountError(f"{message}. Check --base-url, and that the server runs.")
        if failure.timeout:
            return ModelTimeout(message, usage=usage)
        return (ModelUnavailable if failure.meaning == "retry" else ModelError)(message, usage=usage)

    def _wasted(self, heard: Heard) -> Usage:
        return self._priced(Usage(calls=1)) if heard.succeeded else Usage()

    def _priced(self, usage: Usage, served: str = "") -> Usage:
        return self._prices.priced(usage, self._config.name, served)

    def _parameters(self, call: Call) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        if self._config.temperature is not None:
            parameters["temperature"] = self._config.temperature
        if body := self._body(call):
            parameters["extra_body"] = body
        return parameters

    def _body(self, call: Call) -> dict[str, Any]:
        body = self._extra_body()
        if call.reply == "json" and self._config.reply_format != "text":
            # As a parameter of its own it would have openai parse replies, which warns of what it finds odd in them.
            return {"response_format": _response_format(call, self._config.reply_format), **body}
        return body

    def _extra_body(self) -> dict[str, Any]:
        config = self._config
        body: dict[str, Any] = {}
        if config.max_tokens is not None:
            body[max_tokens_field(config.name, self._server)] = config.max_tokens
        if config.thinking is not None:
            body |= thinking_body(config.thinking, config.name, self._server)
        return merged(body, config.extra_body)

    def _client(self) -> _Client:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._connect()
        return self._clients[loop]

    def _connect(self) -> _Client:
        import openai
        from langchain_openai import ChatOpenAI

        # langchain-openai's own default client is shared by all event loops of the process.
        http = self._http_client or openai.DefaultAsyncHttpxClient()
        tap(http)
        chat = ChatOpenAI(
            model=self._config.name,
            base_url=self._server.url,
            api_key=self._keys.key,
            default_headers=self._headers,
            timeout=openai.Timeout(self._config.deadline, connect=min(_CONNECT_TIMEOUT, self._config.deadline)),
            http_async_client=http,
            max_retries=0,
            cache=False,
            use_responses_api=False,
            # Explicit, because their defaults come from the environment or set a temperature for some models.
            temperature=None,
            openai_proxy=None,
            http_socket_options=(),
        )
        return _Client(chat, http)


def _response_format(call: Call, reply_format: str) -> dict[str, Any]:
    if reply_format == "json_schema" and call.schema is not None:
        name = _NOT_IN_A_NAME.sub("_", call.role)[:64] or "reply"
        return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(call.schema)}}
    return {"type": "json_object"}


def _error_in(body: bytes) -> Mapping[str, Any]:
    try:
        return error_object(json.loads(body))
    except (ValueError, RecursionError):
        return {"message": body.decode("utf-8", "replace")}
