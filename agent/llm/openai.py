"""Models on OpenAI-compatible servers, called through langchain-openai."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import httpx2
import openai
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential_jitter,
    wait_random,
)

from agent.config import ModelConfig
from agent.errors import (
    AccountError,
    ConfigError,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    OptionRefused,
    RunStopped,
    UsageError,
)
from agent.llm.base import Call, Reply, Wait
from agent.llm.chat import Chat, extract_reply
from agent.llm.clients import AsyncClient
from agent.llm.endpoints import build_extra_body, build_response_format, resolve_endpoint
from agent.llm.failures import Failure, build_connection_failure, build_failure, build_status_failure, extract_error
from agent.llm.prices import Prices
from agent.text import plural, replace_surrogates
from agent.types import Usage

T = TypeVar("T")
ApiKey = str | Callable[[], str] | Callable[[], Awaitable[str]]

_log = logging.getLogger(__name__)
_NO_KEY = "none"
_CONNECT_TIMEOUT = 10.0
_MIN_BACKOFF, _MAX_BACKOFF = 1.0, 30.0


class OpenAIModel:
    """A model on an OpenAI-compatible server.

    Args:
        config: name, server, parameters, call timeout and attempts.
        api_key: the key, or a sync or async function that returns it and is called for every attempt.
        http_client: your own `httpx2.AsyncClient` or `httpx.AsyncClient`, for use in one event loop. The caller must
            close it. It must not follow redirects, and it has no limit on the size of a response.
        prices: token prices.
        now: a function that returns the current time, for evaluating dates in `Retry-After`.

    Raises:
        ConfigError: the base URL is invalid, or `http_client` has a wrong type or follows redirects.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        api_key: ApiKey | None = None,
        http_client: Any = None,
        prices: Prices | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if http_client is not None and (
            not hasattr(http_client, "aclose") or getattr(http_client, "follow_redirects", True)
        ):
            raise ConfigError(
                "http_client must be an httpx2.AsyncClient or httpx.AsyncClient with follow_redirects=False: "
                "a redirect would send the key to another server"
            )
        self._config = config
        self._server = resolve_endpoint(config.base_url)
        self._http_client = http_client
        self._prices = prices or Prices.of()
        self._now = now
        self._headers = {**self._server.headers, **config.headers}
        self._api_key: Any = api_key
        # these secrets are masked in messages in the same way as the key
        self._secrets = {secret for value in self._headers.values() for secret in (value, value.rpartition(" ")[2])}
        self._extra_body = build_extra_body(config, self._server)
        self._identity = {
            "kind": "openai",
            "model": config.name,
            "parameters": config.model_dump(include={"temperature", "max_tokens", "thinking"}, exclude_none=True),
            "extra_body": config.extra_body,
            "reply_format": config.reply_format,
        }
        self.has_connected = False  # whether the server has responded in the expected format
        self._accepts_formats = False
        self._chats: WeakKeyDictionary[asyncio.AbstractEventLoop, Chat] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_chats"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _chats=WeakKeyDictionary())

    def __repr__(self) -> str:
        return f"OpenAIModel({self._config.name!r} at {self._server.url})"

    def identity(self) -> Mapping[str, Any]:
        """Return the model name, parameters, extra body and reply format. These are the values from the settings."""
        return self._identity

    @property
    def address(self) -> str:
        """The server's URL without credentials."""
        return self._server.url

    def price(self, usage: Usage, served: str) -> float | None:
        """Return the cost of `usage` in US dollars, or None if no price is known.

        `served` is the model name that the server reported.
        """
        return self._prices.cost(usage, self._config.name, served)

    async def reply(self, call: Call) -> Reply:
        """Call the model, with retries after transient errors.

        Raises:
            ModelUnavailable: the server failed or could not be reached in the last attempt; `usage` covers all
                attempts.
            ModelError: the call failed in a way that a retry cannot fix.
            ModelTimeout: the last attempt exceeded the call timeout.
            AccountError: no call can succeed. The key, the credit or the model name is rejected, or the server was
                never reached or requested a wait of more than ten minutes.
            OptionRefused: the server does not support the reply format.
            UsageError: `http_client` is closed or was used in another event loop.
        """
        formatted = "response_format" in self._build_extra_body(call)
        reply, failed_usage = await self._send_with_retries(call, partial(self._request, call), formatted=formatted)
        self._accepts_formats = self._accepts_formats or formatted
        reply = self._add_price(reply)
        return replace(reply, usage=failed_usage + reply.usage)

    @property
    def attempts(self) -> int:
        """Maximum number of attempts per call."""
        return self._config.attempts

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the request body that `reply` sends for a call."""
        return self._get_chat().build_body(_convert_messages(call), **self._build_parameters(call))

    def parse_response(self, status: int | None, body: Any) -> Reply:
        """Return the reply in a response that `reply` did not receive, such as a response from a batch file.

        `status` is the HTTP status of the response if it is known, and `body` is its parsed body.

        Raises:
            Failure: the body contains no reply.
        """
        if status is not None and status >= 400:
            raise build_failure(status, extract_error(body), self._secrets)
        reply = extract_reply(body, self._secrets)
        self.has_connected = self._accepts_formats = True
        return self._add_price(reply)

    async def request(
        self, send: Callable[..., Awaitable[Any]], *args: Any, once: bool = False, may_be_gone: bool = False
    ) -> Any:
        """Return the result of `send(client, *args)`. Retries after transient errors unless `once` is true.

        If `may_be_gone` is true and the server responds with HTTP 404, the result is None.

        Raises:
            AccountError: see `reply`.
            ModelError: see `reply`.
        """
        client = self._get_chat().root_async_client

        async def attempt() -> Any:
            try:
                return await send(client, *args)
            except openai.NotFoundError:
                if may_be_gone:
                    return None
                raise
            except (AttributeError, TypeError, ValueError) as error:  # HTML, or JSON with an unexpected structure
                raise Failure("did not respond in the format of OpenAI's API") from error

        result, _ = await self._send_with_retries(Call("batch", ()), attempt, attempts=1 if once else self.attempts)
        return result

    async def aclose(self) -> None:
        """Close this event loop's connections. A later call opens new ones."""
        chat = self._chats.pop(asyncio.get_running_loop(), None)
        http = None if chat is None else chat.http_async_client
        if http is not None and http is not self._http_client:
            await http.aclose()

    async def _get_key(self) -> str:
        """Return the key, or a placeholder for servers that need none."""
        key = self._api_key
        if callable(key):
            try:
                key = await asyncio.to_thread(key)
                if inspect.isawaitable(key):
                    key = await key
            except Exception as error:  # the user's function may raise anything
                raise AccountError(f"the `api_key` function raised {type(error).__name__}") from error
            if not isinstance(key, str) or not key:
                raise AccountError(f"the `api_key` function returned no key ({type(key).__name__})")
        if not key:
            return _NO_KEY
        self._secrets.add(key)
        return str(key)

    async def _send_with_retries(
        self, call: Call, send: Callable[[], Awaitable[T]], *, formatted: bool = True, attempts: int | None = None
    ) -> tuple[T, Usage]:
        """Call `send` with retries after transient errors. Return its result and the usage of the failed attempts."""
        failed_usage = Usage()
        try:
            async for attempt in self._build_retrying(call, attempts or self.attempts):
                with attempt:
                    try:
                        with self._translate_errors():
                            result = await send()
                    except Failure as failure:
                        failed_usage += self._prices.add_cost(failure.usage, self._config.name)
                        raise
        except Failure as failure:
            raise self.build_error(failure, failed_usage, formatted=formatted) from failure.__cause__
        self.has_connected = True
        return result, failed_usage

    def _add_price(self, reply: Reply) -> Reply:
        served = reply.model or self._config.name
        usage = self._prices.add_cost(reply.usage, self._config.name, served)
        return replace(reply, model=served, usage=usage, address=self.address)

    def _build_retrying(self, call: Call, attempts: int) -> AsyncRetrying:
        """Build a policy for retrying transient errors.

        The delay before a retry is the one that the server requests. If it requests none, exponential backoff is used.
        A random delay of up to one second is added, so that calls that were refused together are not retried together.
        """
        backoff = wait_exponential_jitter(initial=_MIN_BACKOFF, max=_MAX_BACKOFF, jitter=1)
        spread = wait_random(0, 1)

        def get_failure(state: RetryCallState) -> Failure:
            error = state.outcome.exception() if state.outcome is not None else None
            assert isinstance(error, Failure)
            return error

        def choose_wait(state: RetryCallState) -> float:
            requested = get_failure(state).wait
            return backoff(state) if requested is None else requested + spread(state)

        async def pause(state: RetryCallState) -> None:
            cause = get_failure(state).message.rstrip(".")
            number, seconds = state.attempt_number + 1, state.upcoming_sleep
            # the server's message is not logged, because it may repeat the prompt
            _log.info("%s call for pair %r: attempt %d in %.1f s", call.role, call.pair_id, number, seconds)
            reason = f"the model server at {self._server.url} {cause}; attempt {number} of {self._config.attempts}"
            await call.on_wait(Wait(reason, seconds, get_failure(state).rate_limited, get_failure(state).limits))

        return AsyncRetrying(
            stop=stop_after_attempt(attempts),
            wait=choose_wait,
            before_sleep=pause,
            sleep=_skip_sleep,
            retry=retry_if_exception(lambda error: isinstance(error, Failure) and error.meaning == "retry"),
            reraise=True,
        )

    async def _request(self, call: Call) -> Reply:
        """Make one attempt.

        The timeout covers the whole response, because blank keep-alive lines defeat read timeouts.
        """
        try:
            async with asyncio.timeout(self._config.call_timeout) as deadline:
                message = await self._get_chat().ainvoke(_convert_messages(call), **self._build_parameters(call))
        except TimeoutError as error:
            if not deadline.expired():
                raise
            cause = f"did not return a complete reply within {self._config.call_timeout:g} s"
            raise Failure(cause, usage=Usage(calls=1), timeout=True) from error
        reply: Reply = message.response_metadata["reply"]
        return reply

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert the client's exceptions to a `Failure`."""
        try:
            yield
        except openai.APIStatusError as error:
            raise build_status_failure(error.response, extract_error(error.body), self._secrets, self._now()) from None
        except openai.APIConnectionError as error:
            raise build_connection_failure(
                error, self._secrets, timeout=isinstance(error, openai.APITimeoutError)
            ) from error
        except RuntimeError as error:
            if self._http_client is None:
                raise
            raise UsageError(
                f"http_client: {error}. A client works in only one event loop, and only until it is closed. Create a "
                "client for each call of annotate or stream, or use an Annotator in the event loop of the client"
            ) from error
        except httpx2.HTTPError as error:  # during a file transfer
            raise Failure(f"dropped the connection ({type(error).__name__})") from error

    def build_error(
        self, failure: Failure, usage: Usage | None = None, *, formatted: bool = True
    ) -> RunStopped | ModelError:
        """Return the error for a failure.

        `usage` is the total usage of all attempts. It defaults to the usage of the failed attempt.

        `formatted` is true if the call requested a reply format.
        """
        usage = failure.usage if usage is None else usage
        message = f"the model server at {self._server.url} {failure.message}"
        hint = f". {hint}" if (hint := self._server.explain_proxy()) else ""
        if failure.meaning == "run":
            return AccountError(f"{message} (model {self._config.name!r}){hint}")
        # If the server accepted a format before, the error is about something else, such as the prompt's text.
        if failure.meaning == "option" and formatted and not self._accepts_formats:
            return OptionRefused(message)
        if failure.meaning == "retry":
            message += f"; {plural(self._config.attempts, 'attempt')} failed{hint}"
        if failure.unreachable and not self.has_connected:
            return AccountError(f"{message.rstrip('.')}. Check --base-url and whether the server is running.")
        if failure.timeout:
            return ModelTimeout(message, usage=usage)
        return (ModelUnavailable if failure.meaning == "retry" else ModelError)(message, usage=usage)

    def _build_parameters(self, call: Call) -> dict[str, Any]:
        parameters = {"temperature": self._config.temperature, "extra_body": self._build_extra_body(call) or None}
        return {name: value for name, value in parameters.items() if value is not None}

    def _build_extra_body(self, call: Call) -> dict[str, Any]:
        if call.reply == "json" and self._config.reply_format != "text":
            # If this were a separate parameter, openai would parse replies and warn about unusual ones.
            return {"response_format": build_response_format(call, self._config.reply_format), **self._extra_body}
        return self._extra_body

    def _get_chat(self) -> Chat:
        loop = asyncio.get_running_loop()
        if loop in self._chats:
            return self._chats[loop]
        chat = self._chats[loop] = Chat(
            model=self._config.name,
            base_url=self._server.url,
            api_key=self._get_key,
            default_headers=self._headers,
            timeout=openai.Timeout(self._config.call_timeout, connect=min(_CONNECT_TIMEOUT, self._config.call_timeout)),
            # langchain-openai's client is shared by all event loops of a process
            http_async_client=self._http_client or AsyncClient(),
            max_retries=0,
            cache=False,
            use_responses_api=False,
            # Set explicitly, because the defaults come from the environment or set a temperature for some models.
            temperature=None,
            openai_proxy=None,
            http_socket_options=(),
        )
        chat.mask_secrets(self._secrets)
        return chat


async def _skip_sleep(_seconds: float) -> None:
    return


def _convert_messages(call: Call) -> list[tuple[str, str]]:
    return [(message.role, replace_surrogates(message.content)) for message in call.messages]
