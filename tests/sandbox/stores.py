"""Direct access to environment stores."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import subprocess
import zipfile
from pathlib import Path

import docker
import pytest

from agent.sandbox.base import SandboxBackend
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.dependencies.environments import DependencyPolicy, WheelEnvironments
from agent.sandbox.dependencies.npm import Npm
from agent.sandbox.dependencies.store import Store
from agent.sandbox.dependencies.uv import Uv
from agent.sandbox.docker.backend import DockerBackend


def get_store(backend: SandboxBackend) -> Store:
    """Return a backend's store."""
    assert isinstance(backend, DockerBackend | BwrapBackend)
    return backend.store


def replace_environments(
    patch: pytest.MonkeyPatch, backend: SandboxBackend, folder: Path, policy: DependencyPolicy
) -> None:
    """Replace the backend's builder by one with this policy, whose caches are in a folder."""
    uv, npm, resolutions = Uv(folder / "uv"), Npm(folder / "npm"), folder / "answers"
    built = WheelEnvironments(get_store(backend), policy=policy, uv=uv, npm=npm, resolutions=resolutions)
    patch.setattr(backend, "environments", built)


async def publish_wheel(backend: SandboxBackend, wheel: Path, key: str) -> tuple[str, ...]:
    """Publish a wheel's content as an environment and return its lock."""
    store = get_store(backend)
    name, version = wheel.name.split("-")[:2]
    tree = store.staging / secrets.token_hex(4)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree)
    lock = (f"{name.replace('_', '-')}=={version}",)
    await store.publish(tree, key, lock)
    shutil.rmtree(tree, ignore_errors=True)
    return lock


async def run_in_store(backend: SandboxBackend, script: str) -> str:
    """Run a shell script in the environments' folder, with write access, and return its output."""
    if isinstance(backend, DockerBackend):
        settings = backend._require_started().settings
        return await asyncio.to_thread(_run_in_volume, settings.image, settings.store, script)
    assert isinstance(backend, BwrapBackend)
    _, folders = backend._require_setup()
    output = await asyncio.to_thread(subprocess.check_output, ["/bin/sh", "-c", script], cwd=folders.envs)
    return bytes(output).decode()


def _run_in_volume(image: str, volume: str, script: str) -> str:
    client = docker.from_env()
    try:
        mounts = {volume: {"bind": "/envs", "mode": "rw"}}
        output = client.containers.run(
            image,
            ["sh", "-c", script],
            entrypoint="",
            volumes=mounts,
            working_dir="/envs",
            remove=True,
            network_mode="none",
        )
        return bytes(output).decode()
    finally:
        client.close()
