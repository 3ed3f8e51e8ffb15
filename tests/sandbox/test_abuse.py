"""What hostile programs try against the machine. A canary on the host stays whole, and the sandbox goes on working."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sandbox.base import Sandbox
from tests.sandbox.conftest import outcomes, passes, statements

RESOURCES = {
    "a bomb of processes": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "a bomb of threads": "import threading, time\n"
    "while True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: pass",
    "memory in one piece": "x = bytearray(1 << 40)",
    "memory in pieces": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "a full temporary folder": "with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "full shared memory": "with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "many files open": "x = []\nwhile True: x.append(open('/dev/null'))",
    "an endless line": "import sys\nwhile True: sys.stdout.write('x' * 4096)",
    "a busy loop": "while True: pass",
    "deep recursion": "def f(): f()\nimport sys\nsys.setrecursionlimit(10 ** 9)\nf()",
}


@pytest.mark.parametrize("body", RESOURCES.values(), ids=RESOURCES)
async def test_greed_ends_with_its_run(sandbox: Sandbox, body: str) -> None:
    assert not passes(await sandbox.run(statements(body, timeout=1.5)), "test_a")
    clear = "import os\nfor p in ('/tmp', '/dev/shm'):\n    for n in os.listdir(p): os.unlink(p + '/' + n)"
    assert passes(await sandbox.run(statements(clear)), "test_a")


async def test_the_number_of_processes_is_limited(reused: Sandbox) -> None:
    body = """
import os, time
count = 0
try:
    while count < 500:
        if os.fork() == 0: time.sleep(60)
        count += 1
except BlockingIOError: pass
assert 10 < count < 100, count
"""
    result = await reused.run(statements(body))
    assert passes(result, "test_a"), result.records


async def test_each_file_and_each_folder_has_its_size(reused: Sandbox) -> None:
    body = """
import os, errno
for folder in ("/tmp", "/work", "/dev/shm"):
    written = 0
    try:
        for n in range(100):
            with open(f"{folder}/{n}", "wb") as f: written += f.write(bytes(4 << 20))
    except OSError as error: assert error.errno == errno.ENOSPC, error
    assert written <= 32 << 20, written
    for name in os.listdir(folder): os.unlink(f"{folder}/{name}")
"""
    result = await reused.run(statements(body, timeout=20))
    assert passes(result, "test_a"), result.records


FORBIDDEN = {
    "the system": "open('/usr/bin/x', 'w')",
    "configuration": "open('/etc/passwd', 'a')",
    "the root": "open('/x', 'w')",
    "devices": "open('/dev/x', 'w')",
    "the environment store": "open('/envs/x', 'w')",
    "a kernel setting": "open('/proc/sys/kernel/hostname', 'w').write('x')",
    "a core pattern": "open('/proc/sys/kernel/core_pattern', 'w').write('|/work/x')",
    "a release agent": "import glob\n"
    "for p in glob.glob('/sys/fs/cgroup/**/release_agent', recursive=True) or ['/no/x']: open(p, 'w').write('/work/x')",
    "the trigger of system requests": "open('/proc/sysrq-trigger', 'w').write('b')",
    "a raw device": "import os, stat\nos.mknod('/work/sda', stat.S_IFBLK | 0o666, os.makedev(8, 0))",
    "another user": "import os\nos.setuid(0)",
    "a mount": "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    "if libc.mount(b'none', b'/work', b'tmpfs', 0, None): raise OSError(ctypes.get_errno(), 'mount')",
    "another root": "import os\nos.chroot('/work')",
    "a namespace of its own": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    "if libc.unshare(0x10000000 | 0x20000): raise OSError(ctypes.get_errno(), 'unshare')",
    "a clock": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)",
    "a name for the host": "import socket\nsocket.sethostname('x')",
    "a raw socket": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "the first process's files": "import os\nos.listdir('/proc/1/root/')",
    "a debugger's place": "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    "if libc.ptrace(16, os.getppid(), 0, 0): raise OSError(ctypes.get_errno(), 'ptrace')",
}


@pytest.mark.parametrize("body", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_a_program_cannot_have(reused: Sandbox, body: str) -> None:
    result = await reused.run(statements(body))
    ended = [record for record in result.records if record.kind == "case"]
    assert [record.outcome for record in ended] == ["error"], result
    assert ended[0].error_type in ("OSError", "PermissionError", "FileNotFoundError")


async def test_a_setuid_program_gives_no_rights(reused: Sandbox) -> None:
    body = """
import os, shutil, subprocess
shutil.copy(shutil.which("id"), "/work/id")
os.chmod("/work/id", 0o6755)
assert subprocess.run(["/work/id", "-u"], capture_output=True, text=True).stdout == "65534\\n"
su = subprocess.run(["su", "-c", "id -u"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
assert su.returncode != 0 and su.stdout == ""
"""
    result = await reused.run(statements(body))
    assert passes(result, "test_a"), result.records


@pytest.fixture
def listening() -> Iterator[list[str]]:
    """Listen on the host, on every address and on an abstract name; give what connected."""
    heard: list[str] = []
    servers = [socket.socket(), socket.socket(socket.AF_UNIX)]
    servers[0].bind(("0.0.0.0", 0))
    servers[1].bind("\0agent-test-canary")

    def serve(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            heard.append(str(server))
            connection.close()

    for server in servers:
        server.listen()
        threading.Thread(target=serve, args=(server,), daemon=True).start()
    heard.append(str(servers[0].getsockname()[1]))
    yield heard
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


async def test_nothing_on_the_host_can_be_reached(reused: Sandbox, listening: list[str]) -> None:
    body = f"""
import socket
def attempt(family, address):
    with socket.socket(family) as s:
        s.settimeout(0.3)
        try: s.connect(address)
        except OSError: return
    raise AssertionError(address)
for host in ("127.0.0.1", "172.17.0.1", "169.254.169.254", "10.0.0.1", "1.1.1.1"):
    for port in ({listening[0]}, 53, 80, 443): attempt(socket.AF_INET, (host, port))
attempt(socket.AF_INET6, ("::1", {listening[0]}))
attempt(socket.AF_INET6, ("2606:4700:4700::1111", 53))
attempt(socket.AF_UNIX, "\\0agent-test-canary")
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/dbus/system_bus_socket"): attempt(socket.AF_UNIX, path)
try: socket.getaddrinfo("example.org", 80)
except OSError: pass
else: raise AssertionError("resolved")
with open("/proc/net/dev") as f: assert [line.split(":")[0].strip() for line in f][2:] == ["lo"]
"""
    result = await reused.run(statements(body, timeout=20))
    assert passes(result, "test_a"), result.records
    assert len(listening) == 1


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file on the host that anybody may write."""
    path = tmp_path / "canary"
    path.write_text("whole")
    tmp_path.chmod(0o777)
    path.chmod(0o666)
    return path


async def test_links_out_of_the_sandbox_lead_nowhere(reused: Sandbox, canary: Path) -> None:
    body = f"""
import os
for name in ("stdout", "result.json", "program.py"):
    os.symlink({str(canary)!r}, "/work/" + name)
    try: open("/work/" + name, "w").write("broken")
    except OSError: continue
try: open("../" * 30 + {str(canary)[1:]!r}, "w").write("broken")
except OSError: pass
os.mkfifo("/work/fifo")
"""
    await reused.run(statements(body))
    assert canary.read_text() == "whole"  # noqa: ASYNC240
    assert outcomes(await reused.run(statements("pass"))) == {"test_a": "passed"}
