"""A run on Docker of which the command, a container or the daemon is killed again and again labels each pair once.

It is the daemon of this machine, so this runs alone, and only with AGENT_TEST_RESTART_DOCKER=1; then never skipped.
"""

from __future__ import annotations

import os
import random
import signal
from functools import partial

import docker
import pytest

from agent.sandbox.owner import PREFIX
from tests.cli.commands import Commands
from tests.cli.killing import Killing, answer, driver, one_of
from tests.cli.processes import until
from tests.conftest import lacking
from tests.llm.server import ChatServer
from tests.sandbox.daemon import restart

PAIRS, KILLS = 600, 24

pytestmark = pytest.mark.skipif(
    os.environ.get("AGENT_TEST_RESTART_DOCKER") != "1",
    reason="restarts the Docker daemon of this machine only with AGENT_TEST_RESTART_DOCKER=1",
)


def containers(pid: int) -> list[int]:
    """Return the first processes of the containers that a command has, 0 for one that does not run."""
    client = docker.from_env()
    try:
        found = client.api.containers(all=True, filters={"label": f"{PREFIX}.pid={pid}"})
        return [client.api.inspect_container(each["Id"])["State"]["Pid"] for each in found]
    except docker.errors.NotFound:  # it ended meanwhile
        return containers(pid)
    finally:
        client.close()


def runner(pid: int, chance: random.Random) -> bool:
    """Kill the first process of a container."""
    return one_of([found for found in containers(pid) if found], chance)


def daemon(_pid: int, _chance: random.Random) -> bool:
    """Kill the daemon, and start it again."""
    restart(signal.SIGKILL)
    return True


def test_kills_of_command_container_and_daemon_lose_no_pair_and_pay_nothing_twice(agent: Commands) -> None:
    assert lacking("docker") is None
    with ChatServer(answer) as server:
        killing = Killing(agent, server, PAIRS, "--sandbox", "docker")
        killing.kill({"driver": driver, "sandbox runner": runner, "daemon": daemon}, KILLS)
        killing.finish()
        for pid in killing.pids:
            until(partial(lambda pid: containers(pid) == [], pid), "the end of all containers")
