"""Classification of failed calls: retry the call, end the pair, or stop the run because of an option or the account."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from agent.llm.endpoints import strip_credentials
from agent.llm.limits import select_limits
from agent.text import one_line
from agent.types import Usage

Meaning = Literal["retry", "pair", "option", "run"]

_RETRY_STATUSES = frozenset({408, 409, 429})
_RATE_LIMIT_STATUSES = frozenset({429, 503, 529})
_RUN_STATUSES = frozenset({401, 402, 403, 404})
_NO_QUOTA = frozenset({"insufficient_quota", "billing_not_active", "billing_hard_limit_reached"})
_NOT_CONNECTED = frozenset({"ConnectError", "ConnectTimeout", "ProxyError"})
_NO_MODEL = frozenset({"model_not_found", "invalid_model"})
_NO_KEY = frozenset({"invalid_api_key", "no_db_connection"})  # LiteLLM without a database rejects a key as the latter
_NO_KEY_TEXT = re.compile(r"(incorrect|invalid) api[ _]key|api[ _]key not valid|api key .{0,20}invalid", re.I)
_NO_MODEL_TEXT = re.compile(
    r"model not exist|not a valid model id|invalid model( name| id|:| ['\"])|model identifier is invalid"
    r"|model .{0,80}(does not exist|not found)",
    re.I,
)
_CONTENT_POLICY = re.compile(r"moderation|flagged|content[ _](policy|filter|management)", re.I)
# A longer wait stops the run. Waiting that long for every pair would take days, and an earlier retry would fail.
_LONGEST_WAIT = 600.0
_LONGEST_MESSAGE = 300
_CERTIFICATE_REMEDY = "Set SSL_CERT_FILE to a file with that certificate or the certificate of its authority."
_REDIRECT_REMEDY = "A redirect would send the key to that address. If you trust it, pass it as --base-url."
_SHORTEST_SECRET = 4


@dataclass(eq=False)
class Failure(Exception):
    """An attempt that produced no reply.

    `message` completes "the model server at URL ...". `wait` is the pause in seconds that the server requested. `usage`
    contains one call if the server may have billed the attempt. `rate_limited` is true if the server refused the call
    because of a rate limit or overload. `limits` contains the rate limit headers of the response, in the same form as
    `Reply.limits`.
    """

    message: str
    meaning: Meaning = "retry"
    wait: float | None = None
    usage: Usage = Usage()
    timeout: bool = False
    unreachable: bool = False
    rate_limited: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


def classify_error(status: int, error: Mapping[str, Any]) -> Meaning:
    """Classify an error by its HTTP status and its error object (`message`, `code`, `type`, `param`)."""
    codes = {str(error.get("code")), str(error.get("type"))}
    message = str(error.get("message") or "")
    if codes & _NO_QUOTA or 300 <= status < 400:
        return "run"
    if status in _RETRY_STATUSES or status >= 500:
        return "retry"
    if status == 403 and _CONTENT_POLICY.search(message):
        return "pair"
    if status in _RUN_STATUSES or codes & _NO_MODEL or (status == 400 and _NO_MODEL_TEXT.search(message)):
        return "run"
    if _rejects_key(status, error):
        return "run"
    return "option" if _concerns_format(error) else "pair"


def suggest_remedy(status: int, error: Mapping[str, Any]) -> str:
    """Return a sentence that says how to fix an error, or an empty string if no fix is known."""
    if status == 401 or _rejects_key(status, error):
        return "Check the key (OPENAI_API_KEY, or `api_key`)."
    if status == 402 or {str(error.get("code")), str(error.get("type"))} & _NO_QUOTA:
        return "Top up the account, then run the same command again to resume."
    if status == 403:
        return "Check that the key has access to this model."
    if status == 404 or classify_error(status, error) == "run":
        return "Check the model's name (--model) and the server's address (--base-url)."
    if _concerns_format(error):
        return "Choose another reply format: -c reply_format=text (or json_object, json_schema)."
    return ""


def _rejects_key(status: int, error: Mapping[str, Any]) -> bool:
    """Return whether an error with HTTP status 400 rejects the key. LiteLLM, Gemini and xAI send such errors."""
    codes = {str(error.get("code")), str(error.get("type"))}
    return status == 400 and bool(codes & _NO_KEY or _NO_KEY_TEXT.search(str(error.get("message") or "")))


def _concerns_format(error: Mapping[str, Any]) -> bool:
    return any("response_format" in str(error.get(name)) for name in ("message", "param"))


def extract_error(body: Any) -> Mapping[str, Any]:
    """Return the error object from a parsed response body. Accepts all forms that servers commonly use."""
    if isinstance(body, list) and body:  # Gemini's compatible API
        body = body[0]
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        return error if error.get("message") else {**error, "message": error.get("detail") or ""}
    return {"message": error if isinstance(error, str) else ""}


def parse_status(value: Any) -> int | None:
    """Return the HTTP status in a field of a response body, such as 400 or "400", or None if there is none."""
    return int(value) if re.fullmatch(r"[1-5]\d\d", str(value), re.ASCII) else None


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait in seconds that a `retry-after-ms` or `Retry-After` header requests, or None.

    `Retry-After` contains a number of seconds or a date. LiteLLM puts its own wait into `llm_provider-retry-after`.
    """
    if (milliseconds := _parse_number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    text = headers.get("retry-after") or headers.get("llm_provider-retry-after") or ""
    if (seconds := _parse_number(text)) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(text)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0.0, (date - now).total_seconds())
    except (ValueError, OverflowError):
        return None


