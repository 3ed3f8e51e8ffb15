"""Lists the processes of this machine, read from /proc."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

Process = tuple[int, int]
"""A process id and its start time, which distinguishes processes that reuse an id."""


def list_processes() -> dict[int, tuple[int, Process]]:
    """Return all processes except zombies, with the ids of their parents."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                table[int(entry.name)] = (int(fields[1]), (int(entry.name), int(fields[19])))
    return table


def find_descendants(pid: int) -> set[Process]:
    """Return all descendants of a process."""
    table = list_processes()
    processes: set[Process] = set()
    parents = [pid]
    while parents:
        parent = parents.pop()
        children = [process for above, process in table.values() if above == parent]
        processes.update(children)
        parents += [child for child, _ in children]
    return processes


def find_alive(processes: set[Process]) -> set[Process]:
    """Return the processes that still run."""
    return processes & {process for _, process in list_processes().values()}


def wait_until(condition: Callable[[], bool], event: str, seconds: float = 60) -> None:
    """Wait until a condition holds."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"{event} did not happen within {seconds:g} s")
