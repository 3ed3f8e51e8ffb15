"""What this process holds at a moment: processes, threads, descriptors, mounts, control groups, containers."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from agent.sandbox.owner import KIND, PREFIX, Owner
from tests import disks
from tests.cli.processes import descendants


def descriptors() -> int:
    """Return how many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[str]:
    """Return the processes whose parent is this one, zombies too."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            found |= set((task / "children").read_text(encoding="ascii").split())
    return found


def containers(*, running: bool = False) -> set[str]:
    """Return the containers that this process started, or those of them that run now."""
    import docker

    client = docker.from_env()
    try:
        labels = [f"{label}={value}" for label, value in Owner.current().as_labels().items()]
        return {each["Id"] for each in client.api.containers(all=not running, filters={"label": labels})}
    finally:
        client.close()


def threads() -> list[str]:
    """Return this process's threads by name, without those that asyncio keeps for later work."""
    return sorted(each.name for each in threading.enumerate() if not each.name.startswith("asyncio_"))


def mounts() -> set[str]:
    """Return where something is mounted for this process, without what belongs to others: the engine, other tests."""
    found = (line.split() for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines())
    return {fields[4] for fields in found if not fields[4].startswith(_ENGINE_S) and disks.SOURCE not in fields}


_ENGINE_S = ("/var/lib/docker/", "/var/lib/containerd/", "/run/docker/", "/run/containerd/", "/var/run/docker/")


def control_groups() -> set[str]:
    """Return the control groups that this process made."""
    own = re.compile(rf"/{PREFIX}/{os.getpid()}-")
    return {folder for folder, _, _ in os.walk("/sys/fs/cgroup") if own.search(folder)}


@contextmanager
def orphans_kept() -> Iterator[None]:
    """Have orphans below this process become its own children, so that none escapes being counted."""
    become = partial(ctypes.CDLL(None, use_errno=True).prctl, _SUBREAPER)
    assert become(1) == 0
    try:
        yield
    finally:
        become(0)
        reap()


def reap() -> None:
    """Let this process's children that have ended go, as their parent before would have: others may look for them."""
    for process in children():
        with suppress(ChildProcessError):
            os.waitpid(int(process), os.WNOHANG)


_SUBREAPER = 36


def volumes_and_networks() -> set[str]:
    """Return what the engine has of ours, or of nobody, besides containers; what other tests have is theirs."""
    import docker

    client = docker.from_env()
    try:
        found = [*(client.api.volumes()["Volumes"] or ()), *client.api.networks()]
    finally:
        client.close()
    ours = (each for each in found if each["Name"].startswith(PREFIX) or KIND in (each["Labels"] or {}))
    return {each["Name"] for each in ours if "-tests-" not in each["Name"]}


def held() -> Mapping[str, object]:
    """Return what this process holds, by kind; equal before and after when nothing is left."""
    gc.collect()
    return {
        "descriptors": descriptors(),
        "processes": descendants(os.getpid()),
        "threads": threads(),
        "mounts": mounts(),
        "control groups": control_groups(),
    }


async def comes_to(expected: Mapping[str, object], within: float = 5.0) -> Mapping[str, object]:
    """Return what this process holds, as soon as that is what was expected, else as it is in the end."""
    deadline = time.monotonic() + within
    while (now := held()) != expected and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return now
