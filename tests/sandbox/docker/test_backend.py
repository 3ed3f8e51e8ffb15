"""Docker containers come and go with their pairs, and what breaks around a program is never its result."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
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
from agent.sandbox.inside import source
from agent.sandbox.owner import Owner
from tests.sandbox.conftest import passes, statements
from tests.sandbox.proxy import Proxy
from tests.sandbox.stores import in_store, put
from tests.sandbox.wheelhouse import make_wheel

pytestmark = pytest.mark.docker

LIMITS = SandboxLimits(memory=128 << 20, processes=64, files=256 << 20, output=16 << 10)
VOLUME = f"test-driven-annotator-tests-{os.getpid()}"
PRINTING = "def main(job, emit):\n    exec(compile(job.program, 'program.py', 'exec'), {})\n"


def prints(program: str, environment: str | None = None) -> SandboxJob:
    """Return a job that runs a program as it stands."""
    return SandboxJob(PRINTING, program, environment=environment)


@pytest.fixture(scope="module", autouse=True)
def volume() -> Iterator[str]:
    """A volume of these tests' own, removed at the end."""
    yield VOLUME
    client = docker.from_env()
    for left in client.volumes.list(filters={"name": VOLUME}):
        left.remove(force=True)
    client.close()


@pytest.fixture(scope="module")
async def backend(volume: str) -> AsyncIterator[DockerBackend]:
    """A backend that most tests share."""
    started = DockerBackend(LIMITS, volume=volume)
    await started.start(print)
    yield started
    await started.close()


def there(client: docker.DockerClient) -> set[str]:
    """Return the names of the containers of this process, running or not."""
    found = client.api.containers(all=True, filters={"label": f"test-driven-annotator.pid={os.getpid()}"})
    return {str(container["Names"][0]).removeprefix("/") for container in found}


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    connected = docker.from_env()
    yield connected
    connected.close()


async def test_it_describes_engine_image_and_interpreter(backend: DockerBackend) -> None:
    described = backend.describe()
    assert described["backend"] == "docker"
    assert described["image"].startswith("test-driven-annotator/python:")
    assert described["image_id"].startswith("sha256:")
    assert described["python"].startswith("3.11.")
    assert described["platform"].startswith("linux/")
    assert described["api"].split(".")[0] == "1"
    assert described["python"] == backend.store.interpreter.full


async def test_nothing_is_left_after_close(client: docker.DockerClient) -> None:
    mine = DockerBackend(LIMITS, volume=VOLUME)
    await mine.start(print)
    sandboxes = await asyncio.gather(*(mine.acquire() for _ in range(3)))
    names = {sandbox.name for sandbox in sandboxes}
    assert names <= there(client)
    await sandboxes[0].release()
    await mine.close()
    assert not names & there(client)
    await sandboxes[1].release()
    with pytest.raises(SandboxError, match="not started, or closed"):
        await mine.acquire()


async def test_a_cancelled_acquire_leaves_nothing(client: docker.DockerClient) -> None:
    mine = DockerBackend(LIMITS, volume=VOLUME)
    await mine.start(print)
    before = there(client)
    for delay in (0.0, 0.005, 0.03, 0.08):
        acquiring = asyncio.create_task(mine.acquire())
        await asyncio.sleep(delay)
        acquiring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
    await mine.close()
    assert there(client) <= before


