from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName

from agent.errors import DependencyUnavailable, EnvironmentGone, SandboxError
from agent.sandbox.base import EnvironmentBuilder, SandboxBackend
from agent.sandbox.dependencies.environments import ANSWER_LIFE, SILENCE, Supply, WheelEnvironments
from agent.sandbox.dependencies.index_rule import MIN_AGE, IndexRule, Project
from agent.sandbox.dependencies.leases import Leases
from agent.sandbox.dependencies.upkeep import Stored, discard
from agent.sandbox.dependencies.wheel_cache import SPARED
from agent.sandbox.dependencies.wheels import InterpreterTag, Wheel, WheelFetcher, read_wheels
from agent.sandbox.flights import Flights
from tests.sandbox.conftest import job
from tests.sandbox.wheelhouse import make_wheel, use_folder


class MemoryInstaller:
    """An installer whose environments are names of wheels; it remembers what it was given."""

    def __init__(self, leases: Path, version: str = "3.11") -> None:
        self.leases = Leases(lambda: leases)
        self.interpreter = InterpreterTag(version)
        self.published: dict[str, tuple[str, ...]] = {}
        self.installs: list[str] = []
        self.error: Exception | None = None
        self.vanish = False

    async def installed(self, key: str) -> tuple[str, ...] | None:
        return self.published.get(key)

    async def install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        self.installs.append(key)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        lock = tuple(wheel.locked for wheel in await asyncio.to_thread(read_wheels, wheels))
        if not self.vanish:
            self.published[key] = lock
        return lock

    def forget(self, key: str) -> None:
        self.published.pop(key, None)

    async def stored(self) -> list[Stored]:
        return [Stored(key, lock, 100, self.leases.used(key) or 0) for key, lock in self.published.items()]

    async def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.published[key]


@dataclasses.dataclass(frozen=True)
class MakingFetcher(WheelFetcher):
    """Makes a wheel of version 1.0 for every requirement, instead of fetching it."""

    asked: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    errors: list[DependencyUnavailable] = dataclasses.field(default_factory=list)
    before: Callable[[], Awaitable[None]] | None = None

    async def fetch(self, requirements: Sequence[Requirement], _tag: InterpreterTag, into: Path) -> list[Wheel]:
        self.asked.append(tuple(str(requirement) for requirement in requirements))
        if self.before is not None:
            await self.before()
        if self.errors:
            raise self.errors.pop(0)
        return read_wheels([make_wheel(into, requirement.name) for requirement in requirements])


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class World:
    """One process's builder and all that it uses."""

    installer: MemoryInstaller
    fetcher: MakingFetcher
    clock: Clock
    cache: Path
    network: bool = True
    rule: IndexRule | None = None
    index: str = "https://one.invalid/simple"

    def __post_init__(self) -> None:
        self.environments = WheelEnvironments(
            self.installer,
            supply=Supply(self.network, rule=self.rule),
            cache=self.cache,
            fetcher=self.fetcher,
            sources=self.sources,
            clock=self.clock,
        )

    async def sources(self) -> list[str]:
        return [self.index]

    def later(self, *, seconds: float = 0.0, network: bool = True, same_store: bool = True, **parts: Any) -> World:
        """Return a new process on the same machine, with or without the environments built so far."""
        self.clock.now += seconds
        installer = MemoryInstaller(self.cache.with_name("leases"))
        installer.published = dict(self.installer.published) if same_store else {}
        return World(installer, MakingFetcher(), self.clock, self.cache, network, **parts)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(MemoryInstaller(tmp_path / "leases"), MakingFetcher(), Clock(), tmp_path / "cache")


UNREACHABLE = DependencyUnavailable("no network", temporary=True)


async def test_it_is_an_environment_builder(world: World) -> None:
    assert isinstance(world.environments, EnvironmentBuilder)


async def test_an_environment_names_its_key_its_requirements_and_its_lock(world: World) -> None:
    environment = await world.environments.build(["Foo>=1", "bar"])
    assert re.fullmatch("[0-9a-f]{40}", environment.key)
    assert environment.requirements == ("bar", "foo>=1")
    assert environment.installed == ("bar==1.0", "foo==1.0")
    assert world.installer.published == {environment.key: environment.installed}


