"""Settings that an engine rejects are replaced or omitted, and only limits that are not enforced are reported."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SandboxError, SandboxUnavailable
from agent.sandbox.docker.backend import DockerBackend
from agent.sandbox.docker.engine import DockerEngine
from tests.sandbox.conftest import LIMITS, make_test_job, passes

pytestmark = pytest.mark.docker

KEYRING = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall(250, 0, -3, 0) == -1 and ctypes.get_errno() == errno.EPERM
"""


class RefusingEngine:
    """This machine's engine, modified to reject some settings with Podman's messages."""

    def __init__(self, engine: DockerEngine, refusals: Mapping[str, str]) -> None:
        self._engine = engine
        self._refusals = refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def create(self, config: Mapping[str, Any], name: str) -> None:
        """Create a container unless a setting must be rejected. Reads the profile from a path, as Podman does."""
        for setting, message in self._refusals.items():
            if setting in str(config["HostConfig"]):
                raise SandboxError(message)
        accepted = copy.deepcopy(dict(config))
        security = accepted["HostConfig"]["SecurityOpt"]
        for number, option in enumerate(security):
            if option.startswith("seccomp=/"):
                security[number] = f"seccomp={Path(option.partition('=')[2]).read_text()}"
        self._engine.create(accepted, name)


def make_refusing_backend(**refused: str) -> DockerBackend:
    """Return a backend whose engine rejects these settings with these messages."""
    refusals = {{"inline": "seccomp={", "file": "seccomp=/"}.get(name, name): text for name, text in refused.items()}
    return DockerBackend(LIMITS, pool=0, connect=lambda: RefusingEngine(DockerEngine.connect(), refusals))  # type: ignore[arg-type,return-value]


async def test_a_profile_refused_inline_is_passed_as_a_file() -> None:
    messages: list[str] = []
    backend = make_refusing_backend(
        inline="opening seccomp profile failed: file name too long", nr_inodes="unknown option nr_inodes"
    )
    await backend.start(messages.append)
    sandbox = await backend.acquire()
    try:
        assert passes(await sandbox.run(make_test_job(KEYRING)), "test_a")
    finally:
        await sandbox.release()
        await backend.close()
    assert set(backend.unenforced()) == {"inodes"}
    assert [line for line in messages if "inodes" in line]


async def test_an_engine_that_refuses_every_profile_does_not_enforce_ours() -> None:
    backend = make_refusing_backend(inline="no seccomp profile from there", file="no such seccomp profile")
    await backend.start(print)
    await backend.close()
    assert list(backend.unenforced()) == ["seccomp"]


async def test_any_other_refused_setting_raises() -> None:
    with pytest.raises(SandboxUnavailable, match="no ReadonlyRootfs"):
        await make_refusing_backend(ReadonlyRootfs="no ReadonlyRootfs here").start(print)


async def test_an_engine_that_refuses_nothing_enforces_everything() -> None:
    backend = make_refusing_backend()
    await backend.start(print)
    await backend.close()
    assert backend.unenforced() == {}
