"""An environment that a live process uses is never removed. Leases are released when their process exits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.sandbox.dependencies.store import Leases

_ACQUIRE = """
import asyncio, sys
from pathlib import Path
from agent.sandbox.dependencies.store import Leases
leases = Leases(lambda: Path(sys.argv[1]))
asyncio.run(leases.acquire("k"))
print("leased", flush=True)
sys.stdin.read()
"""


@contextmanager
def lease_in_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that leases the environment `k` until it exits."""
    with subprocess.Popen(
        [sys.executable, "-c", _ACQUIRE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "leased\n"
        yield process
        process.kill()


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(lambda: tmp_path)


def is_claimable(leases: Leases, key: str = "k") -> bool:
    """Return whether an environment could be claimed for removal. Does not remove the environment."""
    with leases.open_claims() as claim:
        return claim(key)


def test_a_lease_ends_with_its_process(leases: Leases, tmp_path: Path) -> None:
    with lease_in_process(tmp_path) as other:
        assert not is_claimable(leases)
        other.kill()
        other.wait()
        assert is_claimable(leases)


async def test_acquiring_waits_for_a_running_removal(leases: Leases) -> None:
    await leases.acquire("k")
    leases.release("k")
    with leases.open_claims() as claim:
        assert claim("k")
        acquiring = asyncio.ensure_future(leases.acquire("k"))
        await asyncio.sleep(0.1)
        assert not acquiring.done()
    await acquiring
    assert not is_claimable(leases)


async def test_without_a_writable_folder_nothing_fails_and_nothing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    leases = Leases(lambda: tmp_path / "file")
    await leases.acquire("k")
    leases.release("k")
    assert not is_claimable(leases)
