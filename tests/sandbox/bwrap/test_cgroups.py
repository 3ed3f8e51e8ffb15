"""Control groups limit a sandbox as a whole if this process may create them, and none is left behind."""

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
from tests.sandbox.conftest import LIMITS, make_test_job, start
from tests.sandbox.leftovers import list_control_groups

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
def host_groups() -> ControlGroups:
    """This machine's control groups, if this process may create any."""
    groups = ControlGroups.find()
    if "memory" in groups.missing:
        pytest.skip(groups.missing["memory"])
    return groups


def test_a_group_that_cannot_be_entered_is_removed(host_groups: ControlGroups) -> None:
    before = list_control_groups()
    with pytest.raises(SandboxError, match="control group"):
        host_groups.enter(2**22 + 1, SandboxLimits())
    assert list_control_groups() == before


def test_groups_of_dead_processes_are_removed(host_groups: ControlGroups) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    stale = {folder / f"{dead.pid}-0" for folder in host_groups.folders.values()}
    living = {folder / f"{os.getpid()}-0" for folder in host_groups.folders.values()}
    for folder in stale | living:
        folder.mkdir()
    ControlGroups.find()
    assert not any(folder.exists() for folder in stale)
    for folder in living:
        folder.rmdir()  # raises if `find` removed it


@pytest.mark.bwrap
@pytest.mark.usefixtures("host_groups")
async def test_a_sandbox_is_limited_as_a_whole() -> None:
    backend = await start("bwrap", replace(LIMITS, memory=MEMORY))
    assert isinstance(backend, BwrapBackend)
    assert not {"memory", "cpu"} & backend.unenforced().keys()
    sandbox = await backend.acquire()
    result = await sandbox.run(make_test_job(HALVES))
    assert result.limit == "memory"
    assert (await sandbox.run(make_test_job("pass"))).clean
    await sandbox.release()
    await backend.close()


# The following tests use plain folders instead of the kernel's, because no machine has every kind.


def write_membership(tmp_path: Path, text: str) -> Path:
    """Write a file like /proc/self/cgroup."""
    file = tmp_path / "own"
    file.write_text(text)
    return file


def make_hierarchy(tmp_path: Path, *, delegated: str = "cpu memory pids") -> Path:
    """Create a version 2 hierarchy that delegates controllers to a session. Returns the session's folder."""
    session = tmp_path / "fs" / "user.slice" / "session"
    (session / "shell").mkdir(parents=True)
    (tmp_path / "fs" / "cgroup.controllers").write_text("cpu memory pids")
    for folder, words in ((tmp_path / "fs", ""), (session.parent, ""), (session, delegated), (session / "shell", "")):
        (folder / "cgroup.subtree_control").write_text(words)
        (folder / "cgroup.procs").write_text("")
    return session


@pytest.fixture
def removable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove folders together with their files, as the kernel does."""

    def remove(folder: Path) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return True

    monkeypatch.setattr(cgroups, "_try_remove", remove)


@pytest.mark.usefixtures("removable")
def test_version_2_uses_the_nearest_delegated_group(tmp_path: Path) -> None:
    session = make_hierarchy(tmp_path)
    groups = ControlGroups.find(tmp_path / "fs", write_membership(tmp_path, "0::/user.slice/session/shell\n"))
    assert groups.missing == {}
    group = groups.enter(4711, SandboxLimits(memory=1000, processes=10, cpus=0.5))
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
    assert group.count_kills() == 2


@pytest.mark.usefixtures("removable")
def test_a_controller_that_is_not_delegated_is_missing(tmp_path: Path) -> None:
    session = make_hierarchy(tmp_path, delegated="memory pids")
    groups = ControlGroups.find(tmp_path / "fs", write_membership(tmp_path, "0::/user.slice/session/shell\n"))
    assert set(groups.missing) == {"cpu"}
    assert str(session) in groups.missing["cpu"]


def test_without_delegation_nothing_is_limited(tmp_path: Path) -> None:
    make_hierarchy(tmp_path, delegated="")
    groups = ControlGroups.find(tmp_path / "fs", write_membership(tmp_path, "0::/user.slice/session/shell\n"))
    assert set(groups.missing) == {"memory", "pids", "cpu"}
    assert "Delegate=yes" in groups.missing["memory"]
    assert groups.enter(1, SandboxLimits()) is None


def test_a_system_without_control_groups_limits_nothing(tmp_path: Path) -> None:
    groups = ControlGroups.find(tmp_path, tmp_path / "nothing")
    assert all(str(tmp_path) in reason for reason in groups.missing.values())
    assert groups.enter(1, SandboxLimits()) is None
