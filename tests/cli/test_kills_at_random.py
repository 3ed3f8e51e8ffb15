"""A run of which something is killed again and again labels each pair once and pays for no reply twice."""

from __future__ import annotations

import os

import pytest

from tests.cli.commands import Commands
from tests.cli.killing import Killing, answer, driver, runner
from tests.cli.processes import descendants, until
from tests.llm.server import ChatServer
from tests.sandbox.leftovers import orphans_kept

PAIRS, KILLS = 2_000, 100


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.bwrap
def test_a_hundred_kills_lose_no_pair_pay_nothing_twice_and_leave_nothing_running(agent: Commands) -> None:
    with orphans_kept(), ChatServer(answer) as server:
        before = descendants(os.getpid())
        killing = Killing(agent, server, PAIRS, "--sandbox", "bwrap")
        killing.kill({"driver": driver, "sandbox runner": runner}, KILLS)
        killing.finish()
        assert killing.killed == {"driver": KILLS / 2, "sandbox runner": KILLS / 2}
        until(lambda: descendants(os.getpid()) <= before, "the end of all that was started", 60)
