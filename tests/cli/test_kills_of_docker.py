"""A run on Ray and Docker of which each part is killed again and again labels each pair once.

It is the daemon of this machine, so this runs alone, and only with AGENT_TEST_RESTART_DOCKER=1; then never skipped.
"""

from __future__ import annotations

import os
import random
import signal

import docker
import pytest

from agent.sandbox.owner import PREFIX
from tests.cli.commands import Commands
from tests.cli.killing import KILLS_ON_RAY, Killing, answer, driver, one_of, worker
from tests.cli.processes import Process, alive, descendants, until
from tests.conftest import explain_missing
from tests.llm.server import ChatServer
from tests.sandbox.daemon import restart

pytestmark = pytest.mark.skipif(
    os.environ.get("AGENT_TEST_RESTART_DOCKER") != "1",
    reason="restarts the Docker daemon of this machine only with AGENT_TEST_RESTART_DOCKER=1",
)


def containers(processes: set[Process]) -> list[int]:
    """Return the first processes of the containers that these processes have, 0 for one that does not run."""
    client = docker.from_env()
    try:
        pids = {pid for pid, _ in processes}
        listed = client.api.containers(all=True, filters={"label": f"{PREFIX}.pid"})
        ids = [each["Id"] for each in listed if int(each["Labels"][f"{PREFIX}.pid"]) in pids]
        return [client.api.inspect_container(each)["State"]["Pid"] for each in ids]
    except docker.errors.NotFound:  # it ended meanwhile
        return containers(processes)
    finally:
        client.close()


def runner(pid: int, chance: random.Random) -> bool:
    """Kill the first process of a container."""
    return one_of([found for found in containers(descendants(pid)) if found], chance)


def daemon(_pid: int, _chance: random.Random) -> bool:
    """Kill the daemon, and start it again."""
    restart(signal.SIGKILL)
    return True


def test_kills_of_driver_worker_container_and_daemon_lose_no_pair_and_pay_nothing_twice(agent: Commands) -> None:
    assert explain_missing("docker") is None
    pytest.importorskip("ray")
    with ChatServer(answer) as server:
        killing = Killing(agent, server, 20 * KILLS_ON_RAY, "--engine", "ray", "--sandbox", "docker")
        killing.kill({"driver": driver, "worker": worker, "sandbox runner": runner, "daemon": daemon}, KILLS_ON_RAY)
        killing.finish()
        # one that ended with its worker is removed by the next run
        until(lambda: not any(containers(killing.seen)), "the end of all containers")
        until(lambda: not alive(killing.seen), "the end of all processes", 90)  # two of Ray's own take a minute
