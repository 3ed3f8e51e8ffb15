"""An environment in use by any live process is never removed; a process that dies uses nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.sandbox.dependencies.store import Leases

_HOLD = """
import asyncio, sys
from pathlib import Path
from agent.sandbox.dependencies.store import Leases
leases = Leases(lambda: Path(sys.argv[1]))
asyncio.run(leases.acquire("k"))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that uses the environment `k` as long as it lives."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(lambda: tmp_path)


def claimed(leases: Leases, key: str = "k") -> bool:
    """Return whether an environment may be removed, and leave it."""
    with leases.open_claims() as claim:
        return claim(key)


def test_a_process_uses_it_until_it_dies(leases: Leases, tmp_path: Path) -> None:
    with another_process(tmp_path) as other:
        assert not claimed(leases)
        other.kill()
        other.wait()
        assert claimed(leases)


async def test_who_takes_one_that_is_being_removed_waits_for_that(leases: Leases) -> None:
    await leases.acquire("k")
    leases.release("k")
    with leases.open_claims() as claim:
        assert claim("k")
        taking = asyncio.ensure_future(leases.acquire("k"))
        await asyncio.sleep(0.1)
        assert not taking.done()
    await taking
    assert not claimed(leases)


async def test_where_leases_cannot_be_kept_nothing_is_removed_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    leases = Leases(lambda: tmp_path / "file")
    await leases.acquire("k")
    leases.release("k")
    assert not claimed(leases)
