"""Builds the sandbox image from a folder, or finds an image for a Python version.

The image is built on first use. Its tag contains a hash of the folder's contents.
"""

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
from agent.sandbox.base import Notify
from agent.sandbox.dependencies.requirements import read_requirements
from agent.sandbox.dependencies.uv import Target, Uv
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.folders import get_shared_cache
from agent.sandbox.interpreter import InterpreterTag

REPOSITORY = "test-driven-annotator"
OLDEST_GLIBC = "2.28"
"""Highest glibc version that wheels for an image may require. All base images in use have a later version."""

_FROM = re.compile(r"^FROM\s+(\S*python[^:/\s]*:(\d+\.\d+)\S*)", re.MULTILINE)
_OFFICIAL = re.compile(r"(?:docker\.io/)?(?:library/)?python:(3\.\d{1,2})(?:\.\d+)?(|-.+)")


@dataclass(frozen=True)
class ImageSource:
    """A folder with a Dockerfile.

    If the folder contains a `requirements.txt` file, the host installs the listed packages into `packages/` before the
    build.
    """

    folder: Path

    def list_files(self) -> list[Path]:
        """Return the sorted paths of all files in the folder except hidden files."""
        return sorted(
            path
            for path in self.folder.rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in self._make_relative(path).parts)
        )

    def hash_content(self) -> str:
        """Return a hexadecimal hash of all file names and contents."""
        digest = hashlib.sha256()
        for path in self.list_files():
            content = path.read_bytes()
            digest.update(f"{self._make_relative(path).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()

    def compute_tag(self) -> str:
        """Return the image name, with a tag that depends on the folder's contents."""
        return f"{REPOSITORY}/{self.folder.name.lower()}:{self.hash_content()[:12]}"

    def parse_base(self) -> tuple[str, str]:
        """Return the Dockerfile's base image and the Python version in its name, such as "3.11".

        Raises:
            SandboxUnavailable: the base image's name contains no Python version, so wheels cannot be selected.
        """
        match = _FROM.search((self.folder / "Dockerfile").read_text(encoding="utf-8"))
        if match is None:
            raise SandboxUnavailable(
                f"the base image in {self.folder / 'Dockerfile'} needs a Python version in its name, such as "
                "FROM python:3.11-slim"
            )
        return match[1], match[2]

    def find_requirements_file(self) -> Path | None:
        """Return the path of the requirements file, or None if there is none."""
        path = self.folder / "requirements.txt"
        return path if path.is_file() else None

    def pack(self, packages: Path, stream: BinaryIO) -> None:
        """Write the folder's files and the `packages` tree to `stream` as a tar archive. The output is reproducible."""
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path in self.list_files():
                _add_file(archive, path, self._make_relative(path).as_posix())
            folder = tarfile.TarInfo("packages")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
            for path in sorted(path for path in packages.rglob("*") if path.is_file()):
                _add_file(archive, path, f"packages/{path.relative_to(packages).as_posix()}")

    def _make_relative(self, path: Path) -> Path:
        return path.relative_to(self.folder)


def _add_file(archive: tarfile.TarFile, path: Path, name: str) -> None:
    content = path.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))


async def install_packages(requirements: Path, interpreter: InterpreterTag, into: Path) -> None:
    """Install the packages listed in a requirements file into a folder, using this host's package-source settings.

    Raises:
        SandboxUnavailable: a line is malformed, no index responds, or a requirement has no wheel.
    """
    try:
        await Uv().install(read_requirements(requirements), Target(interpreter), into)
    except (InputError, DependencyUnavailable, SandboxError) as error:
        raise SandboxUnavailable(
            f"cannot install the packages in {requirements} for the sandbox image: {error}\n"
            "Set PIP_INDEX_URL to another index, or PIP_FIND_LINKS to a folder of wheels."
        ) from error


Install = Callable[[Path, InterpreterTag, Path], Awaitable[None]]
Call = Callable[..., Awaitable[Any]]


async def ensure_built(
    engine: DockerEngine,
    source: ImageSource,
    progress: Notify,
    *,
    call: Call = asyncio.to_thread,
    install: Install = install_packages,
) -> str:
    """Return the name of the image for `source`. Build the image if the engine does not have it.

    `call` runs blocking functions. `install` installs the packages listed in the requirements file.

    Raises:
        SandboxUnavailable: the base image or a package is not available, or a build step fails.
    """
    tag = source.compute_tag()
    if await call(engine.find_image_id, tag) is not None:
        return tag
    progress(f"Building the sandbox image {tag} (only on first use)")
    base, python = source.parse_base()
    await ensure_present(engine, base, progress, call=call)
    requirements = source.find_requirements_file()
    staging = get_shared_cache() / "staging"
    staging.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=staging) as folder, tempfile.TemporaryFile() as context:
        packages = Path(folder) / "packages"
        if requirements is not None:
            progress(f"Installing packages from {requirements.name} for the image")
            interpreter = InterpreterTag(python, machine=engine.machine, libc_version=OLDEST_GLIBC)
            await install(requirements, interpreter, packages)
        source.pack(packages, context)
        context.seek(0)
        loop = asyncio.get_running_loop()  # the build reports its progress from another thread
        await call(engine.build, context, tag, lambda line: loop.call_soon_threadsafe(progress, line))
    return tag


async def ensure_present(engine: DockerEngine, image: str, progress: Notify, *, call: Call = asyncio.to_thread) -> None:
    """Pull an image unless the engine already has it.

    Raises:
        SandboxUnavailable: the image cannot be pulled.
    """
    if await call(engine.find_image_id, image) is None:
        progress(f"Pulling {image}")
        await call(engine.pull, image)


def find_image(engine: DockerEngine, python: str, images: Mapping[str, str]) -> str:
    """Return the image for a Python version: the one in `images`, or an official image that the engine has. Blocks.

    Raises:
        InterpreterUnavailable: the engine has no image for the version. The message lists the available versions.
        SandboxError: the engine cannot list images.
    """
    if python in images:
        if engine.find_image_id(images[python]) is None:
            raise InterpreterUnavailable(
                f"sandbox.images selects {images[python]} for Python {python}, but the engine does not have it. "
                f"Run docker pull {images[python]}, or build the image."
            )
        return images[python]
    official = _select_official(engine.list_image_names())
    if python in official:
        return official[python]
    available = sorted({*images, *official}, key=lambda version: int(version.rpartition(".")[2]))
    raise InterpreterUnavailable(
        f"the Docker engine has no image with Python {python} (available: {', '.join(available) or 'none'}). "
        f"Images are not pulled automatically. Run docker pull python:{python}-slim, or specify an image: "
        f"-c 'sandbox.images={{\"{python}\": NAME}}'"
    )


def _select_official(names: Iterable[str]) -> dict[str, str]:
    """Return one official image for each Python version. Prefer slim images, then images without a variant."""
    images: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if match := _OFFICIAL.fullmatch(name):
            kind = 0 if match[2].startswith("-slim") else 1 if not match[2] else 2
            images.setdefault(match[1], []).append((kind, name))
    return {version: min(candidates)[1] for version, candidates in images.items()}
