"""The stores of both backends shrink to their limit, but environments in use are not removed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agent.errors import EnvironmentGone
from agent.sandbox.base import SandboxBackend, SandboxJob
from agent.sandbox.dependencies.environments import DependencyPolicy, WheelEnvironments
from agent.sandbox.dependencies.npm import Npm
from agent.sandbox.dependencies.store import Store, discard
from agent.sandbox.dependencies.uv import Uv
from tests.sandbox.conftest import BACKENDS, LIMITS, make_job, passes, remove_volume, require_backend, run_once
from tests.sandbox.stores import get_store
from tests.sandbox.wheelhouse import make_wheel, use_folder

MEGABYTE = 1 << 20
StartBackend = Callable[[], Awaitable[SandboxBackend]]


@pytest.fixture(params=BACKENDS)
async def start_process(
    request: pytest.FixtureRequest, store: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StartBackend]:
    """Return a function that starts another backend with the same store, as a second process would."""
    require_backend(request.param)
    use_folder(monkeypatch, open_folder)
    for name in ("one", "two", "three"):
        make_wheel(open_folder, name, files={f"{name}.py": "", f"{name}.bin": "x" * MEGABYTE})
    volume = f"test-driven-annotator-tests-upkeep-{os.getpid()}"
    async with AsyncExitStack() as stack:

        async def start_backend() -> SandboxBackend:
            backend = _docker(volume) if request.param == "docker" else _bwrap(store)
            await backend.start(lambda _line: None)
            stack.push_async_callback(backend.close)
            policy = DependencyPolicy(limit=MEGABYTE * 5 // 2)
            backend.environments = WheelEnvironments(
                get_store(backend),
                uv=Uv(open_folder / "uv"),
                npm=Npm(open_folder / "npm"),
                resolutions=open_folder / "answers",
                policy=policy,
            )
            return backend

        yield start_backend
    if request.param == "docker":
        remove_volume(volume)


def _docker(volume: str) -> SandboxBackend:
    from agent.sandbox.docker.backend import DockerBackend

    return DockerBackend(LIMITS, volume=volume, pool=1)


def _bwrap(store: Path) -> SandboxBackend:
    from agent.sandbox.bwrap.backend import BwrapBackend

    return BwrapBackend(LIMITS, store=store, pool=1)


def _imports(name: str) -> SandboxJob:
    return make_job(f"import {name}\ndef test_a(): pass")


async def list_keys(store: Store) -> set[str]:
    return {entry.key for entry in await store.list_environments()}


async def test_a_store_over_its_limit_removes_the_least_recently_used(start_process: StartBackend) -> None:
    backend = await start_process()
    one, two = [await backend.environments.build([name]) for name in ("one", "two")]
    backend.environments.release(one.key)
    backend.environments.release(two.key)
    backend.environments.release((await backend.environments.build(["one"])).key)
    three = await backend.environments.build(["three"])
    store = get_store(backend)
    assert await list_keys(store) == {one.key, three.key}
    assert all(MEGABYTE <= entry.size < 1.1 * MEGABYTE for entry in await store.list_environments())
    with pytest.raises(EnvironmentGone):
        await run_once(backend, _imports("two"), two.key)
    assert await store.find_lock(two.key) is None


async def test_an_environment_in_use_is_not_removed_by_another_process(start_process: StartBackend) -> None:
    first, second = await start_process(), await start_process()
    used = await first.environments.build(["one"])
    for name in ("two", "three"):
        second.environments.release((await second.environments.build([name])).key)
    store = get_store(second)
    assert used.key in await list_keys(store)
    assert used.key not in {entry.key for entry in await discard(store, await store.list_environments())}
    assert passes(await run_once(first, _imports("one"), used.key), "test_a")
    first.environments.release(used.key)
    assert [entry.key for entry in await discard(store, await store.list_environments())] == [used.key]
    assert await list_keys(store) == set()
