"""Containers are removed with their pairs, and infrastructure failures are never reported as results of programs."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import docker
import pytest

from agent.errors import ContainerLost, EngineLost, SandboxError, SandboxUnavailable
from agent.sandbox.base import SandboxJob, SandboxLimits
from agent.sandbox.docker.backend import DockerBackend, remove_orphans
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.owner import Owner
from tests.pythons import build_image, remove_image
from tests.sandbox.conftest import make_job, make_test_job, passes, remove_volume, run_once
from tests.sandbox.proxy import Proxy
from tests.sandbox.stores import publish_wheel, run_in_store
from tests.sandbox.wheelhouse import make_wheel

pytestmark = pytest.mark.docker

LIMITS = SandboxLimits(memory=128 << 20, processes=64, files=256 << 20, output=16 << 10)
VOLUME = f"test-driven-annotator-tests-{os.getpid()}-backend"
VERBATIM = "def main(job, emit):\n    exec(compile(job.program, 'program.py', 'exec'), {})\n"


def make_verbatim_job(program: str) -> SandboxJob:
    """Return a job that runs a program verbatim."""
    return SandboxJob(VERBATIM, program)


@pytest.fixture(scope="module", autouse=True)
def volume() -> Iterator[str]:
    """A volume for these tests that is removed afterwards."""
    yield VOLUME
    remove_volume(VOLUME)


@pytest.fixture(scope="module")
async def backend(volume: str) -> AsyncIterator[DockerBackend]:
    """A backend shared by most tests."""
    shared = DockerBackend(LIMITS, volume=volume)
    await shared.start(print)
    yield shared
    await shared.close()


def list_container_names(client: docker.DockerClient) -> set[str]:
    """Return the names of all containers that this process started, running or not."""
    containers = client.api.containers(all=True, filters={"label": f"test-driven-annotator.pid={os.getpid()}"})
    return {str(container["Names"][0]).removeprefix("/") for container in containers}


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    docker_client = docker.from_env()
    yield docker_client
    docker_client.close()


async def test_the_description_names_engine_image_and_interpreter(backend: DockerBackend) -> None:
    description = backend.describe()
    assert description["backend"] == "docker"
    assert description["image"].startswith("test-driven-annotator/python:")
    assert description["image_id"].startswith("sha256:")
    assert description["python"].startswith("3.11.")
    assert description["platform"].startswith("linux/")
    assert description["api"].split(".")[0] == "1"
    assert description["python"] == backend.store.interpreter.full


async def test_nothing_is_left_after_close(client: docker.DockerClient) -> None:
    separate_backend = DockerBackend(LIMITS, volume=VOLUME)
    await separate_backend.start(print)
    sandboxes = await asyncio.gather(*(separate_backend.acquire() for _ in range(3)))
    names = {sandbox.name for sandbox in sandboxes}
    assert names <= list_container_names(client)
    await sandboxes[0].release()
    await separate_backend.close()
    assert not names & list_container_names(client)
    await sandboxes[1].release()
    with pytest.raises(SandboxError, match="closed"):
        await separate_backend.acquire()


async def test_a_cancelled_acquire_leaves_nothing(client: docker.DockerClient) -> None:
    separate_backend = DockerBackend(LIMITS, volume=VOLUME)
    await separate_backend.start(print)
    before = list_container_names(client)
    for delay in (0.0, 0.005, 0.03, 0.08):
        acquiring = asyncio.create_task(separate_backend.acquire())
        await asyncio.sleep(delay)
        acquiring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
    await separate_backend.close()
    assert list_container_names(client) <= before


async def wait_for_program(client: docker.DockerClient, name: str) -> None:
    """Wait until a second process runs in a container."""
    container = await asyncio.to_thread(client.containers.get, name)
    async with asyncio.timeout(20):
        while len((await asyncio.to_thread(container.top))["Processes"]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_killing_a_container_raises_and_ends_its_sandbox(
    backend: DockerBackend, client: docker.DockerClient
) -> None:
    sandbox = await backend.acquire()
    running = asyncio.create_task(sandbox.run(make_test_job("import time; time.sleep(30)", timeout=40)))
    await wait_for_program(client, sandbox.name)
    await asyncio.to_thread(client.containers.get(sandbox.name).kill)
    with pytest.raises(ContainerLost, match="137"):
        await running
    with pytest.raises(SandboxError) as caught:
        await sandbox.run(make_test_job("pass"))
    assert caught.type is SandboxError
    await sandbox.release()


async def test_exceeding_the_memory_limit_of_the_container_is_a_result(backend: DockerBackend) -> None:
    """Only the container's limit includes files in tmpfs. The kernel kills the program, not the supervisor."""
    body = "for place in '/tmp', '/work': open(place + '/big', 'wb').write(bytes(1 << 20) * 100)"
    result = await run_once(backend, make_test_job(body))
    assert (result.limit, result.signal, result.clean) == ("memory", 9, False)


