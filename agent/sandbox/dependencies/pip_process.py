"""Runs pip for a download: no code of a package, a size limit, and an output fit to be shown."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from agent.errors import DependencyUnavailable, SandboxError

_OUTPUT_LIMIT = 4 << 20

MOST_FILES = 20_000
"""Files and folders that one download may take, a builder's temporary ones among them."""
_BEFORE = "--uploaded-prior-to="

# Wheels only is a promise: nothing of a package runs on the host. `--only-binary` does not cover what a wheel's
# metadata asks for by URL, which pip would build. To build, pip must start a program, so that is denied to it. What
# pip starts for its own sake it can do without, but for `keyring`, which knows the password of the user's index.
_PIP = """\
import os, runpy, sys
sys.path[:0] = {paths!r}
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system", "os.fork", "os.forkpty")
def deny(event, args):
    if event in STARTS and not (args and os.path.basename(os.fsdecode(args[0] or "")) == "keyring"):
        raise PermissionError("a download may not run programs")
sys.addaudithook(deny)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

# Settings that would change what is fetched or said; where to fetch from stays the host's.
_DROPPED = frozenset(
    {"PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_GROUP", "PIP_NO_DEPS", "PIP_ONLY_DEPS", "PIP_PYTHON", "PIP_PLATFORM"}
    | {"PIP_ABI", "PIP_IMPLEMENTATION", "PIP_PYTHON_VERSION", "PIP_DEST", "PIP_NO_BINARY", "PIP_ONLY_BINARY", "PIP_LOG"}
)
_FIXED = {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_QUIET": "0", "PIP_VERBOSE": "0", "PIP_NO_INPUT": "1", "PIP_NO_COLOR": "1"}
_PATHS = ("PIP_FIND_LINKS", "PIP_CONFIG_FILE", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONSTRAINT", "PIP_CACHE_DIR")

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_WORD = re.compile(r"\S+")


NO_PIP = "this Python has no pip to fetch dependencies with: install it (`python -m ensurepip`)"


@dataclass(frozen=True)
class PipOutput:
    """How pip ended, and what it printed, cleaned; of a very long output the last part."""

    exit_code: int
    text: str


class Pip(Protocol):
    """Runs `pip download` somewhere."""

    async def __call__(self, arguments: Sequence[str], into: Path, *, size: int) -> PipOutput:
        """Download what the arguments say into a folder of the host.

        Raises:
            DependencyUnavailable: it takes more than `size` bytes, or needs a place that may not be reached.
            SandboxError: pip cannot be started.
        """
        ...


async def download_on_host(arguments: Sequence[str], into: Path, *, size: int) -> PipOutput:
    """Be a `Pip` on the host itself, for what no sandbox exists yet."""
    with tempfile.TemporaryDirectory(prefix="agent-pip-") as work:
        return await run_pip(["download", "--dest", str(into), *arguments], Path(work), size=size)


def guarded_pip(*paths: str) -> str:
    """Return code that runs pip, found in `paths` first, and starts no other program."""
    return _PIP.format(paths=list(paths))


async def run_pip(arguments: Sequence[str], work: Path, *, size: int) -> PipOutput:
    """Run `pip ARGUMENTS` in the folder `work`, which takes all its files; its processes are gone when this returns.

    Raises:
        DependencyUnavailable: its files took more than `size` bytes.
        SandboxError: pip cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", guarded_pip(), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=work,
            env=pip_environment(work),
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"pip cannot be started to fetch dependencies: {error.strerror}") from error
    assert process.stdout is not None
    output = Tail()
    ended = asyncio.gather(_read(process.stdout, output), process.wait())
    try:
        await _wait(ended, work, size)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        _, exit_code = await asyncio.shield(ended)
    text = await asyncio.to_thread(lambda: output.text)
    if exit_code and "No module named pip" in text:
        raise SandboxError(NO_PIP)
    return PipOutput(exit_code, text)


def clean(text: str) -> str:
    """Take escape sequences, control characters and the secrets of URLs out of a text."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    text = "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)
    return _WORD.sub(_without_secret, text)


def _without_secret(word: re.Match[str]) -> str:
    # up to the last @: people put passwords into URLs that have a / or @ in them and should be quoted, but are not
    scheme, separator, rest = word[0].partition("://")
    _secret, at, place = rest.rpartition("@")
    return f"{scheme}{separator}***@{place}" if at else word[0]


def before(moment: datetime) -> str:
    """Return the argument by which pip leaves out what was uploaded at a moment or later (pip 26.0)."""
    return f"{_BEFORE}{moment.isoformat()}"


def is_before(argument: str) -> bool:
    """Say whether an argument is that of `before`."""
    return argument.startswith(_BEFORE)


class Tail:
    """Keeps the last part of an output."""

    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, chunk: bytes) -> None:
        """Take what was printed next."""
        self._held += chunk
        if len(self._held) >= 2 * _OUTPUT_LIMIT:
            del self._held[:-_OUTPUT_LIMIT]

    @property
    def text(self) -> str:
        """What is kept, cleaned."""
        return clean(self._held[-_OUTPUT_LIMIT:].decode("utf-8", "replace"))


async def _read(stream: asyncio.StreamReader, output: Tail) -> None:
    while chunk := await stream.read(1 << 16):
        output.add(chunk)


async def _wait(ended: asyncio.Future[tuple[None, int]], work: Path, size: int) -> None:
    while not (await asyncio.wait({ended}, timeout=1.0))[0]:
        if await asyncio.to_thread(is_overfull, work, size):
            raise too_large(size)


def too_large(size: int) -> DependencyUnavailable:
    """Return the error for a download of more than so many bytes, or of too many files."""
    return DependencyUnavailable(
        f"the download is larger than {size >> 20} MB, or of more than {MOST_FILES} files: all that is allowed for it"
    )


def folder_size(folder: Path) -> int:
    """Return the bytes of all files in a folder that others are writing to."""
    return _taken(folder)[0]


def is_overfull(folder: Path, size: int) -> bool:
    """Say whether a folder that others are writing to holds more than so many bytes, or too many files."""
    taken, files = _taken(folder)
    return taken > size or files > MOST_FILES


def _taken(folder: Path) -> tuple[int, int]:
    total = entries = 0
    for place, folders, files in os.walk(folder):
        entries += len(folders) + len(files)
        for file in files:
            with suppress(OSError):  # pip moves files while they are counted
                total += Path(place, file).lstat().st_size
        if entries > MOST_FILES:
            break
    return total, entries


def pip_environment(work: Path) -> dict[str, str]:
    """Return the variables for a pip of the host: its own settings, but for those that would change what is fetched."""
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    for name in _PATHS:
        if name in environment:
            environment[name] = " ".join(_absolute(environment[name].split()))
    return {**environment, **_FIXED, "TMPDIR": str(work), "PYTHONIOENCODING": "utf-8"}


def _absolute(places: Iterable[str]) -> Iterable[str]:
    # pip runs in an empty folder of its own, so that no file of the current one is taken for a package.
    return (str(Path(place).absolute()) if "://" not in place and Path(place).exists() else place for place in places)
