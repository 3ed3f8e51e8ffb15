"""Equal requests share one environment; what an index said is remembered, and what it refused as long as it should."""

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
from agent.sandbox.dependencies.environments import RESOLUTION_LIFETIME, Supply, WheelEnvironments
from agent.sandbox.dependencies.index_rule import MIN_AGE, IndexRule
from agent.sandbox.dependencies.package_index import BREAK_SECONDS, PackageIndex, Project
from agent.sandbox.dependencies.sources import PackageSources
from agent.sandbox.dependencies.store import Leases, Store, StoredEnvironment, discard
from agent.sandbox.dependencies.uv import Target, Uv
from agent.sandbox.interpreter import InterpreterTag


class MemoryStore(Store):
    """A store of locks; it remembers what was published."""

    place = "nowhere"
    interpreter = InterpreterTag("3.11")
    staging = Path()

    def __init__(self, folder: Path, version: str = "3.11") -> None:
        super().__init__()
        self.staging = folder / "staging"
        self.leases = Leases(lambda: folder / "leases")
        self.interpreter = InterpreterTag(version)
        self.published: dict[str, tuple[str, ...]] = {}
        self.made: list[str] = []
        self.said: list[str] = []
        self.on_wait = self.said.append
        self.error: Exception | None = None
        self.vanish = False

    async def find_lock(self, key: str) -> tuple[str, ...] | None:
        return self.published.get(key)

    async def publish(self, _tree: Path, key: str, lock: Sequence[str]) -> None:
        self.made.append(key)
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


class MakingUv(Uv):
    """Makes a module of version 1.0 for every requirement, instead of installing it."""

    def __init__(self, root: Path, index: str = "https://one.invalid/simple") -> None:
        super().__init__(root, sources=lambda: PackageSources(indexes=(index,)))
        self.asked: list[tuple[str, ...]] = []
        self.errors: list[DependencyUnavailable] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    async def install(
        self, requirements: Sequence[str], _target: Target, into: Path, *, offline: bool = False, **_options: Any
    ) -> tuple[str, ...]:
        self.asked.append(tuple(requirements))
        if self.before is not None:
            await self.before()
        if self.errors:
            raise self.errors.pop(0)
        if offline:
            raise DependencyUnavailable("not fetched before, and the network is switched off")
        for name in (Requirement(one).name for one in requirements):
            (info := into / f"{name}-1.0.dist-info").mkdir(parents=True)
            varying = f"{info.name}/REQUESTED,sha256={secrets.token_hex(4)},0\nbin/{name},{secrets.token_hex(4)},9\n"
            (info / "RECORD").write_text(f"{name}.py,sha256={name},1\n{varying}")
        return tuple(sorted(f"{Requirement(one).name}==1.0" for one in requirements))


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class World:
    """One process's builder and all that it uses."""

    folder: Path
    clock: Clock = dataclasses.field(default_factory=Clock)
    network: bool = True
    rule: IndexRule | None = None
    index: str = "https://one.invalid/simple"
    version: str = "3.11"

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.folder, self.version)
        self.uv = MakingUv(self.folder / "uv", self.index)
        supply = Supply(self.network, rule=self.rule)
        resolutions = self.folder / "answers"
        self.environments = WheelEnvironments(
            self.store, supply=supply, uv=self.uv, resolutions=resolutions, clock=self.clock
        )

    def limited(self, limit: int) -> WheelEnvironments:
        """Return a builder that keeps no more than so many bytes."""
        resolutions = self.folder / "answers"
        return WheelEnvironments(self.store, supply=Supply(limit=limit), uv=self.uv, resolutions=resolutions)

    def later(self, *, seconds: float = 0.0, same_store: bool = True, **parts: Any) -> World:
        """Return a new process on the same machine, with or without the environments built so far."""
        self.clock.now += seconds
        world = World(self.folder, self.clock, **parts)
        world.store.published = dict(self.store.published) if same_store else {}
        return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


UNREACHABLE = DependencyUnavailable("no network", temporary=True)


async def test_an_environment_names_its_key_its_requirements_and_its_lock(world: World) -> None:
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
    assert len(world.uv.asked) == len(world.store.made) == 1


async def test_an_environment_that_has_gone_is_built_again(world: World) -> None:
    built = await world.environments.build(["foo"])
    world.environments.forget(built.key)
    assert await world.environments.build(["foo"]) == built
    assert world.store.made == [built.key] * 2


async def test_an_environment_that_the_store_has_is_had_by_its_key_and_stays(world: World) -> None:
    built = await world.environments.build(["foo>=1"])
    later = world.later(network=False)
    kept = await later.environments.find_cached(built.key)
    assert kept is not None
    assert (kept.key, kept.installed) == (built.key, ("foo==1.0",))
    world.environments.release(built.key)
    assert await discard(later.store, await later.store.list_environments()) == []
    later.environments.release(kept.key)
    assert [each.key for each in await discard(later.store, await later.store.list_environments())] == [built.key]


@pytest.mark.parametrize("key", ["0" * 40, "", "..", "../../etc", "0" * 40 + "/..", "0" * 40 + "\n", "A" * 40])
async def test_a_key_of_nothing_leads_nowhere(world: World, key: str) -> None:
    world.store.published[""] = world.store.published[".."] = ("foo==1.0",)
    assert await world.environments.find_cached(key) is None
    leases = world.folder / "leases"
    assert not leases.exists() or {file.name for file in leases.iterdir()} <= {"0" * 40}


async def test_an_environment_that_is_removed_whenever_it_was_built_is_an_error(world: World) -> None:
    world.store.vanish = True
    with pytest.raises(EnvironmentGone, match="foo"):
        await world.environments.build(["foo"])


