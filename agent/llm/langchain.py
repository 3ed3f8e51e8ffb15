"""Adapter for LangChain chat models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from agent.errors import AccountError, ModelError, ModelTimeout, ModelUnavailable
from agent.llm.background import run_in_background
from agent.llm.base import Call, Reply
from agent.llm.endpoints import strip_credentials
from agent.llm.failures import classify_error, sanitise
from agent.llm.prices import Prices
from agent.text import replace_surrogates
from agent.types import Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel as BaseChatModel
    from langchain_core.messages import AIMessage

_NAMES = ("model_name", "model", "model_id", "deployment_name")
_ADDRESSES = ("openai_api_base", "base_url", "anthropic_api_url", "azure_endpoint", "endpoint_url")
_FINISHES = ("finish_reason", "stop_reason", "done_reason")
_STATUSES = {
    "ModelInvalidRequestError": 400,
    "ModelAuthenticationError": 401,
    "ModelPermissionDeniedError": 403,
    "ModelNotFoundError": 404,
    "ModelRateLimitError": 429,
    "ModelAPIError": 500,
}
"""HTTP statuses of langchain-core's errors, which may come without a status. Older versions lack these classes."""
_DEEPEST = 100
_LARGEST_INTEGER = 1 << 63
_MOST_TOKENS = 10**12


def is_chat_model(value: object) -> bool:
    """Return whether a value is a LangChain chat model."""
    from langchain_core.language_models import BaseChatModel

    return isinstance(value, BaseChatModel)


class LangChainModel:
    """Calls the user's `BaseChatModel`. Retries, keys and JSON mode are configured on that object.

    The calls run in the background loop (see `agent.llm.background`), so any number of event loops can use the object.

    Args:
        model: the chat model.
        call_timeout: maximum duration of one call in seconds, including the model's own retries.
        prices: token prices by model name.
    """

    def __init__(self, model: BaseChatModel, *, call_timeout: float = 600.0, prices: Prices | None = None) -> None:
        self._model = model
        self._call_timeout = call_timeout
        self._prices = prices or Prices.of()
        self._secrets = {value.get_secret_value() for value in vars(model).values() if isinstance(value, SecretStr)}

    def __repr__(self) -> str:
        return f"LangChainModel({type(self._model).__name__} {self._name!r})"

    def identity(self) -> Mapping[str, Any]:
        """Return the class, the model name and the model's identifying parameters, without the server's address."""
        kind = type(self._model)
        parameters = {name: value for name, value in self._model._identifying_params.items() if name not in _ADDRESSES}
        return {
            "kind": "langchain",
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "model": self._name,
            "parameters": as_json_value(parameters, self._secrets),
        }

    @property
    def address(self) -> str:
        """The server's URL without credentials, or an empty string if unknown."""
        addresses = (getattr(self._model, name, None) for name in _ADDRESSES)
        return strip_credentials(next((str(address) for address in addresses if address), ""))

    def price(self, usage: Usage, served: str) -> float | None:
        """Return the cost of `usage` in US dollars, or None if no price is known.

        `served` is the model name that the server reported.
        """
        return self._prices.cost(usage, self._name, served)

    async def reply(self, call: Call) -> Reply:
        """Call the model once.

        Raises:
            ModelUnavailable: the server failed or could not be reached.
            ModelTimeout: the call timeout or the model's own timeout expired.
            AccountError: the error's status or code means that every call will fail (401, 402, 403, 404, no quota).
            ModelError: the model raised any other exception; `__cause__` is that exception.
        """
        messages = [(message.role, replace_surrogates(message.content)) for message in call.messages]
        try:
            async with asyncio.timeout(self._call_timeout) as deadline:
                message = await asyncio.wrap_future(run_in_background(self._model.ainvoke(messages)))
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline.expired():
                raise ModelTimeout(f"{self!r} did not reply within {self._call_timeout:g} s", usage=Usage()) from error
            raise self._build_error(error) from error
        return replace(_parse_message(message, self._name, self._prices, self._secrets), address=self.address)

    @property
    def _name(self) -> str:
        names = (getattr(self._model, name, None) for name in _NAMES)
        return next((name for name in names if isinstance(name, str) and name), type(self._model).__name__)

    def _build_error(self, error: Exception) -> ModelError | AccountError:
        message = f"{self!r} raised {type(error).__name__}: {sanitise(str(error), self._secrets)}"
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
        kinds = [kind.__name__ for kind in type(error).__mro__]
        if not isinstance(status, int):
            status = next((_STATUSES[kind] for kind in kinds if kind in _STATUSES), 0)
        details = {"message": str(error), "code": getattr(error, "code", None), "type": getattr(error, "type", None)}
        meaning = classify_error(status, details)
        if meaning == "run":
            return AccountError(message)
        if any("Timeout" in kind for kind in kinds):
            return ModelTimeout(message, usage=Usage())
        if meaning == "retry" or any("Connection" in kind for kind in kinds):
            return ModelUnavailable(message, usage=Usage())
        return ModelError(message, usage=Usage())


