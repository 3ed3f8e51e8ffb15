"""A removed environment is never mistaken for a failing program."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import EnvironmentGone
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies.environments import WheelEnvironments
from agent.sandbox.dependencies.uv import Uv
from agent.sandbox.session import SandboxSession
from tests.sandbox.conftest import make_job, passes, run_once
from tests.sandbox.stores import get_store, run_in_store
from tests.sandbox.wheelhouse import make_wheel, use_folder

NAME = f"vanishing-{secrets.token_hex(4)}"
IMPORTS = make_job(f"import {NAME.replace('-', '_')}\ndef test_a(): pass")


@pytest.fixture
def index(backend: SandboxBackend, open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a folder as the only source of wheels, and a separate cache."""
    use_folder(monkeypatch, open_folder)
    make_wheel(open_folder, NAME)
    built = WheelEnvironments(get_store(backend), uv=Uv(open_folder / "uv"), resolutions=open_folder / "answers")
    monkeypatch.setattr(backend, "environments", built)


@pytest.mark.usefixtures("index")
async def test_a_run_without_its_environment_raises(backend: SandboxBackend) -> None:
    environment = await backend.environments.build([NAME])
    await run_in_store(backend, f"rm -r {environment.key}")
    with pytest.raises(EnvironmentGone, match="removed"):
        await run_once(backend, IMPORTS, environment.key)
    backend.environments.forget(environment.key)


@pytest.mark.usefixtures("index")
async def test_a_run_whose_environment_is_removed_meanwhile_raises(backend: SandboxBackend) -> None:
    environment = await backend.environments.build([NAME])
    sandbox = await backend.acquire()
    program = f"import os, time\ndef test_a():\n    while os.path.exists('/envs/{environment.key}'): time.sleep(0.01)"
    running = asyncio.ensure_future(sandbox.run(replace(make_job(program, timeout=120), environment=environment.key)))
    await run_in_store(backend, f"mv {environment.key} .away && rm -r .away")
    with pytest.raises(EnvironmentGone):
        await running
    await sandbox.release()
    backend.environments.forget(environment.key)


@pytest.mark.usefixtures("index")
async def test_a_session_rebuilds_a_removed_environment(backend: SandboxBackend) -> None:
    session = SandboxSession(backend)
    environment = await session.build_environment([NAME])
    assert passes(await session.run(replace(IMPORTS, environment=environment.key)), "test_a")
    await run_in_store(backend, f"rm -r {environment.key}")
    assert passes(await session.run(replace(IMPORTS, environment=environment.key)), "test_a")
    assert await session.build_environment([NAME]) == environment
    await session.close()
