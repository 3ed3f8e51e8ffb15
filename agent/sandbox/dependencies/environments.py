"""Dependency environments (stage 1 of the Bug Fixer): requirements become a tree of packages in a backend's store.

uv installs wheels into a folder of this host. The store byte-compiles the tree in a sandbox and publishes it. A key is
a hash of the files and the interpreter, so equal trees share one environment.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agent.errors import DependencyUnavailable, EnvironmentGone, SandboxError
from agent.sandbox.base import Environment, EnvironmentBuilder
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.package_index import IndexBreaker
from agent.sandbox.dependencies.requirements import MalformedRequirement, parse_requirement
from agent.sandbox.dependencies.store import Store, shrink
from agent.sandbox.dependencies.uv import Target, Uv, remove_stale
from agent.sandbox.folders import replace_atomically, user_cache

RESOLUTION_LIFETIME = 7 * 24 * 3600.0
"""Seconds for which an index's answer is reused. An older answer is used only when no index can be reached."""

REPORT_INTERVAL = 15.0
"""Seconds between two reports of what is being installed."""

_KEY = re.compile(r"[0-9a-f]{8,64}")
_MAX_CONCURRENT = 2
_ATTEMPTS = 2
_MAX_NAMED = 5
_VARYING = re.compile(r"bin/|[^/]+\.dist-info/(RECORD|REQUESTED|INSTALLER|direct_url\.json|uv_cache\.json),")
"""Lines of a distribution's RECORD that depend on how it was installed."""


@dataclass(frozen=True)
class Supply:
    """Which dependencies are installed, and how many bytes of them are kept.

    Args:
        network: whether indexes may be asked; otherwise only what was downloaded before is installed.
        rule: judges every distribution that is asked for; None admits all.
        limit: bytes to which the store is shrunk after a build; a larger download cache is emptied. 0 is no limit.
        base_requirements: the user's own requirements, part of every environment and not judged by the rule.
        newest: files uploaded at this moment or later are not installed.
    """

    network: bool = True
    rule: IndexRule | None = None
    limit: int = 0
    base_requirements: tuple[str, ...] = ()
    exclude_newer: datetime | None = None


