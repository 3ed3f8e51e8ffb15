"""Finds the toolchains of languages, such as Node, and checks their versions in a backend's sandboxes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path

from agent.errors import SandboxUnavailable
from agent.sandbox.base import Sandbox, Toolchain
from agent.sandbox.mounts import Mount, is_readable

_FOLDER = "/toolchains"
_VERSION_SECONDS = 20.0
_VERSION = re.compile(r"\d+(?:\.\d+)+", re.ASCII)


class Toolchains:
    """The toolchains of a backend's sandboxes.

    `mounts` contains the wheels' folders, which every new sandbox must mount. `versions` maps commands to their
    versions. `start` starts a sandbox, and `on_mount` is called when earlier sandboxes lack a mount.
    """

    def __init__(self, start: Callable[[], Awaitable[Sandbox]], on_mount: Callable[[], None]) -> None:
        self.mounts: tuple[Mount, ...] = ()
        self.versions: dict[str, str] = {}
        self._start = start
        self._on_mount = on_mount
        self._lock = asyncio.Lock()

    async def require(self, toolchain: Toolchain, *, use_wheels: bool = True) -> str:
        """Return the version of a toolchain. Prefers the toolchain's wheel to a command on the sandbox's PATH.

        Raises:
            SandboxUnavailable: the toolchain is missing or too old. The message explains how to install it.
            SandboxError: no sandbox starts.
        """
        command = toolchain.command
        async with self._lock:
            if command not in self.versions:
                wheel = await asyncio.to_thread(_find_wheel, toolchain) if use_wheels else None
                if version := await self._find_version(command, wheel):
                    self.versions[command] = version
        version = self.versions.get(command, "")
        if not version or tuple(map(int, version.split("."))) < toolchain.minimum:
            minimum = ".".join(map(str, toolchain.minimum))
            raise SandboxUnavailable(
                f"the sandbox needs {command} {minimum} or later (found: {version or 'none'}). {toolchain.remedy}"
            )
        return version

    async def _find_version(self, command: str, wheel: Mount | None) -> str:
        if wheel is not None:
            others = self.mounts
            self.mounts = (*others, wheel)
            if version := await self._read_version(f"{wheel.target}/{command}"):
                self._on_mount()
                return version
            self.mounts = others
        return await self._read_version(command)

    async def _read_version(self, command: str) -> str:
        sandbox = await self._start()
        try:
            result = await sandbox.run_command([command, "--version"], _VERSION_SECONDS)
        finally:
            await sandbox.release()
        versions = _VERSION.findall(result.output) if result.exit_code == 0 else []
        return versions[0] if versions else ""


def _find_wheel(toolchain: Toolchain) -> Mount | None:
    """Return the mount of a toolchain's wheel, or None if it is missing or the sandbox's user cannot read it."""
    spec = find_spec(toolchain.wheel) if toolchain.wheel else None
    for location in (spec and spec.submodule_search_locations) or ():
        folder = Path(location, "bin").resolve()
        if (folder / toolchain.command).is_file() and is_readable(folder):
            return Mount(folder, f"{_FOLDER}/{toolchain.command}")
    return None