async def test_fifty_requests_for_one_environment_build_it_once(world: World) -> None:
    spellings = (["Foo_Bar", "baz <2,>=1"], ["baz>=1,<2", "foo-bar"], ["foo.bar", "foo-bar", "baz>=1,<2"])
    builds = (world.environments.build(spellings[number % 3]) for number in range(50))
    environments = await asyncio.gather(*builds)
    assert len({environment.key for environment in environments}) == 1
    assert len(world.installer.installs) == 1


async def test_an_environment_that_was_built_is_not_asked_for_again(world: World) -> None:
    first = await world.environments.build(["foo"])
    assert await world.environments.build(["foo"]) is first
    assert len(world.fetcher.asked) == 1


async def test_an_environment_that_has_gone_is_built_again_from_the_wheels_kept(world: World) -> None:
    built = await world.environments.build(["foo"])
    world.environments.forget(built.key)
    assert await world.environments.build(["foo"]) == built
    assert world.installer.installs == [built.key] * 2
    assert len(world.fetcher.asked) == 1


async def test_an_environment_that_the_store_has_is_had_by_its_key_and_stays(world: World) -> None:
    built = await world.environments.build(["foo>=1"])
    later = world.later(network=False)
    kept = await later.environments.kept(built.key)
    assert kept is not None
    assert (kept.key, kept.installed) == (built.key, ("foo==1.0",))
    world.environments.release(built.key)
    assert await discard(later.installer, await later.installer.stored()) == []
    later.environments.release(kept.key)
    assert [each.key for each in await discard(later.installer, await later.installer.stored())] == [built.key]


@pytest.mark.parametrize("key", ["0" * 40, "", "..", "../../etc", "0" * 40 + "/..", "0" * 40 + "\n", "A" * 40])
async def test_a_key_of_nothing_leads_nowhere(world: World, key: str) -> None:
    world.installer.published[""] = world.installer.published[".."] = ("foo==1.0",)
    assert await world.environments.kept(key) is None
    leases = world.cache.with_name("leases")
    assert not leases.exists() or {file.name for file in leases.iterdir()} <= {"0" * 40}


async def test_an_environment_that_is_removed_whenever_it_was_built_is_an_error(world: World) -> None:
    world.installer.vanish = True
    with pytest.raises(EnvironmentGone, match="foo is removed whenever"):
        await world.environments.build(["foo"])


async def test_after_a_build_the_environments_unused_longest_go(world: World) -> None:
    environments = WheelEnvironments(
        world.installer, supply=Supply(limit=250), cache=world.cache, fetcher=world.fetcher
    )
    keys = []
    for name in ("one", "two", "three"):
        keys.append((await environments.build([name])).key)
        environments.release(keys[-1])
    assert list(world.installer.published) == keys[1:]
    await environments.build(["one"])
    assert list(world.installer.published) == [keys[2], keys[0]]


async def test_an_environment_in_use_stays_whatever_the_limit(world: World) -> None:
    environments = WheelEnvironments(world.installer, supply=Supply(limit=1), cache=world.cache, fetcher=world.fetcher)
    used = await environments.build(["one"])
    await environments.build(["one"])
    environments.release(used.key)
    other = await environments.build(["two"])
    assert set(world.installer.published) == {used.key, other.key}
    environments.release(used.key)
    environments.release(other.key)
    last = await environments.build(["three"])
    assert set(world.installer.published) == {last.key}


async def test_after_a_build_the_wheels_unused_longest_go_but_none_that_is_just_used(world: World) -> None:
    environments = WheelEnvironments(world.installer, supply=Supply(limit=1), cache=world.cache, fetcher=world.fetcher)
    for name in ("one", "two"):
        environments.release((await environments.build([name])).key)
    assert len(list(world.cache.rglob("*.whl"))) == 2
    for path in (each for each in world.cache.rglob("*") if each.is_file()):
        os.utime(path, (time.time() - 2 * SPARED,) * 2)
    environments.forget(next(iter(world.installer.published)))
    environments.release((await environments.build(["two"])).key)
    assert [path.name for path in world.cache.rglob("*.whl")] == ["two-1.0-py3-none-any.whl"]


