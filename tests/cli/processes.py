"""What runs on this machine, read from /proc."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

Process = tuple[int, int]
"""A process id and its start time, which tells apart those that had the id."""


def running() -> dict[int, tuple[int, Process]]:
    """Return each process that is no zombie, with its parent's id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(entry.name)] = (int(fields[1]), (int(entry.name), int(fields[19])))
    return found


def descendants(pid: int) -> set[Process]:
    """Return the processes that come from one."""
    everything = running()
    found: set[Process] = set()
    parents = [pid]
    while parents:
        parent = parents.pop()
        children = [process for above, process in everything.values() if above == parent]
        found.update(children)
        parents += [child for child, _ in children]
    return found


def alive(processes: set[Process]) -> set[Process]:
    """Return those that run still."""
    return processes & {process for _, process in running().values()}


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait until a condition holds."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"in {seconds:g} s: {what} did not happen")
