"""Sandboxes for code of another time: the Python and the packages of a pair's year, each made on first need."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from agent.errors import EraUnavailable, InterpreterUnavailable, SandboxUnavailable, UsageError
from agent.sandbox.base import Environment, EnvironmentBuilder, Progress, Sandbox, SandboxBackend
from agent.sandbox.dependencies.environments import WheelEnvironments

_RELEASED = {2019: "3.8", 2020: "3.9", 2021: "3.10", 2022: "3.11", 2023: "3.12", 2024: "3.13", 2025: "3.14"}
_YEAR = re.compile(r"\d{4}")
_EARLIEST = 1991


@dataclass(frozen=True)
class Era:
    """The newest Python there was, of those that sandboxes can run, and the moment after which no wheel is taken."""

    python: str
    newest: datetime


def era_of(year: object) -> Era | None:
    """Return the era that a pair's field `year` means: a number, its text, or a date; None for anything else."""
    number = _number(year)
    if number is None or not _EARLIEST <= number < date.max.year:
        return None
    python = next((_RELEASED[known] for known in sorted(_RELEASED, reverse=True) if known <= number), _RELEASED[2019])
    return Era(python, end_of(date(number, 12, 31)))


def _number(year: object) -> int | None:
    if isinstance(year, int) and not isinstance(year, bool):
        return year
    if not isinstance(year, str):
        return None
    if _YEAR.fullmatch(year.strip()):
        return int(year)
    try:
        return datetime.fromisoformat(year.strip()).year
    except ValueError:
        return None


class Eras(SandboxBackend):
    """A backend by the run's own settings, which has others for pairs with a year.

    `own` is started; `make` makes one of its kind for a minor version of Python. A version that is not here is asked
    for once.
    """

    def __init__(self, own: SandboxBackend, make: Callable[[str], SandboxBackend]) -> None:
        self.name = own.name
        self.environments = own.environments
        self.limits = own.limits
        self._own = own
        self._make = make
        self._progress: Progress = lambda _line: None
        self._waits: Progress | None = None
        self._backends: dict[str, SandboxBackend] = {}
        self._missing: dict[str, str] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._eras: dict[Era, _OfEra] = {}

    def of(self, year: object) -> SandboxBackend:
        """Return the backend for a pair's year; it is this one where the pair has none. Nothing is started yet."""
        era = era_of(year)
        return self if era is None else self._eras.setdefault(era, _OfEra(era, self))

    async def start(self, progress: Progress) -> None:
        """Start the run's own backend; what others report goes to `progress` as well."""
        self._progress = progress
        await self._own.start(progress)

    def listen(self, waits: Progress) -> None:
        """Have `waits` given what is waited for, whichever backend it is for."""
        self._waits = waits
        for backend in (*self._backends.values(), self._own):
            backend.listen(waits)

    def describe(self) -> Mapping[str, str]:
        """Return what the run's own backend is."""
        return {**self._own.describe(), "era": "pair"}

    def unenforced(self) -> Mapping[str, str]:
        """Return what the run's own backend cannot enforce."""
        return self._own.unenforced()

    async def acquire(self) -> Sandbox:
        """Start a sandbox by the run's own settings."""
        return await self._own.acquire()

    async def close(self) -> None:
        """Close all backends."""
        for backend in (*self._backends.values(), self._own):
            await backend.close()

    async def with_python(self, python: str) -> SandboxBackend:
        """Return a started backend for a minor version of Python."""
        if self._own.describe().get("python", "").startswith(f"{python}."):
            return self._own
        async with self._turns[python]:
            if python in self._missing:
                raise EraUnavailable(self._missing[python])
            if python not in self._backends:
                self._backends[python] = await self._started(python)
            return self._backends[python]

    async def _started(self, python: str) -> SandboxBackend:
        backend = self._make(python)
        try:
            await backend.start(self._progress)
            backend.listen(self._waits or self._progress)
        except InterpreterUnavailable as error:
            self._missing[python] = f"the pair's year asks for Python {python}: {error}"
            raise EraUnavailable(self._missing[python]) from error
        except SandboxUnavailable as error:
            raise EraUnavailable(f"sandboxes with Python {python} do not work: {error}") from error
        return backend


class _OfEra(SandboxBackend):
    """A view of the backends for the pairs of one era."""

    def __init__(self, era: Era, eras: Eras) -> None:
        self.name = eras.name
        self.environments: EnvironmentBuilder = _EnvironmentsOfEra(era, eras)
        self._era = era
        self._eras = eras

    def describe(self) -> Mapping[str, str]:
        """Return what is known without starting anything."""
        return {**self._eras.describe(), "python": self._era.python}

    def unenforced(self) -> Mapping[str, str]:
        """Return what backends of this kind cannot enforce."""
        return self._eras.unenforced()

    async def acquire(self) -> Sandbox:
        """Start a sandbox with the era's Python."""
        return await (await self._eras.with_python(self._era.python)).acquire()


class _EnvironmentsOfEra(EnvironmentBuilder):
    """Builds environments for the Python of an era, of wheels that were there by then."""

    def __init__(self, era: Era, eras: Eras) -> None:
        self._era = era
        self._eras = eras
        self.always = eras.environments.always
        self._builder: WheelEnvironments | None = None

    async def build(self, requirements: Sequence[str]) -> Environment:
        """Build an environment, as `EnvironmentBuilder` says."""
        return await (await self._made()).build(requirements)

    async def kept(self, key: str) -> Environment | None:
        """Return an environment of the store, as `EnvironmentBuilder` says."""
        return await (await self._made()).kept(key)

    def release(self, key: str) -> None:
        """Undo one `build`."""
        if self._builder is not None:
            self._builder.release(key)

    def forget(self, key: str) -> None:
        """Take an environment for gone."""
        if self._builder is not None:
            self._builder.forget(key)

    async def requirement(self, import_name: str) -> str | None:
        """Return a requirement for an import name."""
        return await (await self._made()).requirement(import_name)

    async def _made(self) -> WheelEnvironments:
        backend = await self._eras.with_python(self._era.python)
        if self._builder is None:
            assert isinstance(backend.environments, WheelEnvironments)
            self._builder = backend.environments.before(self._era.newest)
        return self._builder


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
