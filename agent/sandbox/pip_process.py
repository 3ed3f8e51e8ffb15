"""Runs the host's pip for a download: no code of a package, a size limit, and an output fit to be shown."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.errors import DependencyUnavailable, SandboxError

_OUTPUT_LIMIT = 4 << 20

# Wheels only is a promise: nothing of a package runs on the host. `--only-binary` does not cover what a wheel's
# metadata asks for by URL, which pip would build. To build, pip must start a program, so that is denied to it. What
# pip starts for its own sake it can do without, but for `keyring`, which knows the password of the user's index.
_PIP = """\
import os, runpy, sys
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system", "os.fork", "os.forkpty"}
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
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True)
class PipOutput:
    """How pip ended, and what it printed, cleaned; of a very long output the last part."""

    exit_code: int
    text: str


async def run_pip(arguments: Sequence[str], work: Path, *, size: int) -> PipOutput:
    """Run `pip ARGUMENTS` in the folder `work`, which takes all its files; its processes are gone when this returns.

    Raises:
        DependencyUnavailable: its files took more than `size` bytes.
        SandboxError: pip cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", _PIP, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=work,
            env=_environment(work),
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"pip cannot be started to fetch dependencies: {error.strerror}") from error
    ended = asyncio.gather(_read(process), process.wait())
    try:
        await _wait(ended, work, size)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        printed, exit_code = await asyncio.shield(ended)
    output = PipOutput(exit_code, clean(printed.decode("utf-8", "replace")))
    if output.exit_code and "No module named pip" in output.text:
        raise SandboxError("this Python has no pip to fetch dependencies with: install it (`python -m ensurepip`)")
    return output


def clean(text: str) -> str:
    """Take escape sequences, control characters and the secrets of URLs out of a text."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    text = "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)
    return _SECRET.sub("***@", text)


async def _read(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    chunks: deque[bytes] = deque()
    held = 0
    while chunk := await process.stdout.read(1 << 16):
        chunks.append(chunk)
        held += len(chunk)
        while held - len(chunks[0]) >= _OUTPUT_LIMIT:
            held -= len(chunks.popleft())
    return b"".join(chunks)


async def _wait(ended: asyncio.Future[tuple[bytes, int]], work: Path, size: int) -> None:
    while not (await asyncio.wait({ended}, timeout=1.0))[0]:
        if await asyncio.to_thread(_folder_size, work) > size:
            raise DependencyUnavailable(f"the download is larger than {size >> 20} MB, the limit for one environment")


def _folder_size(folder: Path) -> int:
    total = 0
    for place, _folders, files in os.walk(folder):
        for file in files:
            with suppress(OSError):  # pip moves files while they are counted
                total += Path(place, file).lstat().st_size
    return total


def _environment(work: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    for name in _PATHS:
        if name in environment:
            environment[name] = " ".join(_absolute(environment[name].split()))
    return {**environment, **_FIXED, "TMPDIR": str(work), "PYTHONIOENCODING": "utf-8"}


def _absolute(places: Iterable[str]) -> Iterable[str]:
    # pip runs in an empty folder of its own, so that no file of the current one is taken for a package.
    return (str(Path(place).absolute()) if "://" not in place and Path(place).exists() else place for place in places)
