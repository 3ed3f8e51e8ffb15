"""Containers have minimal privileges, and an interrupted launch leaves no container behind."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from agent.errors import ContainerLost, EngineLost, RunnerCrashed, SandboxError
from agent.sandbox.base import SandboxLimits
from agent.sandbox.docker.containers import (
    ContainerLauncher,
    ContainerSettings,
    diagnose_container,
    make_builder_config,
    make_sandbox_config,
)
from agent.sandbox.docker.engine import ContainerState

CONFIG: Mapping[str, Any] = {"Image": "x"}


class Engine:
    """A fake engine that records container names and steps. Steps can be blocked or made to fail."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.steps: list[str] = []
        self.broken: set[str] = set()
        self.reached = {step: threading.Event() for step in ("create", "attach", "start")}
        self.gates = {step: threading.Event() for step in self.reached}
        for gate in self.gates.values():
            gate.set()
        self.sockets: list[socket.socket] = []

    def _run_step(self, step: str) -> None:
        self.steps.append(step)
        if step in self.reached:
            self.reached[step].set()
            assert self.gates[step].wait(10)
        if step in self.broken:
            raise SandboxError(f"{step} failed")

    def create(self, config: Mapping[str, Any], name: str) -> None:  # noqa: ARG002
        self._run_step("create")
        self.names.add(name)

    def attach(self, name: str) -> socket.socket:  # noqa: ARG002
        self._run_step("attach")
        ours, theirs = socket.socketpair()
        self.sockets.append(theirs)
        return ours

    def start(self, name: str) -> None:  # noqa: ARG002
        self._run_step("start")

    def remove(self, name: str) -> None:
        self._run_step("remove")
        self.names.discard(name)

    def has_open_stream(self) -> bool:
        """Return whether any attached stream is still open."""
        closed = [end.recv(1) == b"" for end in self.sockets]
        for end in self.sockets:
            end.close()
        return not all(closed)

    def is_clean(self) -> bool:
        """Return whether no containers and no open streams remain."""
        return not self.names and not self.has_open_stream()


async def test_attaching_precedes_the_start_and_close_removes_containers() -> None:
    launcher = ContainerLauncher(engine := Engine())
    container = await launcher.launch(CONFIG, lambda name: engine.steps.append(f"prepare {name}"))
    assert engine.steps == ["create", f"prepare {container.name}", "attach", "start"]
    assert engine.names == {container.name}
    container.stream.close()
    launcher.discard(container.name)
    assert await launcher.close() == {}
    assert engine.is_clean()


@pytest.mark.parametrize("step", ["create", "attach", "start"])
async def test_a_launch_cancelled_at_any_step_leaves_nothing(step: str) -> None:
    launcher = ContainerLauncher(engine := Engine())
    engine.gates[step].clear()
    launch = asyncio.create_task(launcher.launch(CONFIG))
    await asyncio.to_thread(engine.reached[step].wait)
    launch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launch
    engine.gates[step].set()
    assert await launcher.close() == {}
    assert engine.is_clean()
    assert step == "start" or "start" not in engine.steps


async def test_a_launch_that_times_out_raises_and_leaves_nothing() -> None:
    launcher = ContainerLauncher(engine := Engine())
    engine.gates["start"].clear()
    with pytest.raises(SandboxError, match=r"0\.05 s"):
        await launcher.launch(CONFIG, deadline=0.05)
    engine.gates["start"].set()
    assert await launcher.close() == {}
    assert engine.is_clean()


@pytest.mark.parametrize("step", ["create", "attach", "start"])
async def test_a_failed_launch_removes_its_container(step: str) -> None:
    launcher = ContainerLauncher(engine := Engine())
    engine.broken.add(step)
    with pytest.raises(SandboxError, match=f"{step} failed"):
        await launcher.launch(CONFIG)
    assert engine.is_clean()
    await launcher.close()


