"""Dependency environments (stage 1 of the Bug Fixer): requirements become wheels, wheels become an environment.

Wheels are fetched, then installed by the backend's `Installer`, each in throwaway sandboxes without network. An
environment's key is the hash of its wheels and of the interpreter, so equal wheels make one environment.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agent.errors import DependencyUnavailable, EnvironmentGone, SandboxError
from agent.sandbox.base import Environment, EnvironmentBuilder
from agent.sandbox.dependencies.contradictions import contradiction
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.pip_options import read_sources
from agent.sandbox.dependencies.requirements import MalformedRequirement, merged, parse_requirement
from agent.sandbox.dependencies.upkeep import Shelf, shrink
from agent.sandbox.dependencies.wheel_cache import Answer, WheelCache, default_cache
from agent.sandbox.dependencies.wheels import InterpreterTag, WheelFetcher
from agent.sandbox.flights import Flights

__all__ = ["Installer", "InterpreterTag", "Supply", "WheelEnvironments"]

ANSWER_LIFE = 7 * 24 * 3600.0
"""Seconds for which an index's answer is used again; an older one only when the index cannot be asked."""

SILENCE = 60.0
"""Seconds for which an index that did not answer is not asked again."""

_KEY = re.compile(r"[0-9a-f]{8,64}")
_DOWNLOADS = 2
_ATTEMPTS = 2


@dataclass(frozen=True)
class Supply:
    """Which dependencies may be had, and how many are kept.

    With `network` off only what was fetched before is used. Nothing is fetched that the `rule` does not admit; without
    one everything asked for is. `always` are requirements of the user's own, which the rule does not judge: they are
    part of every environment. What an index got at the moment `newest` or later is not taken. After a build the store
    is shrunk to `limit` bytes, and so is the cache (0: they grow without limit).
    """

    network: bool = True
    rule: IndexRule | None = None
    limit: int = 0
    always: tuple[str, ...] = ()
    newest: datetime | None = None


class Installer(Shelf, Protocol):
    """Puts wheels into an environment that sandboxes of one backend can use. Keys are lower-case hexadecimal digits."""

    @property
    def interpreter(self) -> InterpreterTag:
        """The interpreter that sandboxes run; asked for only when something is built."""
        ...

    async def installed(self, key: str) -> tuple[str, ...] | None:
        """Return the lock (`name==version`, sorted) of a published environment, or None when there is none.

        Raises:
            SandboxError: the store cannot be read.
        """
        ...

    async def install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        """Install wheels, all that is needed, in a throwaway sandbox without network; publish atomically under `key`.

        Returns the lock, as `installed` does. A key that was published meanwhile is left as it is.

        Raises:
            SandboxError: the builder broke.
            DependencyUnavailable: a wheel cannot be installed.
        """
        ...

    def forget(self, key: str) -> None:
        """Take an environment for gone, whatever is known of it: `installed` looks again."""
        ...


