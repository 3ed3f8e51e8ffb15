"""An engine that refuses what Docker takes is asked in another way; what is lost then is told, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SandboxError, SandboxUnavailable
from agent.sandbox.docker.backend import DockerBackend
from agent.sandbox.docker.engine import DockerEngine
from tests.sandbox.conftest import LIMITS, passes, statements

pytestmark = pytest.mark.docker

KEYRING = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall(250, 0, -3, 0) == -1 and ctypes.get_errno() == errno.EPERM
"""


class Refusing:
    """The engine of this machine, but with some settings refused in Podman's words; one word each."""

    def __init__(self, engine: DockerEngine, refused: Mapping[str, str]) -> None:
        self._engine = engine
        self._refused = refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def create(self, config: Mapping[str, Any], name: str) -> None:
        """Create a container, unless something in its settings is refused; a profile's file is read, as Podman does."""
        for setting, message in self._refused.items():
            if setting in str(config["HostConfig"]):
                raise SandboxError(message)
        taken = copy.deepcopy(dict(config))
        security = taken["HostConfig"]["SecurityOpt"]
        for number, option in enumerate(security):
            if option.startswith("seccomp=/"):
                security[number] = f"seccomp={Path(option.partition('=')[2]).read_text()}"
        self._engine.create(taken, name)


def refusing(**refused: str) -> DockerBackend:
    """Return a backend on an engine that refuses settings; underscores stand for what no keyword has."""
    words = {{"inline": "seccomp={", "file": "seccomp=/"}.get(word, word): said for word, said in refused.items()}
    return DockerBackend(LIMITS, pool=0, connect=lambda: Refusing(DockerEngine.connect(), words))  # type: ignore[arg-type,return-value]


async def test_a_profile_that_is_not_taken_inline_is_taken_from_its_file() -> None:
    told: list[str] = []
    backend = refusing(
        inline="opening seccomp profile failed: file name too long", nr_inodes="unknown option nr_inodes"
    )
    await backend.start(told.append)
    sandbox = await backend.acquire()
    try:
        assert passes(await sandbox.run(statements(KEYRING)), "test_a")
    finally:
        await sandbox.release()
        await backend.close()
    assert set(backend.unenforced()) == {"inodes"}
    assert [line for line in told if "cannot enforce" in line]


async def test_an_engine_that_takes_no_profile_keeps_its_own_and_that_is_told() -> None:
    backend = refusing(inline="no seccomp profile from there", file="no seccomp profile of that name")
    await backend.start(print)
    await backend.close()
    assert backend.unenforced() == {"seccomp": "the engine keeps its own profile, for it does not take ours"}


async def test_whatever_else_an_engine_refuses_is_an_error() -> None:
    with pytest.raises(SandboxUnavailable, match="no ReadonlyRootfs"):
        await refusing(ReadonlyRootfs="no ReadonlyRootfs here").start(print)


async def test_an_engine_that_takes_all_enforces_all() -> None:
    backend = refusing()
    await backend.start(print)
    await backend.close()
    assert backend.unenforced() == {}
