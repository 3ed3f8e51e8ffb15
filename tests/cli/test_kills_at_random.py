"""A run of which something is killed again and again labels each pair once and pays for no reply twice."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.cli.commands import Commands
from tests.cli.killing import KILLS_ON_RAY, Kill, Killing, answer, driver, raylet, runner, worker
from tests.cli.processes import descendants, until
from tests.llm.server import ChatServer
from tests.sandbox.leftovers import adopt_orphans, reap

ON_RAY = {"driver": driver, "worker": worker, "sandbox runner": runner, "raylet": raylet}


def ended(before: set[tuple[int, int]]) -> bool:
    """Say whether nothing runs that this process started since."""
    reap()
    return descendants(os.getpid()) <= before


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.bwrap
@pytest.mark.parametrize(
    ("kinds", "kills", "options"),
    [
        pytest.param({"driver": driver, "sandbox runner": runner}, 100, (), id="one process"),
        pytest.param(ON_RAY, KILLS_ON_RAY, ("--engine", "ray"), id="ray"),
    ],
)
def test_kills_lose_no_pair_pay_nothing_twice_and_leave_nothing_running(
    agent: Commands, kinds: Mapping[str, Kill], kills: int, options: tuple[str, ...]
) -> None:
    if options:
        pytest.importorskip("ray")
    with adopt_orphans(), ChatServer(answer) as server:
        before = descendants(os.getpid())
        killing = Killing(agent, server, 20 * kills, "--sandbox", "bwrap", *options)
        killing.kill(kinds, kills)
        killing.finish()
        assert killing.killed == dict.fromkeys(kinds, kills // len(kinds))
        until(lambda: ended(before), "the end of all that was started", 90)  # two of Ray's own take a minute
