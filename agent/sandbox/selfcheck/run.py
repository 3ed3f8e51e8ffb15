"""Checks that a backend must pass before it runs untrusted programs. `run_checks` runs all of them.

    backend = MyBackend(limits)
    await backend.start(print)
    async for result in run_checks(backend, limits):
        print(result)

The checks run real programs and verify that decoys on the host (files, processes and sockets, called canaries) are
unaffected. In tests, parametrize over `CHECKS` and call `run_check` for each check.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence

from agent.errors import SandboxError
from agent.sandbox.base import SandboxBackend, SandboxLimits
from agent.sandbox.selfcheck import attacks, forgeries, neighbours
from agent.sandbox.selfcheck.check import Check, CheckContext, CheckFailed, CheckResult, CheckVerdict, open_canaries
from agent.streams import run_concurrently

__all__ = ["CHECKS", "Check", "CheckContext", "CheckResult", "CheckVerdict", "open_canaries", "run_check", "run_checks"]

CHECKS: tuple[Check, ...] = (*forgeries.CHECKS, *attacks.CHECKS, *neighbours.CHECKS)


async def run_check(check: Check, context: CheckContext) -> CheckResult:
    """Run one check, or skip it if the backend cannot enforce the limit that the check needs."""
    if (reason := context.backend.unenforced().get(check.needs)) is not None:
        return CheckResult(check.name, check.group, CheckVerdict.NOT_ENFORCED, reason)
    try:
        await check.procedure(context)
        context.canaries.verify()
    except CheckFailed as problem:
        return CheckResult(check.name, check.group, CheckVerdict.FAILED, str(problem))
    except SandboxError as error:
        return CheckResult(check.name, check.group, CheckVerdict.FAILED, f"the sandbox itself failed: {error}")
    return CheckResult(check.name, check.group, CheckVerdict.PASSED)


async def run_checks(
    backend: SandboxBackend, limits: SandboxLimits, *, checks: Sequence[Check] = CHECKS
) -> AsyncGenerator[CheckResult, None]:
    """Run checks on a backend that was started with `limits`. Yield each result as soon as it is available."""
    with open_canaries() as canaries:
        context = CheckContext(backend, limits, canaries)
        concurrency = max(2, (os.cpu_count() or 1) // 2)
        async for result in run_concurrently(checks, lambda check: run_check(check, context), concurrency=concurrency):
            yield result
