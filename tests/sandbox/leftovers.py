"""What this process has at a moment of processes, threads, descriptors, mounts, control groups and containers."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from agent.sandbox.owner import Owner


def descriptors() -> int:
    """Return how many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[str]:
    """Return the processes whose parent is this one, zombies too."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= set((task / "children").read_text(encoding="ascii").split())
    return found


def containers() -> set[str]:
    """Return the containers that this process started."""
    import docker

    client = docker.from_env()
    try:
        labels = [f"{label}={value}" for label, value in Owner.current().labels().items()]
        return {each["Id"] for each in client.api.containers(all=True, filters={"label": labels})}
    finally:
        client.close()


def threads() -> list[str]:
    """Return this process's threads by name, without those that asyncio keeps for later work."""
    return sorted(each.name for each in threading.enumerate() if not each.name.startswith("asyncio_"))


def held() -> Mapping[str, object]:
    """Return what this process holds, by kind; equal before and after when nothing is left."""
    gc.collect()
    return {"descriptors": descriptors(), "children": children(), "threads": threads()}


async def comes_to(expected: Mapping[str, object], within: float = 5.0) -> Mapping[str, object]:
    """Return what this process holds, as soon as that is what was expected, else as it is in the end."""
    deadline = time.monotonic() + within
    while (now := held()) != expected and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return now
