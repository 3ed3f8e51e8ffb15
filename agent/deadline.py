"""The deadline of a run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Self

from agent.errors import DeadlineReached

_DURATION = re.compile(r"(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,6})m)?(?:(?P<seconds>\d{1,6})s)?", re.ASCII)


@dataclass(frozen=True)
class Deadline:
    """A point in time with a time zone.

    `has_date` is true if the text contained a date. The deadline then stays the same when the run is resumed.
    """

    at: datetime
    has_date: bool = False

    @classmethod
    def of(cls, text: str, now: datetime | None = None) -> Self:
        """Parse a duration, which is measured from `now`, or a time.

        A time without a date refers to the next occurrence of that time. A time without a time zone is in local time.

        Raises:
            ValueError: the text is neither a duration nor a time. The message describes the accepted forms.
        """
        now = now or datetime.now().astimezone()
        if re.fullmatch(r"[\d.]+", text):
            raise ValueError("add a unit, as in 8h, 90m or 45s (to limit a single model call, set call_timeout)")
        match = _DURATION.fullmatch(text)
        parts = match.groupdict("0") if match else {}
        try:
            if duration := timedelta(**{unit: int(count) for unit, count in parts.items()}):
                return cls(now + duration)
            if ":" not in text:
                raise ValueError
            if "-" in text[:5]:
                return cls(datetime.fromisoformat(text).astimezone(), has_date=True)
            daily = time.fromisoformat(text)
            at = datetime.combine(now.astimezone(daily.tzinfo), daily)
            return cls((at if at.astimezone() > now else at + timedelta(days=1)).astimezone())
        except (ValueError, OverflowError, OSError):
            message = "expected a duration such as 8h, 90m, 2h30m or 45s, or a time such as 07:30 or 2026-11-23T07:00"
            raise ValueError(message) from None

    def check(self) -> None:
        """Check that the deadline has not passed.

        Raises:
            DeadlineReached: the deadline has passed.
        """
        if datetime.now(self.at.tzinfo) >= self.at:
            raise self._make_error()

    def _make_error(self) -> DeadlineReached:
        hint = "with a later deadline (--deadline)" if self.has_date else ""
        return DeadlineReached(f"the deadline ({self.at:%Y-%m-%d %H:%M:%S}) has passed", hint)

    @asynccontextmanager
    async def enforce(self) -> AsyncIterator[None]:
        """Return a context manager that cancels its body at the deadline.

        Raises:
            DeadlineReached: the body was cancelled, or the deadline had already passed.
        """
        self.check()
        try:
            async with asyncio.timeout((self.at - datetime.now(self.at.tzinfo)).total_seconds()) as timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._make_error() from None
