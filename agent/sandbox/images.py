"""Sandbox images: built on first use from a folder, under a tag that changes with the folder's content."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import sys
import tarfile
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from agent.errors import SandboxUnavailable
from agent.sandbox.base import Progress

REPOSITORY = "test-driven-annotator"
FETCH_DEADLINE = 300.0

_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE)
_PYTHON = re.compile(r"python[^:/]*:(\d+\.\d+)")


class ImageEngine(Protocol):
    """What building an image needs of a container engine. The calls block."""

    machine: str

    def image_id(self, name: str) -> str | None:
        """Return the id of a local image, or None."""
        ...

    def pull(self, name: str) -> None:
        """Fetch an image from its registry.

        Raises:
            SandboxUnavailable: the registry cannot be reached or lacks it.
        """
        ...

    def build(self, context: BinaryIO, tag: str, progress: Progress) -> None:
        """Build an image from a tar stream, without network; `progress` is called in the calling thread.

        Raises:
            SandboxUnavailable: a step failed.
        """
        ...


@dataclass(frozen=True)
class ImageSource:
    """A folder with a Dockerfile, and the requirements whose wheels its build finds in `wheels/`."""

    folder: Path

    def files(self) -> list[Path]:
        """Return the folder's files, sorted; hidden ones are left out."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path for path in found if not any(part[0] == "." for part in self._inside(path).parts))

    def digest(self) -> str:
        """Hash names and contents of the files (hex)."""
        digest = hashlib.sha256()
        for path in self.files():
            content = path.read_bytes()
            digest.update(f"{self._inside(path).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()

    def tag(self) -> str:
        """Return the image name that stands for this content."""
        return f"{REPOSITORY}/{self.folder.name.lower()}:{self.digest()[:12]}"

    def bases(self) -> tuple[str, ...]:
        """Return the images that the Dockerfile builds on, stages of its own left out."""
        found = _FROM.findall((self.folder / "Dockerfile").read_text(encoding="utf-8"))
        stages = {stage for _, stage in found if stage} | {"scratch"}
        return tuple(dict.fromkeys(image for image, _ in found if image not in stages))

    def requirements(self) -> Path | None:
        """Return the requirements file, or None."""
        path = self.folder / "requirements.txt"
        return path if path.is_file() else None

    def python_version(self) -> str:
        """Return the Python version that the base image names, such as "3.11".

        Raises:
            SandboxUnavailable: it names none, so wheels cannot be chosen.
        """
        versions = [match.group(1) for base in self.bases() if (match := _PYTHON.search(base))]
        if not versions:
            raise SandboxUnavailable(
                f"{self.folder / 'Dockerfile'}: no FROM line names a Python version (python:3.11-slim-bookworm), "
                "so the wheels of requirements.txt cannot be chosen"
            )
        return versions[-1]

    def pack(self, wheels: Path, stream: BinaryIO) -> None:
        """Write the folder, and the wheels under `wheels/`, as a tar archive; equal content gives equal bytes."""
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path in self.files():
                _add(archive, path, self._inside(path).as_posix())
            folder = tarfile.TarInfo("wheels")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
            for path in sorted(wheels.iterdir()):
                _add(archive, path, f"wheels/{path.name}")

    def _inside(self, path: Path) -> Path:
        return path.relative_to(self.folder)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    content = path.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))


async def fetch_wheels(requirements: Path, python: str, machine: str, destination: Path) -> None:
    """Download the wheels of a requirements file with the host's pip, its settings and its credentials.

    Raises:
        SandboxUnavailable: no index answers, or one of the requirements has no wheel.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    for platform in (f"manylinux_2_28_{machine}", f"manylinux_2_17_{machine}", f"manylinux2014_{machine}"):
        command += ["--platform", platform]
    command += ["--dest", str(destination), "--requirement", str(requirements)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(FETCH_DEADLINE):
            _, printed = await process.communicate()
    except TimeoutError:
        raise SandboxUnavailable(
            f"the wheels of {requirements} did not arrive within {FETCH_DEADLINE:.0f} s: check pip's index settings"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = printed.decode("utf-8", "replace").splitlines()
        said = "\n".join([line for line in lines if line.startswith("ERROR:")] or lines[-5:])
        raise SandboxUnavailable(
            f"the wheels of {requirements} could not be fetched for Python {python} on {machine}; pip says:\n{said}\n"
            "Give pip an index that has them (PIP_INDEX_URL, or a folder by PIP_FIND_LINKS)."
        )


Fetch = Callable[[Path, str, str, Path], Awaitable[None]]
Call = Callable[..., Awaitable[Any]]


async def ensure_built(
    engine: ImageEngine,
    source: ImageSource,
    progress: Progress,
    *,
    call: Call = asyncio.to_thread,
    fetch: Fetch = fetch_wheels,
) -> str:
    """Return the tag of the folder's image, building it when the engine lacks it. `call` runs blocking calls.

    Raises:
        SandboxUnavailable: a base image, a wheel or a build step is missing or fails.
    """
    tag = source.tag()
    if await call(engine.image_id, tag) is not None:
        return tag
    progress(f"Building the sandbox image {tag} (once)")
    for base in source.bases():
        await ensure_present(engine, base, progress, call=call)
    with tempfile.TemporaryDirectory(prefix="agent-image-") as folder:
        wheels = Path(folder)
        requirements = source.requirements()
        if requirements is not None:
            progress(f"Fetching the wheels of {requirements.name}")
            await fetch(requirements, source.python_version(), engine.machine, wheels)
        with tempfile.TemporaryFile() as context:
            source.pack(wheels, context)
            context.seek(0)
            await call(engine.build, context, tag, _from_thread(progress))
    return tag


def _from_thread(progress: Progress) -> Progress:
    loop = asyncio.get_running_loop()

    def relay(line: str) -> None:
        loop.call_soon_threadsafe(partial(progress, line))

    return relay


async def ensure_present(
    engine: ImageEngine, image: str, progress: Progress, *, call: Call = asyncio.to_thread
) -> None:
    """Pull an image unless the engine has it.

    Raises:
        SandboxUnavailable: it is neither here nor to be had.
    """
    if await call(engine.image_id, image) is None:
        progress(f"Pulling {image}")
        await call(engine.pull, image)
