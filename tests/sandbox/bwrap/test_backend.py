"""bubblewrap sandboxes leave nothing behind, however they end, and need no privileges."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.errors import RunnerCrashed, SandboxError
from agent.sandbox.bwrap import backend as bwrap
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.bwrap.process import Bubblewrap, BwrapProcess
from agent.sandbox.interpreter import find_interpreter
from tests.cli.processes import Process, find_alive, find_descendants
from tests.sandbox.conftest import LIMITS, make_test_job, passes, run_once, start
from tests.sandbox.leftovers import adopt_orphans, list_children

needs_bwrap = pytest.mark.bwrap
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


@pytest.fixture(scope="module")
async def backend() -> AsyncIterator[BwrapBackend]:
    """A backend without a pool, so that the only processes are those of acquired sandboxes."""
    await (await start("bwrap")).close()
    started = BwrapBackend(LIMITS, pool=0)
    await started.start(lambda _line: None)
    yield started
    await started.close()


async def find_survivors(processes: set[Process]) -> set[Process]:
    """Return the processes that are still alive after 10 seconds."""
    for _ in range(500):
        if not find_alive(processes):
            break
        await asyncio.sleep(0.02)
    return find_alive(processes)


BUSY = "import os\nfor _ in range(5): os.fork()\nwhile True: pass"


async def start_busy_run(backend: BwrapBackend) -> tuple[bwrap.BwrapSandbox, asyncio.Task[object], set[Process]]:
    """Start a run with many processes. Returns the sandbox, the run and its processes."""
    before = find_descendants(os.getpid())
    sandbox = await backend.acquire()
    running: asyncio.Task[object] = asyncio.ensure_future(sandbox.run(make_test_job(BUSY, timeout=60)))
    for _ in range(500):
        if len(find_descendants(os.getpid()) - before) > 30:
            break
        await asyncio.sleep(0.02)
    return sandbox, running, find_descendants(os.getpid()) - before


@needs_bwrap
async def test_release_leaves_no_processes_or_zombies(backend: BwrapBackend) -> None:
    before = list_children()
    sandbox, running, inside = await start_busy_run(backend)
    await sandbox.release()
    assert find_alive(inside) == set()
    assert list_children() == before
    with pytest.raises(SandboxError):
        await running
    with pytest.raises(SandboxError, match="released"):
        await sandbox.run(make_test_job("pass"))
    await sandbox.release()


@needs_bwrap
async def test_a_cancelled_run_leaves_no_processes(backend: BwrapBackend) -> None:
    sandbox, running, inside = await start_busy_run(backend)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(SandboxError):
        await sandbox.run(make_test_job("pass"))
    await sandbox.release()
    assert find_alive(inside) == set()


@needs_bwrap
async def test_a_cancelled_start_leaves_no_processes(store: Path) -> None:
    before = find_descendants(os.getpid())
    for delay in (0, 0.001, 0.003, 0.006, 0.01, 0.02):
        other = BwrapBackend(LIMITS, store=store)
        await other.start(lambda _line: None)
        starting = [asyncio.ensure_future(other.acquire()) for _ in range(6)]
        await asyncio.sleep(delay)
        for task in starting:
            task.cancel()
        for task in starting:
            with suppress(asyncio.CancelledError):
                await (await task).release()
        await other.close()
        assert find_descendants(os.getpid()) - before == set()


@needs_bwrap
async def test_ending_a_starting_process_leaves_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bubblewrap may create its first process just after the lookup. Here the lookup never finds it."""
    monkeypatch.setattr("agent.sandbox.bwrap.process._find_children", lambda _pid: [])
    bubblewrap = Bubblewrap("bwrap", (0, 8, 0), find_interpreter(), tmp_path)
    arguments = bubblewrap.build_arguments(["cat"], read_only={}, tmpfs={}, writable={})
    with adopt_orphans():
        before = find_descendants(os.getpid())
        for number in range(240):
            process = await BwrapProcess.spawn(bubblewrap, arguments)
            time.sleep(number / 60_000)  # noqa: ASYNC251 - asyncio.sleep is too coarse
            await process.end()
        assert await find_survivors(find_descendants(os.getpid()) - before) == set()


@needs_bwrap
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_sandbox_killed_from_the_host_raises_a_sandbox_error(backend: BwrapBackend, number: int) -> None:
    sandbox, running, inside = await start_busy_run(backend)
    os.kill(min(inside)[0], number)
    with pytest.raises(RunnerCrashed):
        await running
    await sandbox.release()
    assert await find_survivors(inside) == set()


