"""Whatever breaks around programs in the middle of their work, each ends with the result that is its own."""

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
from tests.sandbox.faults import disturbed, started, whole
from tests.sandbox.leftovers import containers
from tests.sandbox.proxy import Proxy

pytestmark = [pytest.mark.docker, pytest.mark.long]


async def cut_again_and_again(crowd: Crowd, proxy: Proxy, chance: random.Random, cuts: list[int]) -> None:
    """Cut every connection to the engine for a second, again and again; what was hit may end before the next cut."""
    while len(cuts) < 5 or crowd.ended < RUNS:
        await crowd.go_on(by=chance.randint(1, 12))
        await asyncio.sleep(chance.uniform(0, 0.3))
        cuts.append(proxy.cut())
        await asyncio.sleep(1)
        await proxy.open()


async def kill_now_and_then(crowd: Crowd, spared: set[str], chance: random.Random, killed: list[str]) -> None:
    """Kill some of the containers of this process, whatever they are doing, again and again."""
    client = docker.from_env()
    while len(killed) < 15 or crowd.ended < RUNS:
        await asyncio.sleep(chance.uniform(0, 0.4))
        there = sorted(await asyncio.to_thread(containers, running=True) - spared)
        victims = chance.sample(there, k=len(there) // 2)
        killing = (asyncio.to_thread(client.api.kill, victim) for victim in victims)
        # one that has gone meanwhile is refused
        refused = await asyncio.gather(*killing, return_exceptions=True)
        killed += [victim for victim, refusal in zip(victims, refused, strict=True) if refusal is None]
        await crowd.go_on(by=1)
    client.close()


async def test_programs_end_as_they_should_while_every_connection_to_the_engine_is_cut_again_and_again() -> None:
    proxy, cuts, crowd = Proxy(), list[int](), Crowd(HONEST)
    await proxy.open()
    connect = partial(DockerEngine.connect, {"DOCKER_HOST": f"tcp://127.0.0.1:{proxy.port}"})
    async with started(connect) as backend:
        await disturbed(crowd, backend, cut_again_and_again(crowd, proxy, random.Random(1), cuts))
        whole(crowd)
    proxy.cut()
    assert len(cuts) >= 5
    assert min(cuts) > 0


async def test_programs_end_as_they_should_while_containers_are_killed_at_random() -> None:
    killed, crowd = list[str](), Crowd(CRASHING)
    spared = await asyncio.to_thread(containers)
    async with started() as backend:
        await disturbed(crowd, backend, kill_now_and_then(crowd, spared, random.Random(2), killed))
        whole(crowd)
    assert len(killed) >= 15


async def test_programs_that_crash_are_results_and_disturb_nobody() -> None:
    crowd = Crowd(CRASHING)
    async with started() as backend:
        await crowd.work(backend)
        whole(crowd)


class Blinking:
    """An engine whose connection breaks at some calls; the engine does what it was asked all the same, a bit later."""

    def __init__(self, breaks: int) -> None:
        self.breaks = breaks
        self.late: list[threading.Thread] = []

    def connect(self) -> DockerEngine:
        """Connect to the local engine."""
        engine = DockerEngine.connect()
        create = engine.create

        def break_at_times(config: Mapping[str, Any], name: str) -> None:
            if not self.breaks:
                return create(config, name)
            self.breaks -= 1
            self.late.append(threading.Timer(0.5, create, (config, name)))
            self.late[-1].start()
            raise EngineLost("the connection was reset")

        engine.create = break_at_times  # type: ignore[method-assign]
        return engine


async def test_a_start_is_tried_again_when_the_engine_is_back_before_it_is_looked_for() -> None:
    blinking = Blinking(breaks=0)
    async with started(blinking.connect, pool=0) as backend:
        blinking.breaks = 2
        sandbox = await backend.acquire()
        await sandbox.release()
        assert blinking.breaks == 0
        for thread in blinking.late:
            await asyncio.to_thread(thread.join)