class WheelEnvironments(EnvironmentBuilder):
    """Builds environments with uv and a backend's store, within the limits of `supply`.

    The folder `answers` remembers which environment requirements led to, per sources. A permanent refusal is remembered
    as long as this object lives.
    """

    def __init__(
        self,
        store: Store,
        *,
        supply: Supply = Supply(),
        uv: Uv | None = None,
        resolutions: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._supply = supply
        self.base_requirements = supply.base_requirements
        self._uv = uv or Uv()
        self._resolutions = resolutions or user_cache() / "answers"
        self._clock = clock
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._builds: defaultdict[tuple[str, ...], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._keys: dict[tuple[str, ...], str] = {}
        self._refused: dict[tuple[str, ...], str] = {}
        self._breaker = IndexBreaker(clock)
        self._grown = False

    async def build(self, requirements: Sequence[str]) -> Environment:
        """Return the environment for these requirements (PEP 508), building it on first need; it stays until `release`.

        Raises:
            DependencyUnavailable: a requirement is malformed, unknown, has no wheel, or no index answers.
            SandboxError: the builder itself broke.
        """
        try:
            wanted = tuple(sorted({str(parse_requirement(text)) for text in (*self.base_requirements, *requirements)}))
        except MalformedRequirement as error:
            raise DependencyUnavailable(str(error)) from None
        for _attempt in range(_ATTEMPTS):
            async with self._builds[wanted]:
                if wanted in self._refused:
                    raise DependencyUnavailable(self._refused[wanted])
                if wanted not in self._keys:
                    self._keys[wanted] = await self._find_or_install(wanted)
                key = self._keys[wanted]
            lock = await self._lease(key)
            if lock is None:
                self.forget(key)
                continue
            try:
                await self._shrink()
            except BaseException:
                self.release(key)
                raise
            return Environment(key, wanted, lock)
        raise EnvironmentGone(f"the environment for {', '.join(wanted)} was removed after each build")

    async def find_cached(self, key: str) -> Environment | None:
        """Return the environment that the store has under a key, or None; it stays until `release`.

        Raises:
            SandboxError: the store cannot be read.
        """
        lock = await self._lease(key) if _KEY.fullmatch(key) else None
        return None if lock is None else Environment(key, lock, lock)

    def release(self, key: str) -> None:
        """Undo one `build`. An environment that nobody uses may be removed."""
        self._store.leases.release(key)

    def forget(self, key: str) -> None:
        """Forget an environment that was removed: the next `build` that leads to it makes it again."""
        self._keys = {wanted: stored_key for wanted, stored_key in self._keys.items() if stored_key != key}
        self._store.forget(key)

    async def find_requirement(self, import_name: str) -> str | None:
        """Return the requirement that provides an import name, or None if the rule refuses it or the network is off.

        Raises:
            DependencyUnavailable: the index does not answer.
        """
        if self._supply.rule is None or not self._supply.network:
            return None
        return await self._supply.rule.resolve(import_name)

    async def _lease(self, key: str) -> tuple[str, ...] | None:
        """Protect an environment from removal and return its lock, or None if the store does not have it."""
        await self._store.leases.acquire(key)
        lock = None
        try:
            lock = await self._store.find_lock(key)
        finally:
            if lock is None:
                self.release(key)
        return lock

    async def _shrink(self) -> None:
        if not (self._supply.limit and self._grown):
            return
        self._grown = False
        # a later build tries again; no pair fails because of it
        with suppress(SandboxError):
            await shrink(self._store, self._supply.limit)
        if await asyncio.to_thread(self._uv.measure_cache) > self._supply.limit:
            await self._uv.empty_cache()

    async def _find_or_install(self, wanted: tuple[str, ...]) -> str:
        """Return the key of a published environment: the one that an earlier answer led to, or a new one."""
        resolution = await asyncio.to_thread(self._locate_resolution, wanted)
        key, resolved_at = await asyncio.to_thread(_read_resolution, resolution)
        is_stored = bool(key) and await self._store.find_lock(key) is not None
        if is_stored and (not self._supply.network or self._clock() - resolved_at < RESOLUTION_LIFETIME):
            return key
        try:
            await self._apply_rule(wanted)
            key = await self._install(wanted)
        except DependencyUnavailable as error:
            if error.temporary and is_stored:
                return key
            if not error.temporary and self._supply.network:
                self._refused[wanted] = str(error)
            raise
        with suppress(OSError), replace_atomically(resolution) as new:
            new.write_text(json.dumps([key, self._clock()]), encoding="utf-8")
        return key

    def _locate_resolution(self, wanted: Sequence[str]) -> Path:
        """Return the file that names the environment for requirements, which depends on sources, date and rule.

        Raises:
            UsageError: pip's settings cannot be read.
        """
        exclude_newer = "" if self._supply.exclude_newer is None else self._supply.exclude_newer.isoformat()
        sources = ["first-index", *self._uv.sources().redacted_urls]
        question = [wanted, str(self._store.interpreter), exclude_newer, sources, self._supply.rule is not None]
        return self._resolutions / f"{hashlib.sha256(json.dumps(question).encode()).hexdigest()}.json"

    async def _apply_rule(self, wanted: Sequence[str]) -> None:
        exempt = {canonicalize_name(Requirement(text).name) for text in self.base_requirements}
        for name in (Requirement(text).name for text in wanted):
            if self._supply.rule is not None and canonicalize_name(name) not in exempt:
                reason = await self._supply.rule.find_refusal(name)
                if reason is not None:
                    raise DependencyUnavailable(reason)

    async def _install(self, wanted: Sequence[str]) -> str:
        """Install requirements and publish the environment; return its key."""
        async with self._slots:
            tree = self._store.staging / secrets.token_hex(8)
            target = Target(self._store.interpreter, self._store.python, self._supply.exclude_newer)
            await asyncio.to_thread(remove_stale, self._store.staging)
            reporting = asyncio.ensure_future(self._report_progress(wanted))
            try:
                with self._breaker.guard():
                    lock = await self._uv.install(wanted, target, tree, offline=not self._supply.network)
                if not lock:
                    raise DependencyUnavailable("there is nothing to install for this interpreter")
                key = await asyncio.to_thread(_hash_tree, tree, str(target.tag))
                if await self._store.find_lock(key) is None:
                    await self._store.publish(tree, key, lock)
                self._grown = True
                return key
            finally:
                reporting.cancel()
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True))

    async def _report_progress(self, wanted: Sequence[str]) -> None:
        """Report what is being installed until cancelled."""
        more = f" and {len(wanted) - _MAX_NAMED} more" if len(wanted) > _MAX_NAMED else ""
        while True:
            self._store.on_wait(f"Installing {', '.join(wanted[:_MAX_NAMED])}{more}")
            await asyncio.sleep(REPORT_INTERVAL)


def _read_resolution(path: Path) -> tuple[str, float]:
    """Return the key that an answer names and when it was given; an empty key without an answer."""
    with suppress(OSError, ValueError, TypeError):  # absent, or torn
        key, resolved_at = json.loads(path.read_bytes())
        if _KEY.fullmatch(key):
            return key, float(resolved_at)
    return "", 0.0


def _hash_tree(tree: Path, interpreter: str) -> str:
    """Return the key of an installed tree: the hash of the RECORDs, which hold the hash of every file."""
    digest = hashlib.sha256(interpreter.encode())
    for record in sorted(tree.glob("*.dist-info/RECORD")):
        lines = record.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        files = sorted(line for line in lines if not _VARYING.match(line))
        digest.update("\n".join(["", *files]).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:40]
