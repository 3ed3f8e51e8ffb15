"""Builds dependency environments (stage 1 of the Bug Fixer): installs requirements and adds them to a backend's store.

uv installs wheels into a folder on this host. The store byte-compiles the installed files in a sandbox and publishes
them. An environment's key is a hash of the files and the interpreter, so identical installations share one environment.
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
from agent.sandbox.base import Checkout, Environment, EnvironmentBuilder
from agent.sandbox.dependencies.checkouts import Checkouts, is_checkout
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.npm import Npm, get_name, is_npm
from agent.sandbox.dependencies.package_index import IndexBreaker
from agent.sandbox.dependencies.requirements import MalformedRequirement, parse_requirement
from agent.sandbox.dependencies.store import Store, shrink
from agent.sandbox.dependencies.uv import Target, Uv, remove_stale
from agent.sandbox.folders import get_user_cache
from agent.types import Origin

RESOLUTION_LIFETIME = 7 * 24 * 3600.0
"""Seconds for which resolved requirements are reused. Older results are reused only if no index can be queried."""

REPORT_INTERVAL = 15.0
"""Seconds between progress reports during an installation."""

_KEY = re.compile(r"[0-9a-f]{8,64}")
_MAX_CONCURRENT = 2
_ATTEMPTS = 2
_MAX_NAMED = 5
_VARYING = re.compile(r"bin/|[^/]+\.dist-info/(RECORD|REQUESTED|INSTALLER|direct_url\.json|uv_cache\.json),")
"""Lines in a distribution's RECORD file that vary between installations of the same files."""


@dataclass(frozen=True)
class DependencyPolicy:
    """Which dependencies may be installed, and how large their store may become.

    Args:
        network: whether to query indexes. If false, only packages in the download cache or in local folders are
            installed.
        rule: the index rule, which every requested distribution must pass. None allows all distributions.
        npm_rule: the index rule for npm packages.
        limit: the maximum size of the store, in bytes. Builds remove unused environments until the store fits, and
            empty the download cache if it exceeds the same limit. 0 means no limit.
        base_requirements: the user's requirements. Every environment contains them, and the index rule does not apply
            to them.
        exclude_newer: files uploaded at this time or later are ignored.
        checkouts: the user's git clones. An environment can contain a repository at a commit.
    """

    network: bool = True
    rule: IndexRule | None = None
    npm_rule: IndexRule | None = None
    limit: int = 0
    base_requirements: tuple[str, ...] = ()
    exclude_newer: datetime | None = None
    checkouts: Checkouts | None = None


