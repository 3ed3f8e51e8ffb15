"""Programs have correct results even if the infrastructure fails while they run."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import docker
import pytest

from agent.errors import EngineLost
from agent.sandbox.docker.engine import DockerEngine
from tests.sandbox.crowd import CRASHING, HONEST, RUNS, Crowd
from tests.sandbox.faults import assert_complete, disturb, run_backend
from tests.sandbox.leftovers import list_containers
from tests.sandbox.proxy import Proxy

pytestmark = [pytest.mark.docker, pytest.mark.long]


async def cut_repeatedly(crowd: Crowd, proxy: Proxy, chance: random.Random, cuts: list[int]) -> None:
    """Repeatedly cut all connections to the engine for a second, and restore them long enough for a recovery."""
    while len(cuts) < 5 or crowd.ended_count < RUNS:
        await crowd.wait_for_progress(by=chance.randint(1, 12))
        await asyncio.sleep(chance.uniform(0, 0.3))
        cuts.append(proxy.cut())
        await asyncio.sleep(1)
        await proxy.open()


async def kill_repeatedly(crowd: Crowd, spared: set[str], chance: random.Random, killed: list[str]) -> None:
    """Repeatedly kill random containers that this process started."""
    client = docker.from_env()
    while len(killed) < 15 or crowd.ended_count < RUNS:
        await asyncio.sleep(chance.uniform(0, 0.4))
        running = sorted(await asyncio.to_thread(list_containers, running=True) - spared)
        victims = chance.sample(running, k=len(running) // 2)
        killing = (asyncio.to_thread(client.api.kill, victim) for victim in victims)
        # the engine refuses to kill a container that has exited
        outcomes = await asyncio.gather(*killing, return_exceptions=True)
        killed += [victim for victim, outcome in zip(victims, outcomes, strict=True) if outcome is None]
        await crowd.wait_for_progress(by=1)
    client.close()


async def test_results_are_right_while_connections_to_the_engine_are_cut() -> None:
    proxy, cuts, crowd = Proxy(), list[int](), Crowd(HONEST)
    await proxy.open()
    connect = partial(DockerEngine.connect, {"DOCKER_HOST": f"tcp://127.0.0.1:{proxy.port}"})
    async with run_backend(connect) as backend:
        await disturb(crowd, backend, cut_repeatedly(crowd, proxy, random.Random(1), cuts))
        assert_complete(crowd)
    proxy.cut()
    assert len(cuts) >= 5
    assert min(cuts) > 0


async def test_results_are_right_while_containers_are_killed_at_random() -> None:
    killed, crowd = list[str](), Crowd(CRASHING)
    spared = await asyncio.to_thread(list_containers)
    async with run_backend() as backend:
        await disturb(crowd, backend, kill_repeatedly(crowd, spared, random.Random(2), killed))
        assert_complete(crowd)
    assert len(killed) >= 15


async def test_crashing_programs_have_results_and_do_not_affect_others() -> None:
    crowd = Crowd(CRASHING)
    async with run_backend() as backend:
        await crowd.run_programs(backend)
        assert_complete(crowd)


class FlakyEngine:
    """An engine whose connection breaks during some calls. The engine still executes these calls shortly afterwards."""

    def __init__(self, breaks: int) -> None:
        self.breaks = breaks
        self.late: list[threading.Thread] = []

    def connect(self) -> DockerEngine:
        """Connect to the local engine."""
        engine = DockerEngine.connect()
        create = engine.create

        def create_or_break(config: Mapping[str, Any], name: str) -> None:
            if not self.breaks:
                return create(config, name)
            self.breaks -= 1
            self.late.append(threading.Timer(0.5, create, (config, name)))
            self.late[-1].start()
            raise EngineLost("the connection was reset")

        engine.create = create_or_break  # type: ignore[method-assign]
        return engine


async def test_a_start_is_retried_if_the_engine_is_already_back() -> None:
    flaky = FlakyEngine(breaks=0)
    async with run_backend(flaky.connect, pool=0) as backend:
        flaky.breaks = 2
        sandbox = await backend.acquire()
        await sandbox.release()
        assert flaky.breaks == 0
        for thread in flaky.late:
            await asyncio.to_thread(thread.join)
