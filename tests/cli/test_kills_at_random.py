"""A run whose processes are killed repeatedly labels each pair once and pays for no reply twice."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.cli.commands import Commands
from tests.cli.killing import KILLS_ON_RAY, Kill, Killing, kill_driver, kill_raylet, kill_runner, kill_worker, respond
from tests.cli.processes import find_descendants, wait_until
from tests.llm.server import ChatServer
from tests.sandbox.leftovers import adopt_orphans, reap

ON_RAY = {"driver": kill_driver, "worker": kill_worker, "sandbox runner": kill_runner, "raylet": kill_raylet}


def has_ended(before: set[tuple[int, int]]) -> bool:
    """Return whether no process runs that this one has started since."""
    reap()
    return find_descendants(os.getpid()) <= before


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.bwrap
@pytest.mark.parametrize(
    ("kinds", "kills", "options"),
    [
        pytest.param({"driver": kill_driver, "sandbox runner": kill_runner}, 100, (), id="one process"),
        pytest.param(ON_RAY, KILLS_ON_RAY, ("--engine", "ray"), id="ray"),
    ],
)
def test_kills_lose_no_pair_repeat_no_call_and_leave_no_process(
    agent: Commands, kinds: Mapping[str, Kill], kills: int, options: tuple[str, ...]
) -> None:
    if options:
        pytest.importorskip("ray")
    with adopt_orphans(), ChatServer(respond) as server:
        before = find_descendants(os.getpid())
        killing = Killing(agent, server, 20 * kills, "--sandbox", "bwrap", *options)
        killing.kill(kinds, kills)
        killing.finish()
        assert killing.killed == dict.fromkeys(kinds, kills // len(kinds))
        wait_until(lambda: has_ended(before), "the end of all new processes", 90)  # two processes of Ray take a minute
