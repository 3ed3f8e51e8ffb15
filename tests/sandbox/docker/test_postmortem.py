"""What became of a container is told by who failed: its runner, somebody outside, or the engine."""

from __future__ import annotations

import pytest

from agent.errors import ContainerLost, EngineLost, RunnerCrashed, SandboxError
from agent.sandbox.docker.containers import postmortem
from agent.sandbox.docker.engine import ContainerState


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

    error = await postmortem(look, "c", "")
    assert type(error) is kind
    assert says in str(error)


async def test_a_container_whose_end_the_engine_learns_of_late_is_looked_at_again() -> None:
    states = [ContainerState(running=True, exit_code=0, oom_killed=False), ended(137)]

    async def look() -> ContainerState | None:
        return states.pop(0)

    assert "killed from outside" in str(await postmortem(look, "c", ""))
