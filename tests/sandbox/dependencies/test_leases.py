"""An environment in use by any live process is never removed; a process that dies uses nothing."""

from __future__ import annotations

import asyncio
import os
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
asyncio.run(leases.take("k"))
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
    with leases.claims() as claim:
        return claim(key)


async def test_it_is_in_use_until_all_have_given_it_back(leases: Leases) -> None:
    assert claimed(leases)
    await asyncio.gather(leases.take("k"), leases.take("k"))
    leases.give_back("k")
    assert not claimed(leases)
    assert claimed(leases, "other")
    leases.give_back("k")
    assert claimed(leases)


def test_a_process_uses_it_until_it_dies(leases: Leases, tmp_path: Path) -> None:
    with another_process(tmp_path) as other:
        assert not claimed(leases)
        other.kill()
        other.wait()
        assert claimed(leases)


async def test_who_takes_one_that_is_being_removed_waits_for_that(leases: Leases) -> None:
    with leases.claims() as claim:
        assert claim("k")
        taking = asyncio.ensure_future(leases.take("k"))
        await asyncio.sleep(0.1)
        assert not taking.done()
    await taking
    assert not claimed(leases)


async def test_a_use_is_remembered_with_its_time(leases: Leases, tmp_path: Path) -> None:
    assert leases.used("k") is None
    await leases.take("k")
    os.utime(tmp_path / "k", (1, 1))
    leases.give_back("k")
    assert leases.used("k") == 1
    await leases.take("k")
    assert (leases.used("k") or 0) > 1e9


async def test_where_leases_cannot_be_kept_nothing_is_removed_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    leases = Leases(lambda: tmp_path / "file")
    await leases.take("k")
    leases.give_back("k")
    assert not claimed(leases)
