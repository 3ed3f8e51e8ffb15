"""bubblewrap: what is left behind (nothing), who may use it, how environments are built, what to do when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import DependencyUnavailable, SandboxError, SandboxUnavailable
from agent.sandbox import bwrap, bwrap_command, interpreter
from agent.sandbox.base import Job
from agent.sandbox.bwrap import BwrapBackend
from agent.sandbox.bwrap_command import Bubblewrap, trouble
from agent.sandbox.bwrap_store import BwrapStore
from agent.sandbox.inside import source
from agent.sandbox.interpreter import find_interpreter
from tests.sandbox.conftest import LIMITS, job, passes, start, statements
from tests.sandbox.wheelhouse import make_wheel

needs_bwrap = pytest.mark.bwrap
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
async def backend() -> AsyncIterator[BwrapBackend]:
    started = await start("bwrap")
    assert isinstance(started, BwrapBackend)
    yield started
    await started.close()


@pytest.fixture
def store() -> Iterator[Path]:
    """A folder for a store, in folders that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="agent-test-store-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def descendants(root: int = 0) -> set[tuple[int, str]]:
    """Return the processes below one, by default this one, each with its start time."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = (int(fields[1]), fields[19])
    found: set[tuple[int, str]] = set()
    level = {root or os.getpid()}
    while level:
        level = {pid for pid, (parent, _) in parents.items() if parent in level}
        found |= {(pid, parents[pid][1]) for pid in level}
    return found


def alive(processes: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return those of some processes that still are there; zombies too, unless they are for another to collect."""
    found = set()
    for pid, started in processes:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[19] == started and (fields[0] != "Z" or int(fields[1]) == os.getpid()):
            found.add((pid, started))
    return found


