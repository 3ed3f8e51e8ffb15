"""Checks that a backend must pass before anybody runs strangers' programs in it: `inspect` runs them all.

    backend = MyBackend(limits)
    await backend.start(print)
    async for finding in inspect(backend, limits):
        print(finding)

Each is tried with real programs; canaries on the host must stay whole. In tests: parametrize over `CHECKS` and run
`examine` on each.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence

from agent.errors import SandboxError
from agent.sandbox.base import Limits, SandboxBackend
from agent.sandbox.selfcheck import attacks, judgement, neighbours
from agent.sandbox.selfcheck.check import Broken, Check, Finding, Room, Verdict, canaries
from agent.streams import completed

__all__ = ["CHECKS", "Check", "Finding", "Room", "Verdict", "canaries", "examine", "inspect"]

CHECKS: tuple[Check, ...] = (*judgement.CHECKS, *attacks.CHECKS, *neighbours.CHECKS)


async def examine(check: Check, room: Room) -> Finding:
    """Run one check, unless the backend says that this machine cannot enforce what it needs."""
    reason = room.backend.unenforced().get(check.needs)
    if reason is not None:
        return Finding(check.name, check.group, Verdict.NOT_ENFORCED, reason)
    try:
        await check.procedure(room)
        room.host.inspect()
    except Broken as problem:
        return Finding(check.name, check.group, Verdict.BROKEN, str(problem))
    except SandboxError as error:
        return Finding(check.name, check.group, Verdict.BROKEN, f"the sandbox itself broke: {error}")
    return Finding(check.name, check.group, Verdict.HELD)


async def inspect(
    backend: SandboxBackend, limits: Limits, *, checks: Sequence[Check] = CHECKS
) -> AsyncGenerator[Finding, None]:
    """Run checks on a backend that was started with these limits, and yield each finding when it is there."""
    with canaries() as host:
        room = Room(backend, limits, host)
        at_once = max(2, (os.cpu_count() or 1) // 2)
        async for finding in completed(checks, lambda check: examine(check, room), concurrency=at_once):
            yield finding