async def test_an_environment_is_not_visible_while_the_interpreter_starts(
    backend: DockerBackend, tmp_path: Path
) -> None:
    early = "import sys; sys.modules['unittest'] = None\nopen('/tmp/early', 'w').close()\n"
    hooks = dict.fromkeys(("sitecustomize.py", "usercustomize.py", "early.pth"), early)
    await publish_wheel(backend, make_wheel(tmp_path, "early", files={**hooks, "iniconfig.py": "OWN = 1"}), "a7")
    program = "import os, iniconfig\ndef test_a(): assert iniconfig.OWN and not os.path.exists('/tmp/early')"
    assert passes(await run_once(backend, make_job(program), "a7"), "test_a")


async def test_environments_of_other_processes_are_found(backend: DockerBackend, tmp_path: Path) -> None:
    other = DockerBackend(LIMITS, volume=VOLUME, pool=0)
    await other.start(print)
    await publish_wheel(backend, make_wheel(tmp_path, "bricks", files={"bricks.py": ""}), "a6")
    assert await other.store.find_lock("a6") == ("bricks==1.0",)
    await other.close()


async def test_only_containers_of_dead_owners_on_this_host_are_removed(
    backend: DockerBackend, client: docker.DockerClient
) -> None:
    this_host_owner = Owner.current()
    dead, foreign = Owner(this_host_owner.host, 1, "1"), Owner("other", 1, "1")
    image = backend.describe()["image"]
    kind = {"test-driven-annotator.kind": "sandbox"}
    create = partial(client.containers.create, image, "true", network_mode="none")
    orphan = await asyncio.to_thread(create, labels={**dead.as_labels(), **kind})
    others = [await asyncio.to_thread(create, labels=labels) for labels in ({**foreign.as_labels(), **kind}, kind, {})]
    sandbox = await backend.acquire()
    engine = DockerEngine.connect()
    await asyncio.to_thread(remove_orphans, engine, this_host_owner)
    engine.close()
    try:
        with pytest.raises(docker.errors.NotFound):
            await asyncio.to_thread(orphan.reload)
        for other in others:
            await asyncio.to_thread(other.reload)
        assert (await sandbox.run(make_verbatim_job("print(1)"))).stdout == "1\n"
    finally:
        for other in others:
            await asyncio.to_thread(other.remove, force=True)
        await sandbox.release()