async def test_different_requests_that_lead_to_equal_wheels_are_one_environment(world: World) -> None:
    first, second = await asyncio.gather(world.environments.build(["foo"]), world.environments.build(["foo>=1"]))
    assert first.key == second.key
    assert first.requirements != second.requirements
    assert list(world.store.published) == [first.key]


async def test_a_later_run_asks_nobody(world: World) -> None:
    built = await world.environments.build(["foo"])
    again = world.later(seconds=RESOLUTION_LIFETIME / 2)
    assert await again.environments.build(["foo"]) == built
    assert again.uv.asked == again.store.made == []


async def test_without_network_an_environment_that_was_built_is_found_and_no_other(world: World) -> None:
    built = await world.environments.build(["foo"])
    offline = world.later(seconds=RESOLUTION_LIFETIME * 9, network=False)
    assert await offline.environments.build(["foo"]) == built
    with pytest.raises(DependencyUnavailable, match=r"not fetched before, and the network is switched off"):
        await offline.environments.build(["bar"])


@pytest.mark.parametrize("damage", ["", "{", "[]", '["../../etc", 1]', '["0123456789", "soon"]', "[1, 2]"])
async def test_a_damaged_answer_is_asked_for_again(world: World, damage: str) -> None:
    await world.environments.build(["foo"])
    [answer] = (world.folder / "answers").iterdir()
    answer.write_text(damage)
    again = world.later()
    await again.environments.build(["foo"])
    assert again.uv.asked == [("foo",)]


@pytest.mark.parametrize("errors", [[], [UNREACHABLE]])
async def test_an_old_answer_is_asked_for_again_and_serves_while_the_index_is_away(
    world: World, errors: list[DependencyUnavailable]
) -> None:
    built = await world.environments.build(["foo"])
    again = world.later(seconds=RESOLUTION_LIFETIME + 1)
    again.uv.errors += errors
    assert await again.environments.build(["foo"]) == built
    assert again.uv.asked == [("foo",)]


class Index(PackageIndex):
    """An index that knows one old project, and may be away."""

    away = False

    async def find_project(self, name: NormalizedName) -> Project | None:
        if self.away:
            raise UNREACHABLE
        return Project(datetime(1970, 1, 1, tzinfo=UTC) - MIN_AGE, 9) if name == "venerable-thing" else None


async def test_what_was_fetched_without_a_rule_is_still_judged_by_one(world: World) -> None:
    await world.environments.build(["hallucinated"])
    for network in (True, False):
        again = world.later(network=network, rule=IndexRule(Index(), clock=world.clock))
        with pytest.raises(DependencyUnavailable, match="no such distribution"):
            await again.environments.build(["hallucinated"])


async def test_an_index_that_is_away_lets_in_what_it_vouched_for_before_and_nothing_else(world: World) -> None:
    await world.environments.build(["venerable-thing>0"])
    index = Index()
    rule = IndexRule(index, clock=world.clock)
    built = await world.later(rule=rule).environments.build(["venerable-thing"])
    index.away = True
    for network in (True, False):
        again = world.later(network=network, rule=IndexRule(index if network else None, clock=world.clock))
        again.store.published[built.key] = built.installed
        assert await again.environments.build(["venerable-thing"]) == built
        with pytest.raises(DependencyUnavailable, match=r"no network|switched off"):
            await again.environments.build(["venerable-thing>0"])


async def test_an_answer_of_one_index_is_none_of_another(world: World) -> None:
    await world.environments.build(["foo"])
    again = world.later(index="https://two.invalid/simple")
    await again.environments.build(["foo"])
    assert again.uv.asked == [("foo",)]
    offline = world.later(index="https://three.invalid/simple", network=False)
    with pytest.raises(DependencyUnavailable, match="not fetched before"):
        await offline.environments.build(["foo"])


@pytest.mark.parametrize("requirement", ["", "-r x", "git+https://h/x", "x @ https://h/x", "./x", "json", "a b"])
async def test_what_is_no_requirement_is_refused_before_anything_runs(world: World, requirement: str) -> None:
    with pytest.raises(DependencyUnavailable):
        await world.environments.build(["foo", requirement])
    assert world.uv.asked == []


async def test_a_refusal_is_remembered(world: World) -> None:
    world.uv.errors.append(DependencyUnavailable("foo: no such distribution"))
    for _ in range(3):
        with pytest.raises(DependencyUnavailable, match="no such distribution"):
            await world.environments.build(["foo"])
    assert len(world.uv.asked) == 1


async def test_an_index_that_does_not_answer_is_left_alone_for_a_while(world: World) -> None:
    world.uv.errors.append(UNREACHABLE)
    for name in ("foo", "foo", "bar"):
        with pytest.raises(DependencyUnavailable, match="no network") as caught:
            await world.environments.build([name])
        assert caught.value.temporary
    assert world.uv.asked == [("foo",)]
    world.clock.now += BREAK_SECONDS
    assert (await world.environments.build(["foo"])).installed == ("foo==1.0",)


async def test_a_broken_builder_is_a_sandbox_error_and_is_tried_again(world: World) -> None:
    world.store.error = SandboxError("the builder broke")
    with pytest.raises(SandboxError, match="the builder broke"):
        await world.environments.build(["foo"])
    world.store.error = None
    assert (await world.environments.build(["foo"])).installed == ("foo==1.0",)


async def test_a_build_that_nobody_waits_for_has_ended_when_the_last_waiter_is_gone(world: World) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    world.uv.before = block
    waiters = [asyncio.ensure_future(world.environments.build(["foo"])) for _ in range(3)]
    await started.wait()
    for waiter in waiters:
        waiter.cancel()
    assert all(
        isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*waiters, return_exceptions=True)
    )
    assert ended.is_set()
    assert len(world.uv.asked) == 1
