"""What a failed call means: worth another try, the end of the pair, or (an option, an account) the end of the run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from agent.prompt_text import make_printable
from agent.types import Usage

Meaning = Literal["retry", "pair", "option", "run"]

_RETRIED = frozenset({408, 409, 429})
_REFUSED = frozenset({429, 503, 529})
_RUN_ENDS = frozenset({401, 402, 403, 404})
_NO_QUOTA = frozenset({"insufficient_quota", "billing_not_active", "billing_hard_limit_reached"})
_NOT_CONNECTED = frozenset({"ConnectError", "ConnectTimeout", "ProxyError"})
_NO_MODEL = frozenset({"model_not_found", "invalid_model"})
_NO_MODEL_TEXT = re.compile(r"model not exist|not a valid model id|model .{0,80}(does not exist|not found)", re.I)
_ABOUT_THE_TEXT = re.compile(r"moderation|flagged|content[ _](policy|filter|management)", re.I)
# A server that asks for more stops the run: to wait in vain for every pair takes days, to ask before gives nothing.
_LONGEST_WAIT = 600.0
_LONGEST_MESSAGE = 300
_SHORTEST_SECRET = 4


@dataclass(eq=False)
class Failure(Exception):
    """One attempt that gave no reply.

    `why` completes "the model server at URL ...". `wait` is what the server asked to wait, in seconds. `usage` is what
    the attempt cost: one call where the server may have billed it. `refused`: the server says that it is asked too
    much. `limits` are the response's headers, as in `Reply.limits`.
    """

    why: str
    meaning: Meaning = "retry"
    wait: float | None = None
    usage: Usage = Usage()
    timeout: bool = False
    unreachable: bool = False
    rate_limited: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.why


def classify_error(status: int, error: Mapping[str, Any]) -> Meaning:
    """Judge an error status with its error object (`message`, `code`, `type`)."""
    codes = {str(error.get("code")), str(error.get("type"))}
    message = str(error.get("message") or "")
    if codes & _NO_QUOTA:
        return "run"
    if status in _RETRIED or status >= 500:
        return "retry"
    if status == 403 and _ABOUT_THE_TEXT.search(message):
        return "pair"
    if status in _RUN_ENDS or codes & _NO_MODEL or (status == 400 and _NO_MODEL_TEXT.search(message)):
        return "run"
    return "option" if _concerns_format(error) else "pair"


def suggest_remedy(status: int, error: Mapping[str, Any]) -> str:
    """Return what the user can do about an error, as a sentence; empty when nothing is known."""
    if status == 401:
        return "Check the key (OPENAI_API_KEY, or `api_key`)."
    if status == 402 or {str(error.get("code")), str(error.get("type"))} & _NO_QUOTA:
        return "Top up the account, then run the same command again: it goes on where it stopped."
    if status == 403:
        return "Check that the key may use this model."
    if status == 404 or classify_error(status, error) == "run":
        return "Check the model's name (--model) and the server's address (--base-url)."
    if _concerns_format(error):
        return "Ask for JSON in another way: --reply-format text (or json_object, json_schema)."
    return ""


def _concerns_format(error: Mapping[str, Any]) -> bool:
    return any("response_format" in str(error.get(name)) for name in ("message", "param"))


def extract_error(body: Any) -> Mapping[str, Any]:
    """Return the error object of a parsed body, whichever of the usual forms it has."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        return error if error.get("message") else {**error, "message": error.get("detail") or ""}
    return {"message": error if isinstance(error, str) else ""}


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds a server asks to wait (`Retry-After` in seconds or as a date); None when it does not say."""
    if (milliseconds := _parse_number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    if (seconds := _parse_number(headers.get("retry-after"))) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0.0, (date - now).total_seconds())
    except (ValueError, OverflowError):
        return None


def build_failure(
    status: int,
    error: Mapping[str, Any],
    secrets: Iterable[str],
    *,
    wait: float | None = None,
    usage: Usage | None = None,
    limits: Mapping[str, str] | None = None,
) -> Failure:
    """Return what an error status with its error object amounts to, without the secrets."""
    message = sanitise(str(error.get("message") or error.get("code") or ""), secrets)
    why = f"answered HTTP {status}{': ' + message if message else ''}"
    action, meaning = suggest_remedy(status, error), classify_error(status, error)
    if meaning == "retry" and wait is not None and wait > _LONGEST_WAIT:
        meaning = "run"
        action = f"It asks to wait {wait / 60:,.4g} minutes: run the same command after that, it goes on from here."
    why = f"{why.rstrip('.')}. {action}" if action else why
    return Failure(
        why, meaning, wait=wait, usage=usage or Usage(), rate_limited=status in _REFUSED, limits=limits or {}
    )


def build_connection_failure(error: Exception, secrets: Iterable[str], *, timeout: bool) -> Failure:
    """Return what it amounts to that there was no connection, or an end of it."""
    cause: BaseException = error
    while cause.__cause__ is not None and type(cause).__name__ not in _NOT_CONNECTED:
        cause = cause.__cause__
    # By name: the user's client decides whether the error is httpx's or httpx2's.
    kind = type(cause).__name__
    if kind in _NOT_CONNECTED:
        return Failure(f"cannot be reached ({kind}: {sanitise(str(cause), secrets)})", unreachable=True)
    what = "gave no complete reply in time" if timeout else "cut the connection"
    return Failure(f"{what} ({kind})", usage=Usage(calls=1), timeout=timeout)


def sanitise(text: str, secrets: Iterable[str]) -> str:
    """Return a server's text fit for a message: short, on one line, without control characters and secrets."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    text = " ".join(make_printable(text).split())
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "..."


def _parse_number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