def build_status_failure(response: Any, error: Mapping[str, Any], secrets: Iterable[str], now: datetime) -> Failure:
    """Build the failure for a response whose status is no success. `response` is from httpx or httpx2."""
    headers = response.headers
    if response.has_redirect_location:
        target = sanitise(strip_credentials(str(response.url.join(headers["location"]))), secrets)
        return Failure(f"redirects to {target}. {_REDIRECT_REMEDY}", "run")
    wait, limits = parse_retry_after(headers, now), select_limits(headers)
    return build_failure(response.status_code, error, secrets, wait=wait, limits=limits)


def build_failure(
    status: int | None,
    error: Mapping[str, Any],
    secrets: Iterable[str],
    *,
    wait: float | None = None,
    usage: Usage | None = None,
    limits: Mapping[str, str] | None = None,
) -> Failure:
    """Build the failure for an HTTP status and an error object. Masks secrets in the message.

    Without a `status`, the call may be retried.
    """
    detail = sanitise(str(error.get("message") or error.get("code") or ""), secrets)
    message = f"returned {'an error' if status is None else f'HTTP {status}'}{': ' + detail if detail else ''}"
    status = status or 500
    action, meaning = suggest_remedy(status, error), classify_error(status, error)
    if meaning == "retry" and wait is not None and wait > _LONGEST_WAIT:
        meaning = "run"
        action = (
            f"The server requests a wait of {wait / 60:,.4g} minutes. Run the same command again afterwards to resume."
        )
    message = f"{message.rstrip('.')}. {action}" if action else message
    return Failure(
        message,
        meaning,
        wait=wait,
        usage=usage or Usage(),
        rate_limited=status in _RATE_LIMIT_STATUSES,
        limits=limits or {},
    )


def build_connection_failure(error: Exception, secrets: Iterable[str], *, timeout: bool) -> Failure:
    """Build the failure for a connection that could not be opened, was dropped or timed out."""
    cause: BaseException = error
    while cause.__cause__ is not None and type(cause).__name__ not in _NOT_CONNECTED:
        cause = cause.__cause__
    # Compared by name, because the error comes from httpx or httpx2, depending on the user's client.
    kind = type(cause).__name__
    if "CERTIFICATE_VERIFY_FAILED" in str(cause):
        detail = sanitise(str(cause), secrets)
        return Failure(f"has a certificate that is not trusted ({detail}). {_CERTIFICATE_REMEDY}", "run")
    if kind in _NOT_CONNECTED:
        return Failure(f"cannot be reached ({kind}: {sanitise(str(cause), secrets)})", unreachable=True)
    message = "did not return a complete reply in time" if timeout else "dropped the connection"
    return Failure(f"{message} ({kind})", usage=Usage(calls=1), timeout=timeout)


def sanitise(text: str, secrets: Iterable[str]) -> str:
    """Prepare a server's text for a message: shorten it to one line, and remove control characters and secrets."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return one_line(text, _LONGEST_MESSAGE)


def _parse_number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
