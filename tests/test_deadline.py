"""A deadline is a duration from now or a time. Work under a deadline is cancelled when it passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import build_config
from agent.deadline import Deadline
from agent.errors import ConfigError, DeadlineReached

NOW = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)


ZONES = ["UTC", "Europe/Berlin", "America/New_York"]


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8h", 28_800), ("90m", 5_400), ("2h30m", 9_000), ("45s", 45), ("1h1m1s", 3_661), ("100h", 360_000)],
)
def test_a_duration_counts_from_now(text: str, seconds: int) -> None:
    assert Deadline.of(text, NOW) == Deadline(NOW + timedelta(seconds=seconds))


@pytest.mark.usefixtures("zone")
def test_a_time_is_its_next_occurrence_on_the_local_clock() -> None:
    now = NOW.astimezone()
    for minutes in (1, 60, 1439, 1440):
        later = now + timedelta(minutes=minutes)
        assert Deadline.of(f"{later:%H:%M}", now) == Deadline(later)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_a_time_keeps_its_wall_clock_value_across_daylight_saving() -> None:
    deadline = Deadline.of("07:30", datetime(2026, 3, 28, 22, tzinfo=UTC).astimezone())
    assert deadline.at == datetime(2026, 3, 29, 5, 30, tzinfo=UTC)


@pytest.mark.usefixtures("zone")
def test_a_time_with_a_date_is_exact() -> None:
    assert Deadline.of("2026-11-23T07:00", NOW) == Deadline(datetime(2026, 11, 23, 7).astimezone(), has_date=True)
    assert Deadline.of("2026-11-23 07:00:30+02:00", NOW).at == datetime(2026, 11, 23, 5, 0, 30, tzinfo=UTC)
    assert Deadline.of("2026-11-23T07:00Z", NOW).at == datetime(2026, 11, 23, 7, tzinfo=UTC)
    assert Deadline.of("13:00Z", NOW) == Deadline(datetime(2026, 11, 22, 13, tzinfo=UTC))


@pytest.mark.parametrize("text", ["3600", 3600, "8", "0730", "1.5", "20261123"])
def test_a_number_without_a_unit_is_rejected(text: str | int) -> None:
    with pytest.raises(ConfigError, match=f"runner.deadline: .*8h.*call_timeout.*{text}"):
        build_config({"runner.deadline": text})


@pytest.mark.parametrize(
    "text",
    ["", "h", "8x", "-8h", "8 h", "0s", "25:00", "tomorrow", "2026-11-23", "\u0668h", "8h30", "2026-11-31T07:00"],
)
def test_malformed_deadlines_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"8h.*07:30"):
        Deadline.of(text, NOW)


@given(st.text(max_size=30) | st.from_regex(r"[0-9]{0,4}[-:hms+.TZ0-9]{0,20}", fullmatch=True))
def test_any_text_is_a_deadline_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert Deadline.of(text).at.tzinfo is not None


class TestEnforce:
    async def test_the_deadline_cancels_work_in_progress(self) -> None:
        with pytest.raises(DeadlineReached, match=r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d") as stop:
            async with Deadline(datetime.now(UTC) + timedelta(seconds=0.05)).enforce():
                await asyncio.sleep(60)
        assert stop.value.hint == ""

    async def test_nothing_starts_after_the_deadline(self) -> None:
        with pytest.raises(DeadlineReached) as stop:
            async with Deadline(datetime.now(UTC), has_date=True).enforce():
                pytest.fail("started")
        assert "--deadline" in stop.value.hint

    async def test_other_timeouts_pass_through(self) -> None:
        with pytest.raises(TimeoutError, match="mine"):
            async with Deadline.of("1h").enforce():
                raise TimeoutError("mine")