async def left(processes: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return those that the kernel does not end soon."""
    for _ in range(500):
        if not alive(processes):
            break
        await asyncio.sleep(0.02)
    return alive(processes)


BUSY = "import os\nfor _ in range(5): os.fork()\nwhile True: pass"


async def busy(backend: BwrapBackend) -> tuple[bwrap.BwrapSandbox, asyncio.Task[object], set[tuple[int, str]]]:
    """Start a run with many processes; return it with the processes of its sandbox."""
    before = descendants()
    sandbox = await backend.acquire()
    running: asyncio.Task[object] = asyncio.ensure_future(sandbox.run(statements(BUSY, timeout=60)))
    for _ in range(500):
        if len(descendants() - before) > 30:
            break
        await asyncio.sleep(0.02)
    return sandbox, running, descendants() - before


@needs_bwrap
async def test_release_leaves_no_process_and_no_zombie(backend: BwrapBackend) -> None:
    sandbox, running, inside = await busy(backend)
    await sandbox.release()
    assert alive(inside) == set()
    with pytest.raises(SandboxError):
        await running
    with pytest.raises(SandboxError, match="released"):
        await sandbox.run(statements("pass"))
    await sandbox.release()


@needs_bwrap
async def test_a_cancelled_run_leaves_no_process(backend: BwrapBackend) -> None:
    sandbox, running, inside = await busy(backend)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(SandboxError):
        await sandbox.run(statements("pass"))
    await sandbox.release()
    assert alive(inside) == set()


@needs_bwrap
async def test_a_cancelled_start_leaves_no_process(backend: BwrapBackend) -> None:
    before = descendants()
    for delay in (0, 0.001, 0.003, 0.006, 0.01, 0.02):
        starting = asyncio.ensure_future(backend.acquire())
        await asyncio.sleep(delay)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await (await starting).release()
        assert descendants() - before == set()


@needs_bwrap
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_what_is_killed_from_the_host_is_an_error_of_the_sandbox(backend: BwrapBackend, number: int) -> None:
    sandbox, running, inside = await busy(backend)
    os.kill(min(inside)[0], number)
    with pytest.raises(SandboxError, match="the sandbox broke"):
        await running
    await sandbox.release()
    assert await left(inside) == set()


@needs_bwrap
async def test_closing_the_backend_releases_all() -> None:
    other = BwrapBackend(LIMITS)
    await other.start(lambda _line: None)
    before = descendants()
    for _ in range(3):
        await other.acquire()
    inside = descendants() - before
    assert len(inside) >= 6
    await other.close()
    assert alive(inside) == set()
    with pytest.raises(SandboxError, match="not started, or closed"):
        await other.acquire()


CLIENT = """
import asyncio, sys
from agent.sandbox.base import Job
from agent.sandbox.bwrap import BwrapBackend
from agent.sandbox.inside import source
from pathlib import Path
async def main():
    backend = BwrapBackend(store=Path(sys.argv[1]))
    await backend.start(lambda line: None)
    sandbox = await backend.acquire()
    print("running", flush=True)
    result = await sandbox.run(Job(source("python_harness"), sys.argv[2], ("test_a",), timeout=60))
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
    assert client.stdout is not None
    assert await client.stdout.readline() == b"running\n"
    inside: set[tuple[int, str]] = set()
    for _ in range(500):
        inside = descendants(client.pid)
        if len(inside) == 3:
            break
        await asyncio.sleep(0.02)
    client.kill()
    await client.wait()
    assert (len(inside), await left(inside)) == (3, set())


@needs_bwrap
@needs_root
async def test_a_plain_user_needs_no_rights(store: Path) -> None:
    found = await asyncio.to_thread(find_interpreter)
    places = [str(Path(bwrap.__file__).parents[2]), *(path for path in sys.path if path.endswith("-packages"))]
    os.chown(store, 12345, 12345)
    client = await asyncio.create_subprocess_exec(
        found.path, "-c", f"import sys\nsys.path[:0] = {places!r}\n{CLIENT}", str(store), "def test_a(): pass",
        cwd="/", env={"HOME": str(store)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        user=12345, group=12345, extra_groups=[],
    )  # fmt: skip
    out, err = await client.communicate()
    if b"PermissionError" in err or b"ModuleNotFoundError" in err:
        pytest.skip("another user can read neither this checkout nor its packages")
    assert out.decode() == "running\nTrue ['', 'passed', '']\n", err.decode()


@needs_bwrap
@needs_root
async def test_root_becomes_nobody_on_the_host_too(backend: BwrapBackend) -> None:
    before = descendants()
    sandbox = await backend.acquire()
    users = set()
    for pid, _ in descendants() - before:
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text, encoding="utf-8")
        users.add(next(line for line in status.split("\n") if line.startswith("Uid:")))
        assert next(line for line in status.split("\n") if line.startswith("Groups:")).split()[1:] in ([], ["65534"])
    assert users == {"Uid:\t65534\t65534\t65534\t65534"}
    await sandbox.release()


@needs_bwrap
async def test_of_the_host_only_the_system_is_seen(backend: BwrapBackend) -> None:
    body = """
import os
assert set(os.listdir("/")) <= {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "tmp",
    "work", "envs", "inside"}
assert set(os.listdir("/etc")) <= {"passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache", "alternatives"}
assert os.listdir("/inside") == ["python_harness.pyc", "supervisor.pyc"] or len(os.listdir("/inside")) == 2
assert not os.path.exists("/sys")
"""
    sandbox = await backend.acquire()
    result = await sandbox.run(statements(body))
    assert passes(result, "test_a"), result.records
    await sandbox.release()


# --- environments


@needs_bwrap
async def test_an_environment_is_built_once_and_imported(store: Path, tmp_path: Path) -> None:
    backend = BwrapBackend(LIMITS, store=store)
    await backend.start(lambda _line: None)
    wheels = [make_wheel(tmp_path, "tinything"), make_wheel(tmp_path, "other-thing", "2.0")]
    assert await backend.installer.installed("abc") is None
    assert await backend.installer.install(wheels, "abc") == ("other-thing==2.0", "tinything==1.0")
    assert await backend.installer.install(wheels, "abc") == ("other-thing==2.0", "tinything==1.0")
    assert await backend.installer.installed("abc") == ("other-thing==2.0", "tinything==1.0")
    sandbox = await backend.acquire()
    program = "import tinything, other_thing\ndef test_a(): assert tinything.VERSION == '1.0'"
    given = job(program)
    assert passes(await sandbox.run(Job(given.harness, program, given.cases, environment="abc")), "test_a")
    assert [record.kind for record in (await sandbox.run(given)).records] == ["load", "end"]
    await sandbox.release()
    base = next((store / "bwrap").iterdir())
    assert list((base / "staging").iterdir()) == []
    files = [base / "envs" / "abc", *(base / "envs" / "abc").rglob("*")]
    assert {path.stat().st_uid for path in files} == {os.geteuid()}
    assert not any(path.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP) for path in files)
    assert any(path.suffix == ".pyc" for path in files)
    await backend.close()


@needs_bwrap
async def test_an_environment_does_not_shadow_the_standard_library(store: Path, tmp_path: Path) -> None:
    backend = BwrapBackend(LIMITS, store=store)
    await backend.start(lambda _line: None)
    planted = dict.fromkeys(("unittest.py", "types.py", "evil.pth", "sitecustomize.py"), "import os; os._exit(0)\n")
    await backend.installer.install([make_wheel(tmp_path, "evil", files=planted)], "e")
    sandbox = await backend.acquire()
    program = "import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self): self.assertTrue(True)"
    given = Job(source("python_harness"), program, ("TestA.test_a",), environment="e")
    assert passes(await sandbox.run(given), "TestA.test_a")
    await backend.close()


