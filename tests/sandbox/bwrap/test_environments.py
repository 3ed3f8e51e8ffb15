"""Environments of bubblewrap sandboxes are built without privileges, are read-only and shadow no other modules."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.sandbox.bwrap.backend import BwrapBackend
from tests.sandbox.conftest import LIMITS, make_job, passes, run_once
from tests.sandbox.stores import publish_wheel
from tests.sandbox.wheelhouse import make_wheel

pytestmark = pytest.mark.bwrap


@pytest.fixture
async def backend(store: Path) -> AsyncIterator[BwrapBackend]:
    """A started backend with a store of its own."""
    started = BwrapBackend(LIMITS, store=store)
    await started.start(lambda _line: None)
    yield started
    await started.close()


async def test_an_environment_is_built_once_and_imported(backend: BwrapBackend, store: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "tinything")
    assert await backend.store.find_lock("abc") is None
    await asyncio.gather(*(publish_wheel(backend, wheel, "abc") for _ in range(2)))
    assert await backend.store.find_lock("abc") == ("tinything==1.0",)
    program = "import tinything\ndef test_a(): assert tinything.VERSION == '1.0'"
    without = make_job(program)
    sandbox = await backend.acquire()
    assert passes(await sandbox.run(replace(without, environment="abc")), "test_a")
    assert [record.kind for record in (await sandbox.run(without)).records] == ["load", "end"]
    await sandbox.release()
    base = next((store / "bwrap").iterdir())
    assert list((base / "staging").iterdir()) == []
    files = [base / "envs" / "abc", *(base / "envs" / "abc").rglob("*")]
    assert {path.stat().st_uid for path in files} == {os.geteuid()}
    assert not any(path.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP) for path in files)
    assert any(path.suffix == ".pyc" for path in files)


async def test_an_environment_does_not_shadow_the_standard_library(backend: BwrapBackend, tmp_path: Path) -> None:
    files = dict.fromkeys(("unittest.py", "types.py", "evil.pth", "sitecustomize.py"), "import os; os._exit(0)\n")
    await publish_wheel(backend, make_wheel(tmp_path, "evil", files=files), "e")
    program = "import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self): self.assertTrue(True)"
    assert passes(await run_once(backend, make_job(program, ["TestA.test_a"]), "e"), "TestA.test_a")


async def test_a_wheel_cannot_replace_the_stores_files(backend: BwrapBackend, tmp_path: Path) -> None:
    files = {".lock.json": '["numpy==9"]', ".size/x": "", "planted.py": "(" * 5_000}
    await publish_wheel(backend, make_wheel(tmp_path, "planted", files=files), "abc")
    assert await backend.store.find_lock("abc") == ("planted==1.0",)
    assert [stored.key for stored in await backend.store.list_environments()] == ["abc"]
