"""API keys, from a text or from a function; and what may not be shown because of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from agent.errors import AccountError
from agent.llm.failures import shown

ApiKey = str | Callable[[], str] | Callable[[], Awaitable[str]]

_DUMMY = "none"


class KeyRing:
    """Gives the key for each call, and keeps it and the secret headers' values out of messages.

    Args:
        source: the key, a function (it may be async) that is asked for it each time, or None where none is needed.
        hidden: values of headers, such as `Bearer ...`.
    """

    def __init__(self, source: ApiKey | None, hidden: Iterable[str] = ()) -> None:
        self._source = source
        self._secrets = {secret for value in hidden for secret in (value, value.rpartition(" ")[2])}

    async def key(self) -> str:
        """Return the key, or a dummy for servers that ask for none.

        Raises:
            AccountError: the function raised, or gave no text.
        """
        key = self._source if isinstance(self._source, str) or self._source is None else await _ask(self._source)
        if not key:
            return _DUMMY
        self._secrets.add(key)
        return key

    def shown(self, text: str) -> str:
        """Return a server's text fit for a message, without the secrets."""
        return shown(text, self._secrets)


async def _ask(function: Callable[[], Any]) -> str:
    try:
        key = await function() if inspect.iscoroutinefunction(function) else await asyncio.to_thread(function)
    except Exception as error:  # the user's function may raise anything
        raise AccountError(f"the function given as api_key failed: {type(error).__name__}") from error
    if not isinstance(key, str) or not key:
        raise AccountError(f"the function given as api_key returned no key but {type(key).__name__}")
    return key