@needs_bwrap
async def test_a_wheel_that_pip_refuses_is_a_missing_dependency(store: Path, tmp_path: Path) -> None:
    backend = BwrapBackend(LIMITS, store=store)
    await backend.start(lambda _line: None)
    wheel = make_wheel(tmp_path, "foreign", tag="cp27-cp27m-win32")
    with pytest.raises(DependencyUnavailable, match="could not be installed"):
        await backend.installer.install([wheel], "abc")
    assert await backend.installer.installed("abc") is None
    await backend.close()


async def test_nothing_is_known_before_the_start() -> None:
    backend = BwrapBackend(LIMITS)
    assert backend.describe() == {"backend": "bwrap"}
    with pytest.raises(SandboxError, match="not started"):
        await backend.acquire()
    with pytest.raises(SandboxError, match="not started"):
        _ = backend.installer.interpreter


# --- what to do when it does not work


async def test_a_missing_bubblewrap_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="bubblewrap is not installed: sudo apt install bubblewrap"):
        await BwrapBackend(store=tmp_path).start(lambda _line: None)


@pytest.fixture
def broken_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a bubblewrap on the PATH that says it may not."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "bwrap"
    script.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    for path in (tmp_path, folder, script):
        path.chmod(0o755)
    # pytest keeps its folders to their owner, one more of them under xdist
    for path in tmp_path.parents:
        if path.is_relative_to(tempfile.gettempdir()) and path != Path(tempfile.gettempdir()):
            path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.usefixtures("broken_bwrap")
async def test_a_forbidden_bubblewrap_is_said_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match=r"No permissions to create new namespace\n.*max_user_namespaces"):
        await BwrapBackend(store=tmp_path / "store").start(lambda _line: None)


@pytest.mark.parametrize(
    ("printed", "restricted", "words"),
    [
        ("bwrap: Unknown option --size", False, "0.7 or later"),
        ("bwrap: setting up uid map: Permission denied", True, "/etc/apparmor.d/bwrap"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", True, "/etc/apparmor.d/bwrap"),
        ("bwrap: Creating new namespace failed: No space left on device", False, "max_user_namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", False, "/proc unmasked"),
        ("bwrap: who knows", False, "by hand"),
    ],
)
def test_each_trouble_has_its_remedy(
    printed: str, restricted: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bwrap_command, "_restricted_by_apparmor", lambda: restricted)
    assert words in trouble(printed)


async def test_a_store_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxUnavailable, match="need the folder"):
        await asyncio.to_thread(BwrapStore, tmp_path / "file", await asyncio.to_thread(find_interpreter))


def test_an_interpreter_is_one_that_the_sandboxs_user_can_run() -> None:
    found = find_interpreter()
    done = subprocess.run(
        [found.path, "-I", "-c", "import json, sys; print(json.dumps(sys.version_info[:3]))"],
        capture_output=True, cwd="/", check=True, **interpreter.as_unprivileged(),
    )  # fmt: skip
    assert ".".join(map(str, json.loads(done.stdout))) == found.version
    assert found.version.startswith(f"{found.tag.version}.")


def test_without_an_interpreter_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_candidates", lambda: iter([Path("/bin/false"), Path("/no/python3")]))
    with pytest.raises(SandboxUnavailable, match="apt install python3"):
        find_interpreter()


@pytest.mark.parametrize(
    ("prefix", "folders"),
    [
        ("/usr", ()),
        ("/usr/local", ()),
        ("/opt/python/3.12", ("/opt/python/3.12",)),
        ("/usrlocal", ("/usrlocal",)),
        ("/nix/store/abc-python3-3.12", ("/nix/store",)),
    ],
)
def test_an_interpreter_elsewhere_is_shown_with_its_folder(prefix: str, folders: tuple[str, ...]) -> None:
    assert interpreter._folders(prefix) == folders


def test_an_interpreter_below_a_temporary_folder_is_not_hidden_by_it(tmp_path: Path) -> None:
    found = replace(find_interpreter(), folders=("/tmp/python",))
    command = Bubblewrap("bwrap", (0, 8, 0), found, tmp_path).command(["true"], shown={}, tmpfs={"/tmp": 1000}, kept={})
    assert command.index("/tmp/python") > command.index("/tmp")
    assert command[command.index("/tmp") - 3 : command.index("/tmp")] == ["--size", "1000", "--tmpfs"]


def test_user_namespaces_are_forbidden_where_bubblewrap_can(tmp_path: Path) -> None:
    found = find_interpreter()
    commands = [
        Bubblewrap("bwrap", version, found, tmp_path).command([], shown={}, tmpfs={}, kept={})
        for version in ((0, 7, 0), (0, 8, 0), (1, 0))
    ]
    assert ["--disable-userns" in command for command in commands] == [False, True, True]
