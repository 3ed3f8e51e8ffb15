"""Environments for bubblewrap sandboxes are built without rights, kept from change, and shadow nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agent.errors import DependencyUnavailable
from agent.sandbox.base import Job
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.inside import source
from tests.sandbox.conftest import LIMITS, job, passes
from tests.sandbox.wheelhouse import make_wheel

pytestmark = pytest.mark.bwrap


async def test_an_environment_is_built_once_and_imported(store: Path, tmp_path: Path) -> None:
    backend = BwrapBackend(LIMITS, store=store)
    await backend.start(lambda _line: None)
    wheels = [make_wheel(tmp_path, "tinything"), make_wheel(tmp_path, "other-thing", "2.0")]
    assert await backend.installer.installed("abc") is None
    assert await backend.installer.install(wheels, "abc") == ("other-thing==2.0", "tinything==1.0")
    assert await backend.installer.install(wheels, "abc") == ("other-thing==2.0", "tinything==1.0")
    assert await backend.installer.installed("abc") == ("other-thing==2.0", "tinything==1.0")
    sandbox = await backend.acquire()
    program = "import tinything, other_thing\ndef test_a(): assert tinything.VERSION == '1.0'"
    given = job(program)
    assert passes(await sandbox.run(Job(given.harness, program, given.cases, environment="abc")), "test_a")
    assert [record.kind for record in (await sandbox.run(given)).records] == ["load", "end"]
    await sandbox.release()
    base = next((store / "bwrap").iterdir())
    assert list((base / "staging").iterdir()) == []
    files = [base / "envs" / "abc", *(base / "envs" / "abc").rglob("*")]
    assert {path.stat().st_uid for path in files} == {os.geteuid()}
    assert not any(path.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP) for path in files)
    assert any(path.suffix == ".pyc" for path in files)
    await backend.close()


async def test_an_environment_does_not_shadow_the_standard_library(store: Path, tmp_path: Path) -> None:
    backend = BwrapBackend(LIMITS, store=store)
    await backend.start(lambda _line: None)
    planted = dict.fromkeys(("unittest.py", "types.py", "evil.pth", "sitecustomize.py"), "import os; os._exit(0)\n")
    await backend.installer.install([make_wheel(tmp_path, "evil", files=planted)], "e")
    sandbox = await backend.acquire()
    program = "import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self): self.assertTrue(True)"
    given = Job(source("python_harness"), program, ("TestA.test_a",), environment="e")
    assert passes(await sandbox.run(given), "TestA.test_a")
    await backend.close()


async def test_a_wheel_that_pip_refuses_is_a_missing_dependency(store: Path, tmp_path: Path) -> None:
    backend = BwrapBackend(LIMITS, store=store)
    await backend.start(lambda _line: None)
    wheel = make_wheel(tmp_path, "foreign", tag="cp27-cp27m-win32")
    with pytest.raises(DependencyUnavailable, match="could not be installed"):
        await backend.installer.install([wheel], "abc")
    assert await backend.installer.installed("abc") is None
    await backend.close()
