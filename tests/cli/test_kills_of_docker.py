"""A run on Ray and Docker whose parts are killed repeatedly labels each pair once.

The test restarts the daemon of this machine. It runs alone and only with AGENT_TEST_RESTART_DOCKER=1.
"""

from __future__ import annotations

import os
import random
import signal

import docker
import pytest

from agent.sandbox.owner import PREFIX
from tests.cli.commands import Commands
from tests.cli.killing import KILLS_ON_RAY, Killing, kill_driver, kill_one, kill_worker, respond
from tests.cli.processes import Process, find_alive, find_descendants, wait_until
from tests.conftest import explain_missing
from tests.llm.server import ChatServer
from tests.sandbox.daemon import restart

pytestmark = pytest.mark.skipif(
    os.environ.get("AGENT_TEST_RESTART_DOCKER") != "1",
    reason="restarts the Docker daemon of this machine only with AGENT_TEST_RESTART_DOCKER=1",
)


def find_containers(processes: set[Process]) -> list[int]:
    """Return the first process of each container of these processes, 0 if it does not run."""
    client = docker.from_env()
    try:
        pids = {pid for pid, _ in processes}
        entries = client.api.containers(all=True, filters={"label": f"{PREFIX}.pid"})
        ids = [container["Id"] for container in entries if int(container["Labels"][f"{PREFIX}.pid"]) in pids]
        return [client.api.inspect_container(container)["State"]["Pid"] for container in ids]
    except docker.errors.NotFound:  # a container ended meanwhile
        return find_containers(processes)
    finally:
        client.close()


def kill_runner(pid: int, rng: random.Random) -> bool:
    """Kill the first process of a container."""
    return kill_one([pid for pid in find_containers(find_descendants(pid)) if pid], rng)


def kill_daemon(_pid: int, _rng: random.Random) -> bool:
    """Kill the daemon and restart it."""
    restart(signal.SIGKILL)
    return True


def test_kills_of_driver_worker_container_and_daemon_lose_no_pair(agent: Commands) -> None:
    assert explain_missing("docker") is None
    pytest.importorskip("ray")
    with ChatServer(respond) as server:
        killing = Killing(agent, server, 20 * KILLS_ON_RAY, "--engine", "ray", "--sandbox", "docker")
        killing.kill(
            {"driver": kill_driver, "worker": kill_worker, "sandbox runner": kill_runner, "daemon": kill_daemon},
            KILLS_ON_RAY,
        )
        killing.finish()
        # the next run removes containers of a killed worker
        wait_until(lambda: not any(find_containers(killing.processes_seen)), "the end of all containers")
        wait_until(
            lambda: not find_alive(killing.processes_seen), "the end of all processes", 90
        )  # two processes of Ray take a minute
