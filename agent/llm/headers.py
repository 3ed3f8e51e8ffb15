"""What the headers of a response say of limits by the minute."""

from __future__ import annotations

import re
from collections.abc import Mapping

_OF_LIMITS = "x-ratelimit-"
_DAY = 86_400.0
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?")
_UNITS = (3600.0, 60.0, 1.0, 0.001)


def limits_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what a response's headers say of limits, as `Reply.limits` has it."""
    return {name: value for name, value in headers.items() if name.startswith(_OF_LIMITS)}


def read(headers: Mapping[str, str], what: str) -> tuple[float, float, float] | None:
    """Return limit, what remains of it, and the seconds to its reset, as headers say; None where they do not.

    The headers are `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, a reset as in `1m30s`, `20ms` or `2.5`.
    """
    limit, remaining = (_count(headers.get(f"x-ratelimit-{name}-{what}", "")) for name in ("limit", "remaining"))
    reset = _seconds(headers.get(f"x-ratelimit-reset-{what}", ""))
    if limit is None or remaining is None or reset is None or not 1 <= limit >= remaining or reset > _DAY:
        return None
    return limit, remaining, reset


def _count(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None


def _seconds(text: str) -> float | None:
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        return float(text)
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        return None
    return sum(float(part) * unit for part, unit in zip(found.groups(), _UNITS, strict=True) if part)