@pytest.mark.parametrize("step", ["create", "start"])
async def test_close_cancels_a_running_launch(step: str) -> None:
    launcher = ContainerLauncher(engine := Engine())
    engine.gates[step].clear()
    launch = asyncio.create_task(launcher.launch(CONFIG))
    await asyncio.to_thread(engine.reached[step].wait)
    closing = asyncio.create_task(launcher.close())
    await asyncio.sleep(0)
    engine.gates[step].set()
    assert await closing == {}
    with pytest.raises(SandboxError, match=r"cancelled|closed"):
        await launch
    assert engine.is_clean()


async def test_close_reports_failed_removals() -> None:
    launcher = ContainerLauncher(engine := Engine())
    container = await launcher.launch(CONFIG)
    container.stream.close()
    engine.broken.add("remove")
    launcher.discard(container.name)
    assert {name: str(error) for name, error in (await launcher.close()).items()} == {container.name: "remove failed"}
    assert not engine.has_open_stream()


def test_a_sandbox_has_no_network_no_host_folder_and_three_capabilities() -> None:
    limits = SandboxLimits(memory=1 << 28, processes=10, cpus=0.5, files=1 << 20, open_files=99, inodes=77)
    config = make_sandbox_config(
        ContainerSettings("image", limits, "store", {"owner": "me"}, ("seccomp={}",)), ["python3"]
    )
    host = config["HostConfig"]
    assert (host["NetworkMode"], config["NetworkDisabled"]) == ("none", True)
    assert host["ReadonlyRootfs"]
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], ["SETUID", "SETGID", "KILL"])
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["Memory"] == host["MemorySwap"] == 1 << 28
    assert host["NanoCpus"] == 500_000_000
    assert 10 <= host["PidsLimit"] <= 20
    assert {"Name": "nofile", "Soft": 99, "Hard": 99} in host["Ulimits"]
    assert "Binds" not in host
    assert [(mount["Type"], mount["Target"], mount["ReadOnly"]) for mount in host["Mounts"]] == [
        ("volume", "/envs", True)
    ]
    assert set(host["Tmpfs"]) == {"/tmp", "/work", "/dev/shm"}
    assert all("size=1048576,nr_inodes=77," in options for options in host["Tmpfs"].values())
    assert (config["OpenStdin"], config["StdinOnce"], config["Tty"]) == (True, True, False)
    assert config["Labels"]["owner"] == "me"


def test_a_builder_can_write_to_the_store_and_has_no_capabilities() -> None:
    host = make_builder_config(ContainerSettings("image", SandboxLimits(), "store", {}), ["python3"])["HostConfig"]
    assert not host["Mounts"][0]["ReadOnly"]
    assert (host["CapDrop"], host.get("CapAdd")) == (["ALL"], None)
    assert host["NetworkMode"] == "none"


def make_exited_state(exit_code: int, *, oom_killed: bool = False) -> ContainerState:
    return ContainerState(running=False, exit_code=exit_code, oom_killed=oom_killed)


@pytest.mark.parametrize(
    ("state", "kind", "word"),
    [
        (make_exited_state(70), RunnerCrashed, "70"),
        (make_exited_state(0), ContainerLost, "connection"),
        (make_exited_state(137), ContainerLost, "137"),
        (make_exited_state(137, oom_killed=True), ContainerLost, "memory"),
        (None, ContainerLost, "removed"),
        (EngineLost("refused"), EngineLost, "refused"),
        (SandboxError("no such driver"), ContainerLost, "no such driver"),
    ],
)
async def test_the_error_type_depends_on_the_container_state(
    state: ContainerState | SandboxError | None, kind: type[SandboxError], word: str
) -> None:
    async def inspect() -> ContainerState | None:
        if isinstance(state, SandboxError):
            raise state
        return state

    error = await diagnose_container(inspect, "c", "")
    assert type(error) is kind
    assert word in str(error)
