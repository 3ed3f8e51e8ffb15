"""Identical requests share one environment. Resolutions and refusals are cached."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName

from agent.errors import DependencyUnavailable, EnvironmentGone, SandboxError
from agent.sandbox.dependencies.environments import RESOLUTION_LIFETIME, DependencyPolicy, WheelEnvironments
from agent.sandbox.dependencies.index_rule import MIN_AGE, IndexRule
from agent.sandbox.dependencies.package_index import BREAK_SECONDS, PackageIndex, Project
from agent.sandbox.dependencies.sources import PackageSources
from agent.sandbox.dependencies.store import Leases, Store, StoredEnvironment, discard
from agent.sandbox.dependencies.uv import Target, Uv
from agent.sandbox.interpreter import InterpreterTag


class MemoryStore(Store):
    """A store in memory that records what was published."""

    location = "nowhere"
    interpreter = InterpreterTag("3.11")
    staging = Path()

    def __init__(self, folder: Path, version: str = "3.11") -> None:
        super().__init__()
        self.staging = folder / "staging"
        self.leases = Leases(lambda: folder / "leases")
        self.interpreter = InterpreterTag(version)
        self.published: dict[str, tuple[str, ...]] = {}
        self.publications: list[str] = []
        self.messages: list[str] = []
        self.on_wait = self.messages.append
        self.error: Exception | None = None
        self.vanish = False

    async def find_lock(self, key: str) -> tuple[str, ...] | None:
        return self.published.get(key)

    async def publish(self, _tree: Path, key: str, lock: Sequence[str]) -> None:
        self.publications.append(key)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if not self.vanish:
            self.published[key] = tuple(lock)

    def forget(self, key: str) -> None:
        self.published.pop(key, None)

    async def list_environments(self) -> list[StoredEnvironment]:
        return [
            StoredEnvironment(key, lock, 100, self.leases.find_last_use(key) or 0)
            for key, lock in self.published.items()
        ]

    async def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.published[key]


class FakeUv(Uv):
    """Creates a module of version 1.0 for every requirement instead of installing it."""

    def __init__(self, root: Path, index: str = "https://one.invalid/simple") -> None:
        super().__init__(root, sources=lambda: PackageSources(indexes=(index,)))
        self.requests: list[tuple[str, ...]] = []
        self.errors: list[DependencyUnavailable] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    async def install(
        self, requirements: Sequence[str], _target: Target, into: Path, *, offline: bool = False, **_options: Any
    ) -> tuple[str, ...]:
        self.requests.append(tuple(requirements))
        if self.before is not None:
            await self.before()
        if self.errors:
            raise self.errors.pop(0)
        if offline:
            raise DependencyUnavailable("not in the download cache, and network access is disabled")
        for name in (Requirement(text).name for text in requirements):
            (info := into / f"{name}-1.0.dist-info").mkdir(parents=True)
            varying = f"{info.name}/REQUESTED,sha256={secrets.token_hex(4)},0\nbin/{name},{secrets.token_hex(4)},9\n"
            (info / "RECORD").write_text(f"{name}.py,sha256={name},1\n{varying}")
        return tuple(sorted(f"{Requirement(text).name}==1.0" for text in requirements))


class Clock:
    """A clock that changes only when a test sets it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class World:
    """One process's builder and its collaborators."""

    folder: Path
    clock: Clock = dataclasses.field(default_factory=Clock)
    network: bool = True
    rule: IndexRule | None = None
    index: str = "https://one.invalid/simple"
    version: str = "3.11"

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.folder, self.version)
        self.uv = FakeUv(self.folder / "uv", self.index)
        policy = DependencyPolicy(self.network, rule=self.rule)
        resolutions = self.folder / "answers"
        self.environments = WheelEnvironments(
            self.store, policy=policy, uv=self.uv, resolutions=resolutions, clock=self.clock
        )

    def start_later_process(self, *, seconds: float = 0.0, same_store: bool = True, **parts: Any) -> World:
        """Return a world like this one, as a later process on the same machine would see it."""
        self.clock.now += seconds
        world = World(self.folder, self.clock, **parts)
        world.store.published = dict(self.store.published) if same_store else {}
        return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


