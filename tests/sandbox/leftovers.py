"""An inventory of this process: processes, threads, descriptors, mounts, control groups and containers."""

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
from tests.cli.processes import find_descendants


def count_descriptors() -> int:
    """Return the number of open files and sockets."""
    return len(list(Path("/proc/self/fd").iterdir()))


def list_children() -> set[str]:
    """Return the child processes, including zombies."""
    pids = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended meanwhile
            pids |= set((task / "children").read_text(encoding="ascii").split())
    return pids


def list_containers(*, running: bool = False) -> set[str]:
    """Return the containers that this process started, or only those that are running."""
    import docker

    client = docker.from_env()
    try:
        labels = [f"{label}={value}" for label, value in Owner.current().as_labels().items()]
        return {container["Id"] for container in client.api.containers(all=not running, filters={"label": labels})}
    finally:
        client.close()


def list_threads() -> list[str]:
    """Return the names of this process's threads, without asyncio's idle workers."""
    return sorted(thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_"))


def list_mounts() -> set[str]:
    """Return this process's mount points, without those of the engine and of other tests."""
    rows = (line.split() for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines())
    return {fields[4] for fields in rows if not fields[4].startswith(_ENGINE_FOLDERS) and disks.SOURCE not in fields}


_ENGINE_FOLDERS = ("/var/lib/docker/", "/var/lib/containerd/", "/run/docker/", "/run/containerd/", "/var/run/docker/")


def list_control_groups() -> set[str]:
    """Return the control groups that this process created."""
    own_group = re.compile(rf"/{PREFIX}/{os.getpid()}-")
    return {folder for folder, _, _ in os.walk("/sys/fs/cgroup") if own_group.search(folder)}


@contextmanager
def adopt_orphans() -> Iterator[None]:
    """Become the parent of orphans below this process, so that they are counted."""
    set_subreaper = partial(ctypes.CDLL(None, use_errno=True).prctl, _SUBREAPER)
    assert set_subreaper(1) == 0
    try:
        yield
    finally:
        set_subreaper(0)
        reap()


def reap() -> None:
    """Collect this process's zombies, as their original parents would have."""
    for process in list_children():
        with suppress(ChildProcessError):
            os.waitpid(int(process), os.WNOHANG)


_SUBREAPER = 36


def list_volumes_and_networks() -> set[str]:
    """Return this package's volumes and networks on the engine, without those of other tests."""
    import docker

    client = docker.from_env()
    try:
        items = [*(client.api.volumes()["Volumes"] or ()), *client.api.networks()]
    finally:
        client.close()
    ours = (item for item in items if item["Name"].startswith(PREFIX) or KIND in (item["Labels"] or {}))
    return {item["Name"] for item in ours if "-tests-" not in item["Name"]}


def take_inventory() -> Mapping[str, object]:
    """Return the inventory by kind. A test that leaks nothing does not change it."""
    gc.collect()
    return {
        "descriptors": count_descriptors(),
        "processes": find_descendants(os.getpid()),
        "threads": list_threads(),
        "mounts": list_mounts(),
        "control groups": list_control_groups(),
    }


async def wait_for_inventory(expected: Mapping[str, object], within: float = 5.0) -> Mapping[str, object]:
    """Return the inventory once it equals `expected`, at the latest after `within` seconds."""
    deadline = time.monotonic() + within
    while (now := take_inventory()) != expected and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return now