async def test_a_store_that_cannot_be_tidied_up_does_not_fail_a_build(world: World) -> None:
    async def broken(_keys: Sequence[str]) -> None:
        raise SandboxError("the engine is away")

    world.installer.remove = broken  # type: ignore[method-assign]
    environments = WheelEnvironments(world.installer, supply=Supply(limit=1), cache=world.cache, fetcher=world.fetcher)
    environments.release((await environments.build(["one"])).key)
    assert (await environments.build(["two"])).installed == ("two==1.0",)


async def test_different_requests_that_lead_to_equal_wheels_are_one_environment(world: World) -> None:
    first, second = await asyncio.gather(world.environments.build(["foo"]), world.environments.build(["foo>=1"]))
    assert first.key == second.key
    assert first.requirements != second.requirements
    assert len(world.installer.installs) == 1


async def test_another_interpreter_is_another_environment(world: World) -> None:
    other = World(MemoryInstaller(world.cache.with_name("leases"), "3.12"), MakingFetcher(), world.clock, world.cache)
    assert (await world.environments.build(["foo"])).key != (await other.environments.build(["foo"])).key


async def test_a_later_run_asks_neither_index_nor_installer(world: World) -> None:
    built = await world.environments.build(["foo"])
    again = world.later(seconds=ANSWER_LIFE / 2)
    assert await again.environments.build(["foo"]) == built
    assert again.fetcher.asked == again.installer.installs == []


async def test_without_network_an_environment_that_was_built_is_found(world: World) -> None:
    built = await world.environments.build(["foo"])
    assert await world.later(seconds=ANSWER_LIFE * 9, network=False).environments.build(["foo"]) == built


async def test_without_network_an_environment_is_built_again_from_the_wheels_kept(world: World) -> None:
    built = await world.environments.build(["foo"])
    again = world.later(network=False, same_store=False)
    assert await again.environments.build(["foo"]) == built
    assert again.installer.installs == [built.key]


async def test_without_network_what_was_never_fetched_is_unavailable(world: World) -> None:
    offline = world.later(network=False)
    with pytest.raises(DependencyUnavailable, match=r"foo: not fetched before, and the network is switched off"):
        await offline.environments.build(["foo"])
    assert offline.fetcher.asked == []


async def test_a_wheel_changed_in_the_cache_is_not_used(world: World) -> None:
    await world.environments.build(["foo"])
    [kept] = world.cache.rglob("*.whl")
    kept.write_bytes(kept.read_bytes() + b"x")
    again = world.later(same_store=False)
    await again.environments.build(["foo"])
    assert again.fetcher.asked == [("foo",)]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "request": ["foo"], "files": [[1]]}']
)
async def test_a_damaged_answer_is_asked_for_again(world: World, damage: str) -> None:
    await world.environments.build(["foo"])
    [answer] = world.cache.rglob("*.json")
    answer.write_text(damage)
    again = world.later()
    await again.environments.build(["foo"])
    assert again.fetcher.asked == [("foo",)]


async def test_an_old_answer_is_asked_for_again(world: World) -> None:
    await world.environments.build(["foo"])
    again = world.later(seconds=ANSWER_LIFE + 1)
    await again.environments.build(["foo"])
    assert again.fetcher.asked == [("foo",)]


async def test_an_old_answer_serves_while_the_index_is_away(world: World) -> None:
    built = await world.environments.build(["foo"])
    again = world.later(seconds=ANSWER_LIFE + 1)
    again.fetcher.errors.append(UNREACHABLE)
    assert await again.environments.build(["foo"]) == built


class Index:
    """An index that knows one old project, and may be away."""

    away = False

    async def project(self, name: NormalizedName) -> Project | None:
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
        again.installer.published[built.key] = built.installed
        assert await again.environments.build(["venerable-thing"]) == built
        with pytest.raises(DependencyUnavailable, match=r"no network|switched off"):
            await again.environments.build(["venerable-thing>0"])