UNREACHABLE = DependencyUnavailable("no network", temporary=True)


async def test_an_environment_has_a_key_requirements_and_a_lock(world: World) -> None:
    environment = await world.environments.build(["Foo>=1", "bar"])
    assert re.fullmatch("[0-9a-f]{40}", environment.key)
    assert environment.requirements == ("Foo>=1", "bar")
    assert environment.installed == ("Foo==1.0", "bar==1.0")
    assert world.store.published == {environment.key: environment.installed}


async def test_fifty_requests_for_one_environment_build_it_once(world: World) -> None:
    spellings = (["foo", "baz <2,>=1"], ["baz>=1,<2", "foo"], ["foo", "foo", "baz<2,>=1"])
    builds = (world.environments.build(spellings[number % 3]) for number in range(50))
    environments = await asyncio.gather(*builds)
    environments.append(await world.environments.build(spellings[0]))
    assert len({environment.key for environment in environments}) == 1
    assert len(world.uv.requests) == len(world.store.publications) == 1


async def test_a_forgotten_environment_is_built_again(world: World) -> None:
    built = await world.environments.build(["foo"])
    world.environments.forget(built.key)
    assert await world.environments.build(["foo"]) == built
    assert world.store.publications == [built.key] * 2


async def test_a_stored_environment_is_found_by_key_and_leased(world: World) -> None:
    built = await world.environments.build(["foo>=1"])
    later = world.start_later_process(network=False)
    cached = await later.environments.find_cached(built.key)
    assert (cached.key, cached.installed) == (built.key, ("foo==1.0",))
    world.environments.release(built.key)
    assert await discard(later.store, await later.store.list_environments()) == []
    later.environments.release(cached.key)
    assert [entry.key for entry in await discard(later.store, await later.store.list_environments())] == [built.key]


@pytest.mark.parametrize("key", ["0" * 40, "", "..", "../../etc", "0" * 40 + "/..", "0" * 40 + "\n", "A" * 40])
async def test_an_unknown_or_malformed_key_finds_nothing(world: World, key: str) -> None:
    world.store.published[""] = world.store.published[".."] = ("foo==1.0",)
    assert await world.environments.find_cached(key) is None
    leases = world.folder / "leases"
    assert not leases.exists() or {file.name for file in leases.iterdir()} <= {"0" * 40}


async def test_an_environment_that_is_removed_after_every_build_raises(world: World) -> None:
    world.store.vanish = True
    with pytest.raises(EnvironmentGone, match="foo"):
        await world.environments.build(["foo"])


async def test_different_requests_with_identical_wheels_share_an_environment(world: World) -> None:
    first, second = await asyncio.gather(world.environments.build(["foo"]), world.environments.build(["foo>=1"]))
    assert first.key == second.key
    assert first.requirements != second.requirements
    assert list(world.store.published) == [first.key]


async def test_a_later_run_reuses_the_resolution(world: World) -> None:
    built = await world.environments.build(["foo"])
    later = world.start_later_process(seconds=RESOLUTION_LIFETIME / 2)
    assert await later.environments.build(["foo"]) == built
    assert later.uv.requests == later.store.publications == []


async def test_without_network_only_built_environments_are_found(world: World) -> None:
    built = await world.environments.build(["foo"])
    offline = world.start_later_process(seconds=RESOLUTION_LIFETIME * 9, network=False)
    assert await offline.environments.build(["foo"]) == built
    with pytest.raises(DependencyUnavailable, match="network"):
        await offline.environments.build(["bar"])


@pytest.mark.parametrize("damage", ["", "{", "[]", '["../../etc", 1]', '["0123456789", "soon"]', "[1, 2]"])
async def test_a_damaged_resolution_is_resolved_again(world: World, damage: str) -> None:
    await world.environments.build(["foo"])
    [resolution] = (world.folder / "answers").iterdir()
    resolution.write_text(damage)
    later = world.start_later_process()
    await later.environments.build(["foo"])
    assert later.uv.requests == [("foo",)]


