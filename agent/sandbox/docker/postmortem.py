"""What became of a container whose stream ended: its runner, the container itself, or the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agent.errors import ContainerLost, EngineLost, RunnerCrashed, SandboxError
from agent.sandbox.docker.containers import ContainerState

_PATIENCE = 10
_PAUSE = 0.1


async def postmortem(look: Callable[[], Awaitable[ContainerState | None]], name: str, stderr: str) -> SandboxError:
    """Return the error that says who failed; `look` asks the engine how the container is.

    `stderr` is what its first process wrote, to be quoted.
    """
    try:
        state = await look()
        for _ in range(_PATIENCE):
            # the stream ends a little before the engine knows of it
            if state is None or not state.running:
                break
            await asyncio.sleep(_PAUSE)
            state = await look()
    except SandboxError as error:
        return error if isinstance(error, EngineLost) else ContainerLost(f"container {name} broke: {error}")
    words = f"; its last words: {stderr[-1000:]}" if stderr else ""
    if state is None:
        return ContainerLost(f"container {name} was removed by somebody else{words}")
    if state.running:
        return ContainerLost(f"container {name} runs, but the connection to it broke{words}")
    if state.oom_killed:
        return ContainerLost(f"container {name} ran out of memory as a whole{words}")
    if state.exit_code in _KILLED:
        return ContainerLost(f"container {name} was killed from outside (exit code {state.exit_code}){words}")
    if state.exit_code == 0:  # it ends so only when its input does
        return ContainerLost(f"container {name} has ended, for the connection to it broke{words}")
    return RunnerCrashed(f"the first process of container {name} ended with exit code {state.exit_code}{words}")


_KILLED = (137, 143)
"""Exit codes of a process that SIGKILL or SIGTERM ended; no program inside can signal the first one."""