async def test_an_answer_of_one_index_is_none_of_another(world: World) -> None:
    await world.environments.build(["foo"])
    again = world.later(index="https://two.invalid/simple")
    await again.environments.build(["foo"])
    assert again.fetcher.asked == [("foo",)]
    offline = world.later(index="https://three.invalid/simple", network=False)
    with pytest.raises(DependencyUnavailable, match="not fetched before"):
        await offline.environments.build(["foo"])


async def test_a_cache_that_cannot_be_written_costs_only_the_next_download(world: World) -> None:
    world.cache.write_text("a file, not a folder")
    assert (await world.environments.build(["foo"])).installed == ("foo==1.0",)


@pytest.mark.parametrize(
    "requirement",
    [
        "",
        "-r x",
        "--index-url=https://h",
        "git+https://h/x",
        "x @ https://h/x",
        "./x",
        "x.whl",
        "urllib2",
        "json",
        "a b",
    ],
)
async def test_what_is_no_requirement_is_refused_before_anything_runs(world: World, requirement: str) -> None:
    with pytest.raises(DependencyUnavailable):
        await world.environments.build(["foo", requirement])
    assert world.fetcher.asked == []


async def test_markers_are_read_for_the_sandbox_interpreter(world: World) -> None:
    environment = await world.environments.build(["foo; python_version == '3.11'", "bar; sys_platform == 'win32'"])
    assert environment.requirements == ("foo",)
    with pytest.raises(DependencyUnavailable, match="nothing to install"):
        await world.environments.build(["bar; python_version < '3'"])


async def test_a_refusal_is_remembered(world: World) -> None:
    world.fetcher.errors.append(DependencyUnavailable("foo: no such distribution"))
    for _ in range(3):
        with pytest.raises(DependencyUnavailable, match="no such distribution"):
            await world.environments.build(["foo"])
    assert len(world.fetcher.asked) == 1


async def test_an_index_that_does_not_answer_is_left_alone_for_a_while(world: World) -> None:
    world.fetcher.errors.append(UNREACHABLE)
    for name in ("foo", "foo", "bar"):
        with pytest.raises(DependencyUnavailable, match="no network") as caught:
            await world.environments.build([name])
        assert caught.value.temporary
    assert world.fetcher.asked == [("foo",)]
    world.clock.now += SILENCE
    assert (await world.environments.build(["foo"])).installed == ("foo==1.0",)


async def test_a_broken_builder_is_a_sandbox_error_and_is_tried_again(world: World) -> None:
    world.installer.error = SandboxError("the builder broke")
    with pytest.raises(SandboxError, match="the builder broke"):
        await world.environments.build(["foo"])
    world.installer.error = None
    assert (await world.environments.build(["foo"])).installed == ("foo==1.0",)


async def test_a_waiter_that_is_cancelled_leaves_the_build_to_the_others() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    runs = []

    async def work() -> int:
        runs.append("started")
        started.set()
        await go_on.wait()
        return 7

    flights: Flights[int] = Flights()
    waiters = [asyncio.ensure_future(flights.join("key", work)) for _ in range(3)]
    await started.wait()
    waiters[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiters[0]
    go_on.set()
    assert await asyncio.gather(*waiters[1:]) == [7, 7]
    assert runs == ["started"]


async def test_a_build_that_nobody_waits_for_has_ended_when_the_last_waiter_is_gone(world: World) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    fetcher = MakingFetcher(before=block)
    blocked = World(world.installer, fetcher, world.clock, world.cache)
    waiters = [asyncio.ensure_future(blocked.environments.build(["foo"])) for _ in range(3)]
    await started.wait()
    for waiter in waiters:
        waiter.cancel()
    assert all(
        isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*waiters, return_exceptions=True)
    )
    assert ended.is_set()
    assert len(fetcher.asked) == 1