async def program_in(client: docker.DockerClient, name: str) -> None:
    """Wait until something runs in a container beside its first process."""
    container = await asyncio.to_thread(client.containers.get, name)
    async with asyncio.timeout(20):
        while len((await asyncio.to_thread(container.top))["Processes"]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_killed_container_is_an_error_and_a_used_up_sandbox(
    backend: DockerBackend, client: docker.DockerClient
) -> None:
    sandbox = await backend.acquire()
    running = asyncio.create_task(sandbox.run(statements("import time; time.sleep(30)", timeout=40)))
    await program_in(client, sandbox.name)
    await asyncio.to_thread(client.containers.get(sandbox.name).kill)
    with pytest.raises(ContainerLost, match=r"was killed from outside \(exit code 137\)"):
        await running
    with pytest.raises(SandboxError, match="cannot be used any more"):
        await sandbox.run(statements("pass"))
    await sandbox.release()


async def test_running_out_of_the_container_s_memory_is_a_result(backend: DockerBackend) -> None:
    """Files in memory are counted by the container alone, so the kernel ends the program, not the supervisor."""
    sandbox = await backend.acquire()
    result = await sandbox.run(
        statements("for place in '/tmp', '/work': open(place + '/big', 'wb').write(bytes(1 << 20) * 100)")
    )
    assert (result.limit, result.signal, result.clean) == ("memory", 9, False)
    await sandbox.release()


async def test_an_environment_is_not_there_while_the_interpreter_starts(backend: DockerBackend, tmp_path: Path) -> None:
    early = "import sys; sys.modules['unittest'] = None\nopen('/tmp/early', 'w').close()\n"
    planted = dict.fromkeys(("sitecustomize.py", "usercustomize.py", "early.pth"), early)
    await put(backend, make_wheel(tmp_path, "early", files={**planted, "iniconfig.py": "OWN = 1"}), "a7")
    program = "import os, iniconfig\ndef test_a(): assert iniconfig.OWN and not os.path.exists('/tmp/early')"
    sandbox = await backend.acquire()
    given = SandboxJob(source("python_harness"), program, ("test_a",), environment="a7")
    assert passes(await sandbox.run(given), "test_a")
    await sandbox.release()


async def test_an_environment_that_another_process_built_meanwhile_is_found(
    backend: DockerBackend, tmp_path: Path
) -> None:
    other = DockerBackend(LIMITS, volume=VOLUME, pool=0)
    await other.start(print)
    await put(backend, make_wheel(tmp_path, "bricks", files={"bricks.py": ""}), "a6")
    assert await other.store.find_lock("a6") == ("bricks==1.0",)
    await other.close()


async def test_a_sweep_removes_only_what_a_dead_owner_of_this_host_left(
    backend: DockerBackend, client: docker.DockerClient
) -> None:
    here = Owner.current()
    dead, foreign = Owner(here.host, 1, "1"), Owner("other", 1, "1")
    image = backend.describe()["image"]
    kind = {"test-driven-annotator.kind": "sandbox"}
    create = partial(client.containers.create, image, "true", network_mode="none")
    left = await asyncio.to_thread(create, labels={**dead.as_labels(), **kind})
    others = [await asyncio.to_thread(create, labels=labels) for labels in ({**foreign.as_labels(), **kind}, kind, {})]
    sandbox = await backend.acquire()
    engine = DockerEngine.connect()
    await asyncio.to_thread(remove_orphans, engine, here)
    engine.close()
    try:
        with pytest.raises(docker.errors.NotFound):
            await asyncio.to_thread(left.reload)
        for other in others:
            await asyncio.to_thread(other.reload)
        assert (await sandbox.run(prints("print(1)"))).stdout == "1\n"
    finally:
        for other in others:
            await asyncio.to_thread(other.remove, force=True)
        await sandbox.release()


async def test_what_a_killed_process_left_is_gone_after_the_next_start(client: docker.DockerClient) -> None:
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
    printed, _ = await dead.communicate()
    name = printed.decode().split()[-1]
    assert await asyncio.to_thread(client.containers.get, name)
    mine = DockerBackend(LIMITS, volume=VOLUME)
    await mine.start(print)
    await mine.close()
    with pytest.raises(docker.errors.NotFound):
        await asyncio.to_thread(client.containers.get, name)


@asynccontextmanager
async def proxied(certificate: Path | None = None) -> AsyncIterator[tuple[Proxy, DockerBackend, list[str]]]:
    """Give a backend whose engine is behind a proxy, and what it tells its user."""
    told = list[str]()
    encryption = None
    tls = {}
    if certificate is not None:
        encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        encryption.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        tls = {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(certificate)}
    proxy = Proxy(encryption)
    await proxy.open()
    connect = partial(DockerEngine.connect, {"DOCKER_HOST": f"tcp://127.0.0.1:{proxy.port}", **tls})
    # no pool: what is being created for it when the proxy is cut would come to be after the test
    remote = DockerBackend(LIMITS, volume=VOLUME, connect=connect, pool=0, patience=0)
    try:
        await remote.start(told.append)
        yield proxy, remote, told
    finally:
        await remote.close()
        proxy.cut()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A folder as DOCKER_CERT_PATH names it, the server's own certificate serving for the client's."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl for a certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    shutil.copy(tmp_path / "cert.pem", tmp_path / "ca.pem")
    return tmp_path


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_remote_engine_serves_sandboxes_and_environments(
    backend: DockerBackend, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    assert backend.describe()
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)  # requests prefers them to the certificates of the engine
    async with proxied(certificate if encrypted else None) as (_, remote, _):
        wheel = make_wheel(tmp_path, "tiles", files={"tiles.py": "SIZE = 3\n"})
        await put(remote, wheel, f"a3{encrypted}")
        sandbox = await remote.acquire()
        result = await sandbox.run(prints("import tiles; print(tiles.SIZE, 'x' * 9000)", f"a3{encrypted}"))
        assert result.stdout == f"3 {'x' * 9000}\n"


async def test_a_cut_connection_is_an_error_and_what_is_left_is_told(
    backend: DockerBackend, client: docker.DockerClient
) -> None:
    async with proxied() as (proxy, remote, told):
        sandbox = await remote.acquire()
        running = asyncio.create_task(sandbox.run(statements("import time; time.sleep(30)", timeout=40)))
        await program_in(client, sandbox.name)
        proxy.cut()
        with pytest.raises(EngineLost, match="could not inspect container"):
            await running
        with pytest.raises(EngineLost, match="the Docker engine could not"):
            await remote.acquire()
    assert backend.describe()
    assert any(f"Container {sandbox.name} is left; the next start removes it: " in line for line in told)
    left = await asyncio.to_thread(client.containers.get, sandbox.name)
    ended = await asyncio.to_thread(left.wait, timeout=10)
    assert ended["StatusCode"] == 0, "the supervisor ends when its input does"
    await asyncio.to_thread(left.remove)


def build(client: docker.DockerClient, tag: str, dockerfile: str) -> None:
    """Build an image from a Dockerfile alone."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(dockerfile)
        archive.addfile(entry, io.BytesIO(dockerfile.encode()))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True, network_mode="none")


async def test_an_image_without_python_is_refused(client: docker.DockerClient) -> None:
    tag = f"{VOLUME}:scratch"
    await asyncio.to_thread(build, client, tag, "FROM scratch\nCOPY Dockerfile /\n")
    try:
        with pytest.raises(SandboxUnavailable, match=r"sandboxes do not work on it.*python3"):
            await DockerBackend(LIMITS, image=tag, volume=VOLUME).start(print)
    finally:
        await asyncio.to_thread(client.images.remove, tag)


async def test_an_image_that_is_nowhere_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match=r"localhost:1/nothing:1 is not here.*docker save"):
        await DockerBackend(LIMITS, image="localhost:1/nothing:1", volume=VOLUME).start(print)


SHIM = r"""
RUN mv "$(command -v python3)" /usr/local/bin/own-python
RUN printf '#!/bin/sh\nmkdir /envs/poison\nexec own-python "$@"\n' > /usr/local/bin/python3
RUN chmod 755 /usr/local/bin/python3
"""


async def test_an_image_of_the_user_writes_to_no_store_that_other_images_mount(
    backend: DockerBackend, client: docker.DockerClient, tmp_path: Path
) -> None:
    tag = f"{VOLUME}:shim"
    await asyncio.to_thread(build, client, tag, f"FROM {backend.describe()['image']}\n{SHIM}")
    foreign = DockerBackend(LIMITS, image=tag, volume=VOLUME, pool=0)
    try:
        await foreign.start(print)
        await put(foreign, make_wheel(tmp_path, "tiles", files={"tiles.py": ""}), "a8")
        assert "poison" in await in_store(foreign, "ls"), "the image's python3 is what byte-compiles"
        assert not {"poison", "a8"} & set((await in_store(backend, "ls")).split())
        assert await backend.store.find_lock("a8") is None
    finally:
        await foreign.close()
        await asyncio.to_thread(client.images.remove, tag)
