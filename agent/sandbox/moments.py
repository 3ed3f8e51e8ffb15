"""Points in time as people write them: a day, or a moment of RFC 3339."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from agent.errors import UsageError


def read_moment(text: str) -> datetime:
    """Return the moment that a text means: for a day its end, in UTC where no zone is given.

    Raises:
        UsageError: it is neither a day nor a moment.
    """
    try:
        return end_of(date.fromisoformat(text.strip()))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no date: expected one such as 2016-12-31 or 2016-12-31T12:00:00Z") from None


def end_of(day: date) -> datetime:
    """Return the first moment after a day.

    Raises:
        ValueError: there is none.
    """
    try:
        return datetime.combine(day + timedelta(days=1), time(), UTC)
    except OverflowError:
        raise ValueError(f"{day} has no end") from None