async def test_wheels_come_from_a_folder_that_pip_is_set_to_by_a_relative_name(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    make_wheel(links, "top", requires=["below"])
    make_wheel(links, "below")
    links.chmod(0o500)
    monkeypatch.chdir(tmp_path)
    use_folder(monkeypatch, Path("links"))
    environments = WheelEnvironments(world.installer, cache=world.cache)
    assert (await environments.build(["top"])).installed == ("below==1.0", "top==1.0")


class CountingInstaller:
    """Counts what another installer installs."""

    def __init__(self, backend: SandboxBackend) -> None:
        self._installer = backend.environments._installer  # type: ignore[attr-defined]
        self.interpreter: InterpreterTag = self._installer.interpreter
        self.leases: Leases = self._installer.leases
        self.installs = 0

    async def installed(self, key: str) -> tuple[str, ...] | None:
        found: tuple[str, ...] | None = await self._installer.installed(key)
        return found

    async def install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        self.installs += 1
        lock: tuple[str, ...] = await self._installer.install(wheels, key)
        return lock

    def forget(self, key: str) -> None:
        self._installer.forget(key)

    async def stored(self) -> list[Stored]:
        found: list[Stored] = await self._installer.stored()
        return found

    async def remove(self, keys: Sequence[str]) -> None:
        await self._installer.remove(keys)


_PROBE = """
import probe_package
def test_import():
    assert probe_package.SECRET == "{secret}"
def test_write():
    import os
    folder = os.path.dirname(probe_package.__file__)
    for attempt in (
        lambda: open(os.path.join(folder, "new.py"), "w"),
        lambda: open(probe_package.__file__, "a"),
        lambda: os.chmod(probe_package.__file__, 0o777),
        lambda: os.rename(probe_package.__file__, probe_package.__file__ + "2"),
        lambda: os.unlink(probe_package.__file__),
        lambda: os.link(probe_package.__file__, "/tmp/linked.py"),
        lambda: open(os.path.join(os.path.dirname(folder), "new.pth"), "w"),
    ):
        try:
            attempt()
        except OSError:
            continue
        raise AssertionError("the environment was changed")
"""


async def test_a_backend_builds_once_what_its_sandboxes_import_and_cannot_change(
    backend: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = secrets.token_hex(4)  # a new environment each time, for stores outlive a test
    links = tmp_path / "links"
    links.mkdir()
    make_wheel(links, "probe-package", files={"probe_package/__init__.py": f"SECRET = {secret!r}\n"})
    use_folder(monkeypatch, links)
    installer = CountingInstaller(backend)
    environments = WheelEnvironments(installer, cache=tmp_path / "cache")
    built = await asyncio.gather(*(environments.build(["probe-package"]) for _ in range(50)))
    assert installer.installs == 1
    assert built[0].installed == ("probe-package==1.0",)
    program = job(_PROBE.format(secret=secret), ("test_import", "test_write"))
    for _ in range(2):
        sandbox = await backend.acquire()
        try:
            result = await sandbox.run(dataclasses.replace(program, environment=built[0].key))
        finally:
            await sandbox.release()
        ended = {record.name: (record.outcome, record.message) for record in result.records if record.kind == "case"}
        assert ended == {"test_import": ("passed", ""), "test_write": ("passed", "")}
        assert result.clean


async def test_a_backend_refuses_a_wheel_that_cannot_be_installed(
    backend: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    wheel = make_wheel(links, f"escaping-{secrets.token_hex(4)}", files={"../../escaped.py": ""})
    use_folder(monkeypatch, links)
    environments = WheelEnvironments(CountingInstaller(backend), cache=tmp_path / "cache")
    with pytest.raises(DependencyUnavailable):
        await environments.build([wheel.name.split("-")[0]])


async def test_a_build_that_is_cancelled_while_the_store_shrinks_holds_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = asyncio.Event()

    async def slow(*_arguments: object, **_options: object) -> list[Stored]:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("agent.sandbox.dependencies.environments.shrink", slow)
    environments = WheelEnvironments(
        world.installer, supply=Supply(limit=1), cache=world.cache, fetcher=world.fetcher, sources=world.sources
    )
    building = asyncio.create_task(environments.build(["bricks"]))
    await entered.wait()
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert not world.installer.leases._held
