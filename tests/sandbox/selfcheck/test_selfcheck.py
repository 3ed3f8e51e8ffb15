"""Every check holds on both backends, or the backend says why this machine cannot enforce it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.sandbox.base import SandboxBackend
from agent.sandbox.selfcheck import CHECKS, Check, Room, Verdict, canaries, examine
from tests.sandbox.conftest import LIMITS


@pytest.fixture(scope="module")
def room(backend: SandboxBackend) -> Iterator[Room]:
    """A backend, and canaries on the host."""
    with canaries() as host:
        yield Room(backend, LIMITS, host)


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_it_holds(room: Room, check: Check) -> None:
    finding = await examine(check, room)
    assert finding.verdict is not Verdict.BROKEN, finding.detail
    if finding.verdict is Verdict.NOT_ENFORCED:
        assert finding.detail == room.backend.unenforced()[check.needs]


def test_checks_have_names_of_their_own() -> None:
    assert len({str(check) for check in CHECKS}) == len(CHECKS)
    assert {check.needs for check in CHECKS} == {"", "memory", "cpu", "inodes", "seccomp"}