class WheelEnvironments(EnvironmentBuilder):
    """Fetches wheels with the host's pip settings, as far as the `supply` goes.

    `cache` is a folder for wheels and the index's answers, by default the user's cache folder. An answer counts for the
    indexes it came from alone, which `sources` names. A refusal is remembered as long as this object lives.
    """

    def __init__(
        self,
        installer: Installer,
        *,
        supply: Supply = Supply(),
        cache: Path | None = None,
        fetcher: WheelFetcher | None = None,
        sources: Callable[[], Awaitable[Sequence[str]]] = read_sources,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._installer = installer
        self._supply = supply
        self.always = supply.always
        self._grown = False
        self._cache = WheelCache(cache or default_cache(), newest=supply.newest)
        self.fetcher = replace(fetcher or WheelFetcher(), newest=supply.newest)
        self._sources = sources
        self._places: Sequence[str] | None = None
        self._asking = asyncio.Lock()
        self._clock = clock
        self._downloads = asyncio.Semaphore(_DOWNLOADS)
        self._builds: Flights[Environment] = Flights()
        self._installs: Flights[tuple[str, ...]] = Flights()
        self._built: dict[tuple[str, ...], Environment] = {}
        self._refused: dict[tuple[str, ...], str] = {}
        self._silent: tuple[float, str] | None = None

    async def build(self, requirements: Sequence[str]) -> Environment:
        """Return the environment for these requirements (PEP 508), building it on first need; it stays until `release`.

        Raises:
            DependencyUnavailable: a requirement is malformed, unknown, has no wheel, or no index answers.
            SandboxError: the builder itself broke.
        """
        try:
            wanted = (*self.always, *requirements)
            asked = tuple(sorted({str(parse_requirement(requirement)) for requirement in wanted}))
        except MalformedRequirement as error:
            raise DependencyUnavailable(str(error)) from None
        for _attempt in range(_ATTEMPTS):
            environment = await self._built_or_build(asked)
            if await self._hold(environment.key):
                try:
                    await self._shrink()
                except BaseException:
                    self.release(environment.key)
                    raise
                return environment
            self.forget(environment.key)
        raise EnvironmentGone(f"the environment for {', '.join(asked)} is removed whenever it was built")

    async def kept(self, key: str) -> Environment | None:
        """Return the environment that the store has under a key, or None; it stays until `release`.

        Raises:
            SandboxError: the store cannot be read.
        """
        if not _KEY.fullmatch(key):
            return None
        await self._installer.leases.take(key)
        installed = None
        try:
            installed = await self._installer.installed(key)
        finally:
            if installed is None:
                self.release(key)
        return None if installed is None else Environment(key, installed, installed)

    def release(self, key: str) -> None:
        """Let an environment be removed by whoever needs the room, once all that asked for it have released it."""
        self._installer.leases.give_back(key)

    def forget(self, key: str) -> None:
        """Take an environment for gone: the next `build` that leads to it makes it again."""
        self._built = {asked: built for asked, built in self._built.items() if built.key != key}
        self._installer.forget(key)

    async def _built_or_build(self, asked: tuple[str, ...]) -> Environment:
        if asked not in self._built:
            if asked in self._refused:
                raise DependencyUnavailable(self._refused[asked])
            self._built[asked] = await self._builds.join(asked, lambda: self._build(asked))
        return self._built[asked]

    async def _hold(self, key: str) -> bool:
        """Keep an environment from being removed; False when somebody was faster."""
        await self._installer.leases.take(key)
        try:
            if await self._installer.installed(key) is not None:
                return True
        except BaseException:
            self.release(key)
            raise
        self.release(key)
        return False

    async def _shrink(self) -> None:
        if self._supply.limit and self._grown:
            self._grown = False
            # what cannot be removed now is removed after another build: no pair is to fail for it
            with suppress(SandboxError):
                await shrink(self._installer, self._supply.limit)
            await asyncio.to_thread(self._cache.shrink, self._supply.limit)

    async def requirement(self, import_name: str) -> str | None:
        """Return the requirement by which the rule admits an import name, or None; asks nobody with the network off.

        Raises:
            DependencyUnavailable: the index does not answer.
            SandboxError: it cannot be asked.
        """
        return (
            None
            if self._supply.rule is None or not self._supply.network
            else await self._supply.rule.resolve(import_name)
        )

    async def _build(self, asked: tuple[str, ...]) -> Environment:
        request = self._normalise(asked)
        try:
            key, installed = await self._find_or_fetch(request)
        except DependencyUnavailable as error:
            if not error.temporary and self._supply.network:
                self._refused[asked] = str(error)
            raise
        return Environment(key, request, installed)

    def _normalise(self, asked: Sequence[str]) -> tuple[str, ...]:
        markers = self._installer.interpreter.markers
        parsed = (Requirement(text) for text in asked)
        meant = [one for one in parsed if one.marker is None or one.marker.evaluate({**markers, "extra": ""})]
        for one in meant:
            one.marker = None
        found = contradiction(meant)
        if found is not None:
            raise DependencyUnavailable(found)
        request = merged(meant)
        if not request:
            raise DependencyUnavailable("there is nothing to install for this interpreter")
        return request

    async def _find_or_fetch(self, request: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        asked = await self._asked()
        known = await asyncio.to_thread(self._cache.recall, request, asked)
        if known is not None:
            await self._admit_again(request, known)
        current = known is not None and (not self._supply.network or self._clock() - known.time < ANSWER_LIFE)
        if known is not None and current:
            found = await self._from_cache(known)
            if found is not None:
                return found
        try:
            return await self._fetch(request, asked)
        except DependencyUnavailable as error:
            found = await self._from_cache(known) if known is not None and error.temporary and not current else None
            if found is None:
                raise
            return found

    async def _asked(self) -> list[str]:
        """Return what an answer depends on besides the requirements."""
        async with self._asking:
            if self._places is None:
                self._places = await self._sources()
        return [str(self._installer.interpreter), *self._places]

    async def _from_cache(self, answer: Answer) -> tuple[str, tuple[str, ...]] | None:
        key = self._key(answer)
        installed = await self._installer.installed(key)
        if installed is not None:
            return key, installed
        wheels = await asyncio.to_thread(self._cache.wheels, answer)
        return None if wheels is None else (key, await self._install(wheels, key))

    async def _fetch(self, request: tuple[str, ...], asked: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        if not self._supply.network:
            message = f"{', '.join(request)}: not fetched before, and the network is switched off by the settings"
            raise DependencyUnavailable(message)
        requirements = [Requirement(text) for text in request]
        await self._admit(requirements)
        async with self._downloads:
            if self._silent is not None and self._clock() < self._silent[0]:
                raise DependencyUnavailable(self._silent[1], temporary=True)
            with tempfile.TemporaryDirectory(prefix="agent-wheels-", ignore_cleanup_errors=True) as folder:
                try:
                    wheels = await self.fetcher.fetch(requirements, self._installer.interpreter, Path(folder))
                except DependencyUnavailable as error:
                    if error.temporary:
                        self._silent = (self._clock() + SILENCE, str(error))
                    raise
                self._silent = None
                keep = partial(self._cache.keep, now=self._clock(), admitted=self._supply.rule is not None)
                answer = await asyncio.to_thread(keep, request, asked, wheels)
                self._grown = True
                key = self._key(answer)
                installed = await self._installer.installed(key)
                if installed is None:
                    installed = await self._install([wheel.path for wheel in wheels], key)
                return key, installed

    async def _admit_again(self, request: tuple[str, ...], known: Answer) -> None:
        """Apply the rule to what was fetched before, perhaps without one, or by another."""
        if known.admitted and not self._supply.network:
            return  # without its index the rule knows less than it did then
        try:
            await self._admit([Requirement(text) for text in request])
        except DependencyUnavailable as error:
            if not (error.temporary and known.admitted):
                raise

    async def _admit(self, requirements: Sequence[Requirement]) -> None:
        own = {canonicalize_name(Requirement(text).name) for text in self.always}
        for requirement in requirements:
            if self._supply.rule is None or canonicalize_name(requirement.name) in own:
                continue
            refusal = await self._supply.rule.refusal(requirement.name)
            if refusal is not None:
                raise DependencyUnavailable(refusal)

    async def _install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        self._grown = True
        return await self._installs.join(key, lambda: self._installer.install(wheels, key))

    def _key(self, answer: Answer) -> str:
        described = [str(self._installer.interpreter), list(answer.locked), sorted(sha for _name, sha in answer.files)]
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:40]