class WheelEnvironments(EnvironmentBuilder):
    """Builds environments with uv and npm and publishes them in a backend's store, as `policy` permits.

    A requirement such as `name@range` is an npm package. npm packages are in the environment's folder `node_modules`. A
    requirement such as `owner/name==COMMIT` or `owner/name==COMMIT:FOLDER` is a repository at a commit, without its
    dependencies.

    Files in the `resolutions` folder map requirements and package sources to environment keys. Permanent errors are
    cached in memory.
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: DependencyPolicy = DependencyPolicy(),
        uv: Uv | None = None,
        npm: Npm | None = None,
        resolutions: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._policy = policy
        self.base_requirements = policy.base_requirements
        self._uv = uv or Uv()
        self._npm = npm or Npm()
        self._resolutions = resolutions or get_user_cache() / "answers"
        self._clock = clock
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._builds: defaultdict[tuple[str, ...], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._keys: dict[tuple[str, ...], str] = {}
        self._refused: dict[tuple[str, ...], str] = {}
        self._breaker = IndexBreaker(clock)
        self._grown = False

    async def build(self, requirements: Sequence[str]) -> Environment:
        """Return the environment for PEP 508 and npm requirements, building it on first use. Call `release` after use.

        Raises:
            DependencyUnavailable: a requirement is malformed, unknown or forbidden by the index rule; a wheel is
                missing; or no index responds.
            SandboxError: the sandbox that builds the environment failed.
        """
        try:
            texts = (*self.base_requirements, *requirements)
            request = tuple(sorted({str(parse_requirement(text)) if _is_pypi(text) else text for text in texts}))
        except MalformedRequirement as error:
            raise DependencyUnavailable(str(error)) from None
        for _attempt in range(_ATTEMPTS):
            async with self._builds[request]:
                if request in self._refused:
                    raise DependencyUnavailable(self._refused[request])
                if request not in self._keys:
                    self._keys[request] = await self._find_or_install(request)
                key = self._keys[request]
            lock = await self._lease(key)
            if lock is None:
                self.forget(key)
                continue
            try:
                await self._shrink()
            except BaseException:
                self.release(key)
                raise
            return Environment(key, request, lock)
        raise EnvironmentGone(f"the environment for {', '.join(request)} was removed immediately after every build")

    async def find_checkout(self, origin: Origin) -> Checkout | None:
        """Return the module of a function in the user's git clones, or None if there are no clones or no commit."""
        checkouts = self._policy.checkouts
        return None if checkouts is None else await asyncio.to_thread(checkouts.find, origin)

    async def find_cached(self, key: str) -> Environment | None:
        """Return the stored environment with this key, or None. Call `release` after use.

        Raises:
            SandboxError: the store cannot be read.
        """
        lock = await self._lease(key) if _KEY.fullmatch(key) else None
        return None if lock is None else Environment(key, lock, lock)

    def release(self, key: str) -> None:
        """Release an environment, once for each `build` or `find_cached` call. Unused environments may be removed."""
        self._store.leases.release(key)

    def forget(self, key: str) -> None:
        """Record that an environment was removed, so that the next `build` builds it again."""
        self._keys = {request: stored_key for request, stored_key in self._keys.items() if stored_key != key}
        self._store.forget(key)

    async def find_requirement(self, import_name: str) -> str | None:
        """Return the requirement that provides an import name, or None if there is none.

        Without an index rule or network access, the result is always None.

        Raises:
            DependencyUnavailable: the index rule refuses the distribution, or the index does not respond.
        """
        if self._policy.rule is None or not self._policy.network:
            return None
        return await self._policy.rule.resolve(import_name)

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
        if not (self._policy.limit and self._grown):
            return
        self._grown = False
        # a later build will shrink the store again, so a failure here must not fail a pair
        with suppress(SandboxError):
            await shrink(self._store, self._policy.limit)
        for tool in (self._uv, self._npm):
            if await asyncio.to_thread(tool.measure_cache) > self._policy.limit:
                await tool.empty_cache()

    async def _find_or_install(self, requirements: tuple[str, ...]) -> str:
        """Reuse an earlier resolution or install the requirements. Return the key of the published environment."""
        resolution = await asyncio.to_thread(self._locate_resolution, requirements)
        key, resolved_at = await asyncio.to_thread(_read_resolution, resolution)
        is_stored = bool(key) and await self._store.find_lock(key) is not None
        if is_stored and (not self._policy.network or self._clock() - resolved_at < RESOLUTION_LIFETIME):
            return key
        try:
            await self._apply_rule(requirements)
            key = await self._install(requirements)
        except DependencyUnavailable as error:
            if error.temporary and is_stored:
                return key
            if not error.temporary and self._policy.network:
                self._refused[requirements] = str(error)
            raise
        with suppress(OSError):
            resolution.parent.mkdir(parents=True, exist_ok=True)
            resolution.write_text(json.dumps([key, self._clock()]), encoding="utf-8")
        return key

    def _locate_resolution(self, requirements: Sequence[str]) -> Path:
        """Return the path of the resolution file for these requirements and the current settings.

        The path depends on the interpreter, the package sources, `exclude_newer` and whether there is an index rule.

        Raises:
            UsageError: pip's settings cannot be read.
        """
        exclude_newer = "" if self._policy.exclude_newer is None else self._policy.exclude_newer.isoformat()
        sources = ["first-index", *self._uv.sources().redacted_urls]
        sources += [self._npm.registry] if any(map(is_npm, requirements)) else []
        parameters = [requirements, str(self._store.interpreter), exclude_newer, sources, self._policy.rule is not None]
        return self._resolutions / f"{hashlib.sha256(json.dumps(parameters).encode()).hexdigest()}.json"

    async def _apply_rule(self, requirements: Sequence[str]) -> None:
        exempt = {canonicalize_name(Requirement(text).name) for text in self.base_requirements}
        for text in requirements:
            if is_npm(text):
                rule, name = self._policy.npm_rule, get_name(text)
            elif is_checkout(text) or canonicalize_name(name := Requirement(text).name) in exempt:
                continue
            else:
                rule = self._policy.rule
            if rule is not None and (reason := await rule.find_refusal(name)) is not None:
                raise DependencyUnavailable(reason)

    async def _install(self, requirements: Sequence[str]) -> str:
        """Install requirements and publish the environment. Return its key."""
        repositories = [text for text in requirements if is_checkout(text)]
        distributions = [text for text in requirements if _is_pypi(text)]
        packages = [text for text in requirements if is_npm(text)]
        async with self._slots:
            tree = self._store.staging / secrets.token_hex(8)
            target = Target(self._store.interpreter, self._store.python, self._policy.exclude_newer)
            offline = not self._policy.network
            await asyncio.to_thread(remove_stale, self._store.staging)
            reporting = asyncio.ensure_future(self._report_progress(requirements))
            try:
                lock: tuple[str, ...] = ()
                if distributions:
                    with self._breaker.guard():
                        lock = await self._uv.install(distributions, target, tree, offline=offline)
                hashes = dict[str, str]()
                if packages:
                    before = target.exclude_newer
                    hashes = await self._npm.install(packages, target.tag, tree, before=before, offline=offline)
                if not (lock or repositories or packages):
                    raise DependencyUnavailable("the markers of all requirements exclude this interpreter")
                parameters = (str(target.tag), *repositories, *(f"{name} {hash_}" for name, hash_ in hashes.items()))
                key = await asyncio.to_thread(_hash_tree, tree, "\n".join(parameters))
                if await self._store.find_lock(key) is None:
                    for repository in repositories:
                        if (checkouts := self._policy.checkouts) is None:
                            raise DependencyUnavailable(f"{repository} needs a clone (sandbox.checkouts)")
                        await asyncio.to_thread(checkouts.export, repository, tree)
                    await self._store.publish(tree, key, sorted((*lock, *repositories, *hashes)))
                self._grown = True
                return key
            finally:
                reporting.cancel()
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True))

    async def _report_progress(self, requirements: Sequence[str]) -> None:
        """Report the requirements that are being installed. Repeat the report until this task is cancelled."""
        more = f" and {len(requirements) - _MAX_NAMED} more" if len(requirements) > _MAX_NAMED else ""
        while True:
            self._store.on_wait(f"Installing {', '.join(requirements[:_MAX_NAMED])}{more}")
            await asyncio.sleep(REPORT_INTERVAL)


def _is_pypi(requirement: str) -> bool:
    return not (is_checkout(requirement) or is_npm(requirement))


def _read_resolution(path: Path) -> tuple[str, float]:
    """Return the environment key and the time in a resolution file. The key is empty if the file is not valid."""
    with suppress(OSError, ValueError, TypeError):  # missing, damaged or half written
        key, resolved_at = json.loads(path.read_bytes())
        if _KEY.fullmatch(key):
            return key, float(resolved_at)
    return "", 0.0


def _hash_tree(tree: Path, parameters: str) -> str:
    """Return the key of an installed tree: a hash of its RECORD files, which contain the hash of every file.

    `parameters` is hashed, too: the interpreter, the repositories, whose commits identify their files, and the npm
    packages with the hashes of their archives.
    """
    digest = hashlib.sha256(parameters.encode())
    for record in sorted(tree.glob("*.dist-info/RECORD")):
        lines = record.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        files = sorted(line for line in lines if not _VARYING.match(line))
        digest.update("\n".join(["", *files]).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:40]
