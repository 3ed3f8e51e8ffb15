"""The time until which a run may go on."""

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
    """A moment, with its zone. `has_date`: once it is over, the same words mean no later one."""

    at: datetime
    has_date: bool = False

    @classmethod
    def of(cls, text: str, now: datetime | None = None) -> Self:
        """Read a duration, which counts from `now`, or a time: the next such where it has no date, local without zone.

        Raises:
            ValueError: it is neither; the message says what is one.
        """
        now = now or datetime.now().astimezone()
        if re.fullmatch(r"[\d.]+", text):
            raise ValueError("give a number a unit, as in 8h, 90m or 45s (for the seconds of one call: --call-timeout)")
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
            message = "give a duration, as 8h, 90m, 2h30m or 45s, or a time, as 07:30 or 2026-11-23T07:00"
            raise ValueError(message) from None

    def check(self) -> None:
        """Let things go on.

        Raises:
            DeadlineReached: the moment is over.
        """
        if datetime.now(self.at.tzinfo) >= self.at:
            raise self._make_error()

    def _make_error(self) -> DeadlineReached:
        hint = "with a later deadline (--deadline)" if self.has_date else ""
        return DeadlineReached(f"the deadline has come ({self.at:%Y-%m-%d %H:%M:%S})", hint)

    @asynccontextmanager
    async def enforce(self) -> AsyncIterator[None]:
        """End what is done here when the moment comes.

        Raises:
            DeadlineReached: it was ended, or the moment was over before.
        """
        self.check()
        try:
            async with asyncio.timeout((self.at - datetime.now(self.at.tzinfo)).total_seconds()) as timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._make_error() from None