def _parse_message(message: AIMessage, name: str, prices: Prices, secrets: Set[str]) -> Reply:
    """Return the reply in a message from the model `name`, with `secrets` masked."""
    metadata = message.response_metadata or {}
    served = str(metadata.get("model_name") or metadata.get("model") or name)
    usage_metadata: Mapping[str, Any] = message.usage_metadata or {}
    cached = usage_metadata.get("total_cost") == 0  # LangChain's cache adds this to cached replies
    fingerprint = metadata.get("system_fingerprint")
    finish = next((metadata[name] for name in _FINISHES if metadata.get(name)), None)
    return Reply(
        text=replace_surrogates(str(message.text)),
        usage=Usage() if cached else prices.add_cost(_parse_usage(message), name, served),
        model=served,
        fingerprint=str(fingerprint) if fingerprint else None,
        finish_reason=str(finish).lower() if finish else None,  # Gemini's are in upper case
        reasoning=_extract_reasoning(message),
        raw=as_json_value(message.model_dump(exclude={"example", "name"}), secrets),
        cached=cached,
    )


def as_json_value(value: Any, secrets: Set[str] = frozenset(), depth: int = 0) -> Any:
    """Convert a value to one that any JSON encoder accepts.

    An object without a JSON equivalent is replaced with the name of its class. `secrets` are masked.

    Raises:
        ValueError: the value is nested too deeply.
    """
    if isinstance(value, str):
        return "***" if value in secrets else replace_surrogates(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _LARGEST_INTEGER else str(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if depth > _DEEPEST:
        raise ValueError("the value is nested too deeply")
    if isinstance(value, Mapping):
        return {replace_surrogates(str(key)): as_json_value(item, secrets, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json_value(item, secrets, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((as_json_value(item, secrets, depth + 1) for item in value), key=json.dumps)
    return type(value).__name__


def parse_count(value: Any) -> int:
    """Return the number of tokens that a server reported, or 0 if the value is invalid."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_TOKENS:
        return 0
    return int(value)


def _parse_usage(message: AIMessage) -> Usage:
    usage: Mapping[str, Any] = message.usage_metadata or {}
    input_details: Mapping[str, Any] = usage.get("input_token_details") or {}
    output_details: Mapping[str, Any] = usage.get("output_token_details") or {}
    return Usage(
        calls=1,
        input_tokens=parse_count(usage.get("input_tokens")),
        cached_input_tokens=parse_count(input_details.get("cache_read")),
        output_tokens=parse_count(usage.get("output_tokens")),
        reasoning_tokens=parse_count(output_details.get("reasoning")),
    )


def _extract_reasoning(message: AIMessage) -> str | None:
    content = message.additional_kwargs.get("reasoning_content")
    if isinstance(content, str) and content:
        return replace_surrogates(content)
    blocks = message.content if isinstance(message.content, list) else []
    thoughts = [block.get("thinking") or block.get("reasoning") for block in blocks if isinstance(block, dict)]
    return replace_surrogates("\n".join(thought for thought in thoughts if isinstance(thought, str))) or None