@pytest.mark.parametrize("errors", [[], [UNREACHABLE]])
async def test_an_old_resolution_is_refreshed_unless_the_index_is_down(
    world: World, errors: list[DependencyUnavailable]
) -> None:
    built = await world.environments.build(["foo"])
    later = world.start_later_process(seconds=RESOLUTION_LIFETIME + 1)
    later.uv.errors += errors
    assert await later.environments.build(["foo"]) == built
    assert later.uv.requests == [("foo",)]


class Index(PackageIndex):
    """An index with one old project. Tests can take the index offline."""

    is_down = False

    async def find_project(self, name: NormalizedName) -> Project | None:
        if self.is_down:
            raise UNREACHABLE
        return Project(datetime(1970, 1, 1, tzinfo=UTC) - MIN_AGE, 9) if name == "venerable-thing" else None


async def test_packages_installed_without_a_rule_are_checked_later(world: World) -> None:
    await world.environments.build(["hallucinated"])
    for network in (True, False):
        later = world.start_later_process(network=network, rule=IndexRule(Index(), clock=world.clock))
        with pytest.raises(DependencyUnavailable, match="hallucinated"):
            await later.environments.build(["hallucinated"])


async def test_while_the_index_is_down_only_cached_resolutions_are_used(world: World) -> None:
    await world.environments.build(["venerable-thing>0"])
    index = Index()
    rule = IndexRule(index, clock=world.clock)
    built = await world.start_later_process(rule=rule).environments.build(["venerable-thing"])
    index.is_down = True
    for network in (True, False):
        later = world.start_later_process(
            network=network, rule=IndexRule(index if network else None, clock=world.clock)
        )
        later.store.published[built.key] = built.installed
        assert await later.environments.build(["venerable-thing"]) == built
        with pytest.raises(DependencyUnavailable, match=r"network|install_packages"):
            await later.environments.build(["venerable-thing>0"])


async def test_resolutions_are_cached_per_index(world: World) -> None:
    await world.environments.build(["foo"])
    later = world.start_later_process(index="https://two.invalid/simple")
    await later.environments.build(["foo"])
    assert later.uv.requests == [("foo",)]
    offline = world.start_later_process(index="https://three.invalid/simple", network=False)
    with pytest.raises(DependencyUnavailable, match="network"):
        await offline.environments.build(["foo"])


@pytest.mark.parametrize("requirement", ["", "-r x", "git+https://h/x", "x @ https://h/x", "./x", "json", "a b"])
async def test_malformed_requirements_are_rejected_before_uv_runs(world: World, requirement: str) -> None:
    with pytest.raises(DependencyUnavailable):
        await world.environments.build(["foo", requirement])
    assert world.uv.requests == []


async def test_a_refusal_is_cached(world: World) -> None:
    world.uv.errors.append(DependencyUnavailable("foo: refused"))
    for _ in range(3):
        with pytest.raises(DependencyUnavailable, match="foo: refused"):
            await world.environments.build(["foo"])
    assert len(world.uv.requests) == 1


async def test_an_index_that_does_not_respond_is_not_queried_for_a_while(world: World) -> None:
    world.uv.errors.append(UNREACHABLE)
    for name in ("foo", "foo", "bar"):
        with pytest.raises(DependencyUnavailable, match="no network") as caught:
            await world.environments.build([name])
        assert caught.value.temporary
    assert world.uv.requests == [("foo",)]
    world.clock.now += BREAK_SECONDS
    assert (await world.environments.build(["foo"])).installed == ("foo==1.0",)


async def test_a_failed_build_is_a_sandbox_error_and_is_retried(world: World) -> None:
    world.store.error = SandboxError("build failed")
    with pytest.raises(SandboxError, match="build failed"):
        await world.environments.build(["foo"])
    world.store.error = None
    assert (await world.environments.build(["foo"])).installed == ("foo==1.0",)


async def test_a_build_is_cancelled_with_its_last_waiter(world: World) -> None:
    started, finished = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            finished.set()

    world.uv.before = block
    waiters = [asyncio.ensure_future(world.environments.build(["foo"])) for _ in range(3)]
    await started.wait()
    for waiter in waiters:
        waiter.cancel()
    results = await asyncio.gather(*waiters, return_exceptions=True)
    assert {type(result) for result in results} == {asyncio.CancelledError}
    assert finished.is_set()
    assert len(world.uv.requests) == 1
