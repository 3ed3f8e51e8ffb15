"""Sandbox images: built on first use from a folder, under a tag that changes with its content, or chosen by Python."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import tarfile
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from agent.errors import DependencyUnavailable, InputError, InterpreterUnavailable, SandboxError, SandboxUnavailable
from agent.sandbox.base import Progress
from agent.sandbox.dependencies.requirements import read_requirements
from agent.sandbox.dependencies.uv import Target, Uv
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.folders import shared_cache
from agent.sandbox.interpreter import InterpreterTag

REPOSITORY = "test-driven-annotator"
OLDEST_GLIBC = "2.28"
"""What wheels for an image may ask of its C library; every base image in use is newer."""

_FROM = re.compile(r"^FROM\s+(\S*python[^:/\s]*:(\d+\.\d+)\S*)", re.MULTILINE)
_OFFICIAL = re.compile(r"(?:docker\.io/)?(?:library/)?python:(3\.\d{1,2})(?:\.\d+)?(|-.+)")


@dataclass(frozen=True)
class ImageSource:
    """A folder with a Dockerfile, and the requirements that its build finds installed in `packages/`."""

    folder: Path

    def list_files(self) -> list[Path]:
        """Return the folder's files, sorted; hidden ones are left out."""
        return sorted(
            path
            for path in self.folder.rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in self._relative_to_folder(path).parts)
        )

    def hash_content(self) -> str:
        """Hash names and contents of the files (hex)."""
        digest = hashlib.sha256()
        for path in self.list_files():
            content = path.read_bytes()
            digest.update(f"{self._relative_to_folder(path).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()

    def compute_tag(self) -> str:
        """Return the image name that stands for this content."""
        return f"{REPOSITORY}/{self.folder.name.lower()}:{self.hash_content()[:12]}"

    def parse_base(self) -> tuple[str, str]:
        """Return the image that the Dockerfile builds on, and the Python version that its name has, such as "3.11".

        Raises:
            SandboxUnavailable: it names none, so packages cannot be chosen.
        """
        match = _FROM.search((self.folder / "Dockerfile").read_text(encoding="utf-8"))
        if match is None:
            raise SandboxUnavailable(f"{self.folder / 'Dockerfile'} is not FROM an image of a Python, python:3.11-slim")
        return match[1], match[2]

    def requirements(self) -> Path | None:
        """Return the requirements file, or None."""
        path = self.folder / "requirements.txt"
        return path if path.is_file() else None

    def pack(self, packages: Path, stream: BinaryIO) -> None:
        """Write the folder, and the tree `packages`, as a tar archive; equal content gives equal bytes."""
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path in self.list_files():
                _add_file(archive, path, self._relative_to_folder(path).as_posix())
            folder = tarfile.TarInfo("packages")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
            for path in sorted(path for path in packages.rglob("*") if path.is_file()):
                _add_file(archive, path, f"packages/{path.relative_to(packages).as_posix()}")

    def _relative_to_folder(self, path: Path) -> Path:
        return path.relative_to(self.folder)


def _add_file(archive: tarfile.TarFile, path: Path, name: str) -> None:
    content = path.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))


async def install_packages(requirements: Path, interpreter: InterpreterTag, into: Path) -> None:
    """Install a requirements file into a folder, with this host's settings for where packages come from.

    Raises:
        SandboxUnavailable: a line is malformed, no index answers, or a requirement has no wheel.
    """
    try:
        await Uv().install(read_requirements(requirements), Target(interpreter), into)
    except (InputError, DependencyUnavailable, SandboxError) as error:
        raise SandboxUnavailable(
            f"the sandbox image needs what {requirements} names, and it cannot be installed: {error}\n"
            "Name an index that has it in pip's settings (PIP_INDEX_URL), or a folder of wheels (PIP_FIND_LINKS)."
        ) from error


Install = Callable[[Path, InterpreterTag, Path], Awaitable[None]]
Call = Callable[..., Awaitable[Any]]


async def ensure_built(
    engine: DockerEngine,
    source: ImageSource,
    progress: Progress,
    *,
    call: Call = asyncio.to_thread,
    install: Install = install_packages,
) -> str:
    """Return the tag of the folder's image, building it when the engine lacks it. `call` runs blocking calls.

    Raises:
        SandboxUnavailable: a base image, a package or a build step is missing or fails.
    """
    tag = source.compute_tag()
    if await call(engine.find_image_id, tag) is not None:
        return tag
    progress(f"Building the sandbox image {tag} (once)")
    base, python = source.parse_base()
    await ensure_present(engine, base, progress, call=call)
    requirements = source.requirements()
    staging = shared_cache() / "staging"
    staging.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=staging) as folder, tempfile.TemporaryFile() as context:
        packages = Path(folder) / "packages"
        if requirements is not None:
            progress(f"Installing what {requirements.name} names")
            interpreter = InterpreterTag(python, machine=engine.machine, libc_version=OLDEST_GLIBC)
            await install(requirements, interpreter, packages)
        source.pack(packages, context)
        context.seek(0)
        await call(engine.build, context, tag, _make_threadsafe(progress))
    return tag


def _make_threadsafe(progress: Progress) -> Progress:
    loop = asyncio.get_running_loop()

    def relay(line: str) -> None:
        loop.call_soon_threadsafe(progress, line)

    return relay


async def ensure_present(
    engine: DockerEngine, image: str, progress: Progress, *, call: Call = asyncio.to_thread
) -> None:
    """Pull an image unless the engine has it.

    Raises:
        SandboxUnavailable: it is neither here nor to be had.
    """
    if await call(engine.find_image_id, image) is None:
        progress(f"Pulling {image}")
        await call(engine.pull, image)


def find_image(engine: DockerEngine, python: str, images: Mapping[str, str]) -> str:
    """Return the image that `images` names for a minor version, else an official one of that version. Blocks.

    Raises:
        InterpreterUnavailable: there is none; names the versions that are there.
        SandboxError: the engine does not say what it has.
    """
    if python in images:
        if engine.find_image_id(images[python]) is None:
            raise InterpreterUnavailable(
                f"sandbox.images names {images[python]} for Python {python}, and the engine does not have it: "
                f"docker pull {images[python]}, or build it"
            )
        return images[python]
    official = _select_official(engine.list_image_names())
    if python in official:
        return official[python]
    there = sorted({*images, *official}, key=lambda version: int(version.rpartition(".")[2]))
    raise InterpreterUnavailable(
        f"the Docker engine has no image with Python {python}; it has: {', '.join(there) or 'none'}. Nothing is pulled "
        f"for this: docker pull python:{python}-slim, or name an image of yours: "
        f"-c 'sandbox.images={{\"{python}\": NAME}}'"
    )


def _select_official(names: Iterable[str]) -> dict[str, str]:
    """Return the best official image of each version: a slim one, else the plain one, else any."""
    images: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if match := _OFFICIAL.fullmatch(name):
            kind = 0 if match[2].startswith("-slim") else 1 if not match[2] else 2
            images.setdefault(match[1], []).append((kind, name))
    return {version: min(candidates)[1] for version, candidates in images.items()}
