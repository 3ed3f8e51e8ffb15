"""Installs wheels for bubblewrap sandboxes: in a sandbox of its own, into a store on the host."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from agent.errors import DependencyUnavailable, SandboxError
from agent.sandbox import inside
from agent.sandbox.interpreter import Interpreter
from agent.sandbox.wheels import InterpreterTag

_LOCK = ".lock.json"
_SECONDS = 600.0


def store_root() -> Path:
    """Return the folder for what is kept over runs: one that the sandbox's user can reach."""
    if os.geteuid() == 0:
        return Path("/var/cache/test-driven-annotator")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "test-driven-annotator"


class BwrapInstaller:
    """An `Installer`: builders see the wheels and one staging folder, and no network."""

    def __init__(self, executable: str, interpreter: Interpreter, root: Path) -> None:
        self._executable = executable
        self._interpreter = interpreter
        base = root / "bwrap" / str(interpreter.tag)
        self.envs = base / "envs"
        self._staging = base / "staging"
        for folder in (self.envs, self._staging):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def interpreter(self) -> InterpreterTag:
        """The interpreter that sandboxes run."""
        return self._interpreter.tag

    async def installed(self, key: str) -> tuple[str, ...] | None:
        """Return the lock of a published environment, None when there is none."""
        try:
            return tuple(json.loads((self.envs / key / _LOCK).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise SandboxError(f"the environment store cannot be read: {error}") from error

    async def install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        """Install wheels and publish them under the key.

        Raises:
            DependencyUnavailable: pip refuses the wheels.
            SandboxError: the builder broke.
        """
        staging = self._staging / secrets.token_hex(8)
        try:
            await asyncio.to_thread(_prepare, staging, wheels)
            told = await self._build(staging, key)
            if "refused" in told:
                raise DependencyUnavailable(f"pip could not install the wheels: {told['refused']}")
            await asyncio.to_thread(_publish, staging / "out" / key, self.envs / key)
        except OSError as error:
            raise SandboxError(f"the environment could not be stored: {error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
        lock = await self.installed(key)
        if lock is None:
            raise SandboxError("the environment is gone from its store right after it was built")
        return lock

    async def _build(self, staging: Path, key: str) -> dict[str, str]:
        import pip

        from agent.sandbox.bwrap import as_nobody, base_command

        command = base_command(self._executable, self._interpreter)
        command += ["--ro-bind", str(Path(pip.__file__).parent), "/pip", "--bind", str(staging), "/staging"]
        command += ["--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/", "--", self._interpreter.path, "-I", "-c"]
        command += [inside.source("installer"), "/staging/out", "/staging/in", key, "/pip"]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={},
            **as_nobody(),
        )
        try:
            async with asyncio.timeout(_SECONDS):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise SandboxError(f"installing wheels took longer than {_SECONDS:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            told: dict[str, str] = json.loads(out.decode("utf-8", "replace").strip().split("\n")[-1])
        except ValueError as error:
            raise SandboxError(f"the builder broke: {err.decode('utf-8', 'replace').strip()[-500:]}") from error
        return told


def _prepare(staging: Path, wheels: Sequence[Path]) -> None:
    (staging / "in" / "wheels").mkdir(parents=True)
    (staging / "out").mkdir()
    for wheel in wheels:
        shutil.copyfile(wheel, staging / "in" / "wheels" / wheel.name)
    _own(staging, *((65534, 65534) if os.geteuid() == 0 else (-1, -1)))


def _publish(built: Path, target: Path) -> None:
    """Move an environment to its place in one step; one that is there already is as good."""
    _own(built, os.geteuid(), os.getegid())
    try:
        built.rename(target)
    except OSError:
        if not (target / _LOCK).is_file():
            raise


def _own(folder: Path, uid: int, gid: int) -> None:
    if os.geteuid() != 0:
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(parent) / name, uid, gid)
    os.lchown(folder, uid, gid)
