"""Checks that a backend must pass before it runs untrusted programs. `inspect` runs them all.

    backend = MyBackend(limits)
    await backend.start(print)
    async for finding in inspect(backend, limits):
        print(finding)

Checks run real programs, and canaries on the host must stay unchanged. In tests, parametrize over `CHECKS` and call
`examine` for each.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence

from agent.errors import SandboxError
from agent.sandbox.base import SandboxBackend, SandboxLimits
from agent.sandbox.selfcheck import attacks, judgement, neighbours
from agent.sandbox.selfcheck.check import Check, CheckContext, CheckFailed, CheckResult, CheckVerdict, canaries
from agent.streams import run_concurrently

__all__ = ["CHECKS", "Check", "CheckContext", "CheckResult", "CheckVerdict", "canaries", "examine", "inspect"]

CHECKS: tuple[Check, ...] = (*judgement.CHECKS, *attacks.CHECKS, *neighbours.CHECKS)


async def examine(check: Check, context: CheckContext) -> CheckResult:
    """Run one check, or skip it if the backend cannot enforce the limit that the check needs."""
    if (reason := context.backend.unenforced().get(check.needs)) is not None:
        return CheckResult(check.name, check.group, CheckVerdict.NOT_ENFORCED, reason)
    try:
        await check.procedure(context)
        context.host.verify()
    except CheckFailed as problem:
        return CheckResult(check.name, check.group, CheckVerdict.BROKEN, str(problem))
    except SandboxError as error:
        return CheckResult(check.name, check.group, CheckVerdict.BROKEN, f"the sandbox itself failed: {error}")
    return CheckResult(check.name, check.group, CheckVerdict.HELD)


async def inspect(
    backend: SandboxBackend, limits: SandboxLimits, *, checks: Sequence[Check] = CHECKS
) -> AsyncGenerator[CheckResult, None]:
    """Run checks on a backend that was started with these limits. Yields results as they become available."""
    with canaries() as host:
        context = CheckContext(backend, limits, host)
        at_once = max(2, (os.cpu_count() or 1) // 2)
        async for finding in run_concurrently(checks, lambda check: examine(check, context), concurrency=at_once):
            yield finding
