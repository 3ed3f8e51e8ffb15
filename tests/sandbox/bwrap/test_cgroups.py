"""A sandbox's processes are limited together wherever this process may make control groups, and none is left."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import SandboxError
from agent.sandbox.base import SandboxLimits
from agent.sandbox.bwrap import cgroups
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.bwrap.cgroups import ControlGroups
from agent.sandbox.owner import PREFIX
from tests.sandbox.conftest import LIMITS, start, statements
from tests.sandbox.leftovers import control_groups

MEMORY = 64 << 20
HALVES = f"""
import os, time
for n in range(4):
    if os.fork() == 0:
        x = b"x" * {MEMORY // 2}
        time.sleep(1)
        os._exit(0)
for n in range(4): os.wait()
"""


@pytest.fixture
def real() -> ControlGroups:
    """This machine's own, where it lets this process make any."""
    groups = ControlGroups.find()
    if "memory" in groups.missing:
        pytest.skip(groups.missing["memory"])
    return groups


def test_a_group_that_cannot_be_entered_is_not_left(real: ControlGroups) -> None:
    before = control_groups()
    with pytest.raises(SandboxError, match="could not be put into its control group"):
        real.enter(2**22 + 1, SandboxLimits())
    assert control_groups() == before


def test_what_a_dead_process_left_is_removed_by_the_next(real: ControlGroups) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = {folder / f"{dead.pid}-0" for folder in real.folders.values()}
    living = {folder / f"{os.getpid()}-0" for folder in real.folders.values()}
    for folder in left | living:
        folder.mkdir()
    ControlGroups.find()
    assert not any(folder.exists() for folder in left)
    for folder in living:
        folder.rmdir()  # was not removed


@pytest.mark.bwrap
@pytest.mark.usefixtures("real")
async def test_a_sandbox_is_limited_as_a_whole() -> None:
    backend = await start("bwrap", replace(LIMITS, memory=MEMORY))
    assert isinstance(backend, BwrapBackend)
    assert not {"memory", "cpu"} & backend.unenforced().keys()
    sandbox = await backend.acquire()
    result = await sandbox.run(statements(HALVES))
    assert result.limit == "memory"
    assert (await sandbox.run(statements("pass"))).clean
    await sandbox.release()
    await backend.close()


# What follows has plain folders in place of the kernel's: no machine has every kind.


def places(tmp_path: Path, text: str) -> Path:
    """Return a file that says in which groups this process is."""
    file = tmp_path / "own"
    file.write_text(text)
    return file


def delegated(tmp_path: Path, *, passed: str = "cpu memory pids") -> Path:
    """Make a hierarchy of version 2 whose session passes controllers on."""
    session = tmp_path / "fs" / "user.slice" / "session"
    (session / "shell").mkdir(parents=True)
    (tmp_path / "fs" / "cgroup.controllers").write_text("cpu memory pids")
    for folder, words in ((tmp_path / "fs", ""), (session.parent, ""), (session, passed), (session / "shell", "")):
        (folder / "cgroup.subtree_control").write_text(words)
        (folder / "cgroup.procs").write_text("")
    return session


@pytest.fixture
def removable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let folders be removed with the files in them, as the kernel's are."""

    def removed(folder: Path) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return True

    monkeypatch.setattr(cgroups, "_try_remove", removed)


@pytest.mark.usefixtures("removable")
def test_version_2_is_used_below_the_nearest_group_that_passes_its_controllers_on(tmp_path: Path) -> None:
    session = delegated(tmp_path)
    groups = ControlGroups.find(tmp_path / "fs", places(tmp_path, "0::/user.slice/session/shell\n"))
    assert groups.missing == {}
    group = groups.enter(4711, SandboxLimits(memory=1000, processes=10, cpus=0.5))
    assert group is not None
    (folder,) = group.folders
    assert folder.is_relative_to(session / PREFIX)
    assert {name: (folder / name).read_text() for name in ("memory.max", "pids.max", "cpu.max", "cgroup.procs")} == {
        "memory.max": "1000",
        "pids.max": "18",
        "cpu.max": "50000 100000",
        "cgroup.procs": "4711",
    }
    assert (folder.parent / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 2\noom_group_kill 0\n")
    assert group.kills() == 2


@pytest.mark.usefixtures("removable")
def test_a_controller_that_is_not_passed_on_is_missing(tmp_path: Path) -> None:
    delegated(tmp_path, passed="memory pids")
    groups = ControlGroups.find(tmp_path / "fs", places(tmp_path, "0::/user.slice/session/shell\n"))
    assert set(groups.missing) == {"cpu"}
    assert "does not pass it on" in groups.missing["cpu"]


def test_without_delegation_nothing_is_limited_and_the_remedy_is_told(tmp_path: Path) -> None:
    delegated(tmp_path, passed="")
    groups = ControlGroups.find(tmp_path / "fs", places(tmp_path, "0::/user.slice/session/shell\n"))
    assert set(groups.missing) == {"memory", "pids", "cpu"}
    assert "Delegate=yes" in groups.missing["memory"]
    assert groups.enter(1, SandboxLimits()) is None


def test_a_system_without_control_groups_says_so(tmp_path: Path) -> None:
    groups = ControlGroups.find(tmp_path, tmp_path / "nothing")
    assert all("no control group" in reason for reason in groups.missing.values())
    assert groups.enter(1, SandboxLimits()) is None
