"""A run of which something is killed again and again labels each pair once and pays for no reply twice."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.cli.commands import Commands
from tests.cli.killing import Kill, Killing, answer, driver, runner
from tests.cli.processes import descendants, until
from tests.llm.server import ChatServer
from tests.sandbox.leftovers import orphans_kept

PAIRS, KILLS = 2_000, 100


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.bwrap
@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        pytest.param((), {"driver": driver, "sandbox runner": runner}, id="one process"),
    ],
)
def test_a_hundred_kills_lose_no_pair_and_pay_nothing_twice(
    agent: Commands, options: tuple[str, ...], kinds: Mapping[str, Kill]
) -> None:
    with orphans_kept(), ChatServer(answer) as server:
        before = descendants(os.getpid())
        killing = Killing(agent, server, PAIRS, "--sandbox", "bwrap", *options)
        killing.kill(kinds, KILLS)
        killing.finish()
        assert killing.killed.total() == KILLS
        until(lambda: descendants(os.getpid()) <= before, "the end of all that was started", 20)
