"""Containers get what they need and no more, and a launch that ends early leaves none."""

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
    ContainerSetting,
    diagnose_container,
    make_builder_config,
    make_sandbox_config,
)
from agent.sandbox.docker.engine import ContainerState

CONFIG: Mapping[str, Any] = {"Image": "x"}


class Engine:
    """Keeps the names of its containers; a step can be held up or made to fail."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.steps: list[str] = []
        self.broken: set[str] = set()
        self.reached = {step: threading.Event() for step in ("create", "attach", "start")}
        self.gates = {step: threading.Event() for step in self.reached}
        for gate in self.gates.values():
            gate.set()
        self.sockets: list[socket.socket] = []

    def _step(self, step: str) -> None:
        self.steps.append(step)
        if step in self.reached:
            self.reached[step].set()
            assert self.gates[step].wait(10)
        if step in self.broken:
            raise SandboxError(f"{step} failed")

    def create(self, config: Mapping[str, Any], name: str) -> None:  # noqa: ARG002
        self._step("create")
        self.names.add(name)

    def attach(self, name: str) -> socket.socket:  # noqa: ARG002
        self._step("attach")
        ours, theirs = socket.socketpair()
        self.sockets.append(theirs)
        return ours

    def start(self, name: str) -> None:  # noqa: ARG002
        self._step("start")

    def remove(self, name: str) -> None:
        self._step("remove")
        self.names.discard(name)

    def connected(self) -> bool:
        """Say whether any attached stream is still open."""
        closed = [each.recv(1) == b"" for each in self.sockets]
        for each in self.sockets:
            each.close()
        return not all(closed)


async def test_a_container_is_attached_to_before_it_starts_and_gone_after_close() -> None:
    engine = Engine()
    launcher = ContainerLauncher(engine)
    launched = await launcher.launch(CONFIG, lambda name: engine.steps.append(f"prepare {name}"))
    assert engine.steps == ["create", f"prepare {launched.name}", "attach", "start"]
    assert engine.names == {launched.name}
    launched.stream.close()
    launcher.discard(launched.name)
    assert await launcher.close() == {}
    assert not engine.names
    assert not engine.connected()


@pytest.mark.parametrize("step", ["create", "attach", "start"])
async def test_a_launch_cancelled_at_any_step_leaves_nothing(step: str) -> None:
    engine = Engine()
    launcher = ContainerLauncher(engine)
    engine.gates[step].clear()
    launch = asyncio.create_task(launcher.launch(CONFIG))
    await asyncio.to_thread(engine.reached[step].wait)
    launch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launch
    engine.gates[step].set()
    assert await launcher.close() == {}
    assert not engine.names
    assert not engine.connected()
    assert step == "start" or "start" not in engine.steps


async def test_a_launch_that_takes_too_long_is_an_error_and_leaves_nothing() -> None:
    engine = Engine()
    launcher = ContainerLauncher(engine)
    engine.gates["start"].clear()
    with pytest.raises(SandboxError, match=r"did not start a container within 0\.05 s"):
        await launcher.launch(CONFIG, deadline=0.05)
    engine.gates["start"].set()
    assert await launcher.close() == {}
    assert not engine.names
    assert not engine.connected()


@pytest.mark.parametrize("step", ["create", "attach", "start"])
async def test_a_launch_that_fails_at_any_step_is_undone(step: str) -> None:
    engine = Engine()
    launcher = ContainerLauncher(engine)
    engine.broken.add(step)
    with pytest.raises(SandboxError, match=f"{step} failed"):
        await launcher.launch(CONFIG)
    assert not engine.names
    assert not engine.connected()
    await launcher.close()


@pytest.mark.parametrize("step", ["create", "start"])
async def test_closing_while_a_container_starts_ends_the_launch(step: str) -> None:
    engine = Engine()
    launcher = ContainerLauncher(engine)
    engine.gates[step].clear()
    launch = asyncio.create_task(launcher.launch(CONFIG))
    await asyncio.to_thread(engine.reached[step].wait)
    closing = asyncio.create_task(launcher.close())
    await asyncio.sleep(0)
    engine.gates[step].set()
    assert await closing == {}
    with pytest.raises(SandboxError, match=r"given up|closed"):
        await launch
    assert not engine.names
    assert not engine.connected()


async def test_close_reports_what_could_not_be_removed() -> None:
    engine = Engine()
    launcher = ContainerLauncher(engine)
    launched = await launcher.launch(CONFIG)
    launched.stream.close()
    engine.broken.add("remove")
    launcher.discard(launched.name)
    assert {name: str(error) for name, error in (await launcher.close()).items()} == {launched.name: "remove failed"}
    assert not engine.connected()


def test_a_sandbox_has_no_network_no_host_folder_and_three_capabilities() -> None:
    limits = SandboxLimits(memory=1 << 28, processes=10, cpus=0.5, files=1 << 20, open_files=99, inodes=77)
    config = make_sandbox_config(
        ContainerSetting("image", limits, "store", {"owner": "me"}, ("seccomp={}",)), ["python3"]
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


def test_a_builder_may_write_to_the_store_and_has_no_capability() -> None:
    host = make_builder_config(ContainerSetting("image", SandboxLimits(), "store", {}), ["python3"])["HostConfig"]
    assert not host["Mounts"][0]["ReadOnly"]
    assert (host["CapDrop"], host.get("CapAdd")) == (["ALL"], None)
    assert host["NetworkMode"] == "none"


def ended(exit_code: int, *, oom_killed: bool = False) -> ContainerState:
    return ContainerState(running=False, exit_code=exit_code, oom_killed=oom_killed)


@pytest.mark.parametrize(
    ("found", "kind", "says"),
    [
        (ended(70), RunnerCrashed, "ended with exit code 70"),
        (ended(0), ContainerLost, "the connection to it broke"),
        (ended(137), ContainerLost, "killed from outside"),
        (ended(137, oom_killed=True), ContainerLost, "out of memory as a whole"),
        (None, ContainerLost, "removed by somebody else"),
        (EngineLost("refused"), EngineLost, "refused"),
        (SandboxError("no such driver"), ContainerLost, "no such driver"),
    ],
)
async def test_who_failed_is_told_apart(
    found: ContainerState | SandboxError | None, kind: type[SandboxError], says: str
) -> None:
    async def look() -> ContainerState | None:
        if isinstance(found, SandboxError):
            raise found
        return found

    error = await diagnose_container(look, "c", "")
    assert type(error) is kind
    assert says in str(error)