@needs_bwrap
async def test_closing_the_backend_releases_all_sandboxes() -> None:
    other = BwrapBackend(LIMITS)
    await other.start(lambda _line: None)
    before = find_descendants(os.getpid())
    for _ in range(3):
        await other.acquire()
    inside = find_descendants(os.getpid()) - before
    assert len(inside) >= 6
    await other.close()
    assert find_alive(inside) == set()
    with pytest.raises(SandboxError, match="closed"):
        await other.acquire()


CLIENT = """
import asyncio, sys
from agent.sandbox.base import SandboxJob
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.inside import read_source
from pathlib import Path
async def main():
    backend = BwrapBackend(store=Path(sys.argv[1]), pool=0)
    await backend.start(lambda line: None)
    sandbox = await backend.acquire()
    print("running", flush=True)
    result = await sandbox.run(SandboxJob(read_source("python_harness"), sys.argv[2], ("test_a",), timeout=60))
    print(result.clean, [record.outcome for record in result.records], flush=True)
    await sandbox.release()
    await backend.close()
asyncio.run(main())
"""


@needs_bwrap
async def test_a_sandbox_ends_when_its_client_is_killed(store: Path) -> None:
    program = "def test_a():\n    while True: pass"
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, str(store), program, stdout=subprocess.PIPE
    )
    assert await client.stdout.readline() == b"running\n"
    inside: set[Process] = set()
    for _ in range(500):
        inside = find_descendants(client.pid)
        if len(inside) == 3:
            break
        await asyncio.sleep(0.02)
    client.kill()
    await client.wait()
    assert (len(inside), await find_survivors(inside)) == (3, set())


@needs_bwrap
@needs_root
async def test_an_ordinary_user_needs_no_privileges(store: Path) -> None:
    interpreter = await asyncio.to_thread(find_interpreter)
    paths = [str(Path(bwrap.__file__).parents[3]), *(path for path in sys.path if path.endswith("-packages"))]
    os.chown(store, 12345, 12345)
    client = await asyncio.create_subprocess_exec(
        interpreter.path, "-c", f"import sys\nsys.path[:0] = {paths!r}\n{CLIENT}", str(store), "def test_a(): pass",
        cwd="/", env={"HOME": str(store)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        user=12345, group=12345, extra_groups=[],
    )  # fmt: skip
    out, err = await client.communicate()
    if b"PermissionError" in err or b"ModuleNotFoundError" in err:
        pytest.skip("other users cannot read this checkout or its packages")
    assert out.decode() == "running\nTrue ['', 'passed', '']\n", err.decode()


@needs_bwrap
@needs_root
async def test_sandboxes_of_root_run_as_nobody_on_the_host(backend: BwrapBackend) -> None:
    before = find_descendants(os.getpid())
    sandbox = await backend.acquire()
    users = set()
    for pid, _ in find_descendants(os.getpid()) - before:
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text, encoding="utf-8")
        users.add(next(line for line in status.split("\n") if line.startswith("Uid:")))
        assert next(line for line in status.split("\n") if line.startswith("Groups:")).split()[1:] in ([], ["65534"])
    assert users == {"Uid:\t65534\t65534\t65534\t65534"}
    await sandbox.release()


@needs_bwrap
async def test_only_system_folders_of_the_host_are_visible(backend: BwrapBackend) -> None:
    body = """
import os
assert set(os.listdir("/")) <= {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "tmp",
    "work", "envs", "inside"}
assert set(os.listdir("/etc")) <= {"passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache", "alternatives"}
assert os.listdir("/inside") == ["python_harness.pyc", "supervisor.pyc"] or len(os.listdir("/inside")) == 2
assert not os.path.exists("/sys")
assert not os.path.exists("/usr/local/etc") or os.listdir("/usr/local/etc") == []
"""
    result = await run_once(backend, make_test_job(body))
    assert passes(result, "test_a"), result.records


async def test_a_backend_that_is_not_started_refuses_requests() -> None:
    backend = BwrapBackend(LIMITS)
    assert backend.describe() == {"backend": "bwrap"}
    with pytest.raises(SandboxError, match="started"):
        await backend.acquire()
    with pytest.raises(SandboxError, match="started"):
        _ = backend.store.interpreter