async def test_containers_of_a_killed_process_are_removed_by_the_next_start(client: docker.DockerClient) -> None:
    script = f"""
import asyncio, os, signal
from agent.sandbox.docker.backend import DockerBackend
async def main():
    backend = DockerBackend(volume={VOLUME!r})
    await backend.start(print)
    print((await backend.acquire()).name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    dead = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    stdout, _ = await dead.communicate()
    name = stdout.decode().split()[-1]
    assert await asyncio.to_thread(client.containers.get, name)
    separate_backend = DockerBackend(LIMITS, volume=VOLUME)
    await separate_backend.start(print)
    await separate_backend.close()
    with pytest.raises(docker.errors.NotFound):
        await asyncio.to_thread(client.containers.get, name)


@asynccontextmanager
async def start_behind_proxy(certificate: Path | None = None) -> AsyncIterator[tuple[Proxy, DockerBackend, list[str]]]:
    """Start a backend whose engine is behind a proxy. Yields the proxy, the backend and the progress lines."""
    messages = list[str]()
    encryption = None
    tls = {}
    if certificate is not None:
        encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        encryption.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        tls = {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(certificate)}
    proxy = Proxy(encryption)
    await proxy.open()
    connect = partial(DockerEngine.connect, {"DOCKER_HOST": f"tcp://127.0.0.1:{proxy.port}", **tls})
    # no pool: the engine would finish creating its containers after the test
    remote = DockerBackend(LIMITS, volume=VOLUME, connect=connect, pool=0, patience=0)
    try:
        await remote.start(messages.append)
        yield proxy, remote, messages
    finally:
        await remote.close()
        proxy.cut()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_remote_engine_serves_sandboxes_and_environments(
    backend: DockerBackend, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    assert backend.describe()
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)  # requests prefers these to the engine's certificates
    async with start_behind_proxy(certificate if encrypted else None) as (_, remote, _):
        wheel = make_wheel(tmp_path, "tiles", files={"tiles.py": "SIZE = 3\n"})
        await publish_wheel(remote, wheel, f"a3{encrypted}")
        job = make_verbatim_job("import tiles; print(tiles.SIZE, 'x' * 9000)")
        result = await run_once(remote, job, f"a3{encrypted}")
        assert result.stdout == f"3 {'x' * 9000}\n"


async def test_a_cut_connection_raises_and_leftover_containers_are_reported(
    backend: DockerBackend, client: docker.DockerClient
) -> None:
    async with start_behind_proxy() as (proxy, remote, messages):
        sandbox = await remote.acquire()
        running = asyncio.create_task(sandbox.run(make_test_job("import time; time.sleep(30)", timeout=40)))
        await wait_for_program(client, sandbox.name)
        proxy.cut()
        with pytest.raises(EngineLost, match=sandbox.name):
            await running
        with pytest.raises(EngineLost):
            await remote.acquire()
    assert backend.describe()
    assert any(sandbox.name in line for line in messages)
    leftover = await asyncio.to_thread(client.containers.get, sandbox.name)
    status = await asyncio.to_thread(leftover.wait, timeout=10)
    assert status["StatusCode"] == 0, "the supervisor exits when its stdin is closed"
    await asyncio.to_thread(leftover.remove)


async def test_an_image_without_python_is_refused() -> None:
    tag = f"{VOLUME}:scratch"
    await asyncio.to_thread(build_image, tag, "FROM scratch\nCOPY Dockerfile /\n")
    try:
        with pytest.raises(SandboxUnavailable, match="python3"):
            await DockerBackend(LIMITS, image=tag, volume=VOLUME).start(print)
    finally:
        await asyncio.to_thread(remove_image, tag)


async def test_an_unavailable_image_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match=r"localhost:1/nothing:1.*docker save"):
        await DockerBackend(LIMITS, image="localhost:1/nothing:1", volume=VOLUME).start(print)


SHIM = r"""
RUN mv "$(command -v python3)" /usr/local/bin/real-python
RUN printf '#!/bin/sh\nmkdir /envs/poison\nexec real-python "$@"\n' > /usr/local/bin/python3
RUN chmod 755 /usr/local/bin/python3
"""


async def test_a_user_image_cannot_write_to_the_store_of_other_images(backend: DockerBackend, tmp_path: Path) -> None:
    tag = f"{VOLUME}:shim"
    await asyncio.to_thread(build_image, tag, f"FROM {backend.describe()['image']}\n{SHIM}")
    foreign = DockerBackend(LIMITS, image=tag, volume=VOLUME, pool=0)
    try:
        await foreign.start(print)
        await publish_wheel(foreign, make_wheel(tmp_path, "tiles", files={"tiles.py": ""}), "a8")
        assert "poison" in await run_in_store(foreign, "ls"), "the image's python3 byte-compiles"
        assert not {"poison", "a8"} & set((await run_in_store(backend, "ls")).split())
        assert await backend.store.find_lock("a8") is None
    finally:
        await foreign.close()
        await asyncio.to_thread(remove_image, tag)
