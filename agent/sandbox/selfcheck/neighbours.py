"""Checks that runs in one sandbox do not affect later runs, and that sandboxes cannot access each other."""

from __future__ import annotations

import asyncio

from agent.sandbox.base import Sandbox
from agent.sandbox.selfcheck.check import (
    Check,
    CheckContext,
    CheckFailed,
    describe_outcome,
    expect_pass,
    expect_refusal,
    require,
    select_case_records,
    wrap_in_case,
)

GROUP = "isolation"
_FOLDERS = ("/tmp", "/dev/shm", "/work", "/var/tmp", "/run/lock", "/dev/mqueue")

_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            with open("/tmp/beat", "w") as f: f.write(str(time.monotonic()))
            time.sleep(0.01)
    os._exit(0)
os.wait()
while not os.path.exists("/tmp/beat"): time.sleep(0.01)
"""
_BEATS = """
import time
def beat():
    with open("/tmp/beat") as f: return f.read()
first = beat()
time.sleep(0.1)
assert beat() == first, "the daemon is still running"
"""
_LEAVE = f"""
for folder in {_FOLDERS!r}:
    try:
        with open(folder + "/left-behind", "w") as f: f.write("x")
    except OSError: pass
import ctypes, os
libc = ctypes.CDLL(None)
libc.shmget(4711, 4096, 0o1666); libc.semget(4711, 1, 0o1666); libc.msgget(4711, 0o1666)
"""
_LOOK = f"""
import ctypes, os
for folder in {_FOLDERS!r}: assert not os.path.exists(folder + "/left-behind"), folder
libc = ctypes.CDLL(None)
assert libc.shmget(4711, 4096, 0) == libc.semget(4711, 1, 0) == libc.msgget(4711, 0) == -1, "shared memory"
"""
_LISTEN = """
import socket, time
servers = []
for family, address in ((socket.AF_INET, ("0.0.0.0", 40404)), (socket.AF_UNIX, chr(0) + "agent-neighbour")):
    server = socket.socket(family)
    server.bind(address)
    server.listen()
    servers.append(server)
time.sleep(3)
"""
_CALL = """
import os, socket, time
time.sleep(0.5)
for family, address in ((socket.AF_INET, ("127.0.0.1", 40404)), (socket.AF_UNIX, chr(0) + "agent-neighbour")):
    with socket.socket(family) as s:
        try: s.connect(address)
        except OSError: continue
        raise AssertionError(address)
"""
_MODULES = """
for name in ("unittest", "asyncio", "sitecustomize", "usercustomize", "conftest", "types", "json", "pytest"):
    with open(name + ".py", "w") as f: f.write("import os; os._exit(0)")
"""
_UNITTEST = "import unittest\nclass TestX(unittest.TestCase):\n    def test_x(self): self.assertEqual(1, 2)"


async def _require_pass(context: CheckContext, sandbox: Sandbox, body: str, *, timeout: float = 5.0) -> None:
    await require(expect_pass, sandbox, context.make_job(wrap_in_case(body), timeout=timeout))


async def _check_daemon(context: CheckContext) -> None:
    async with context.open_sandbox() as sandbox:
        await _require_pass(context, sandbox, _DAEMON)
        await _require_pass(context, sandbox, _BEATS)
        await context.require_working(sandbox)


async def _check_modules(context: CheckContext) -> None:
    async with context.open_sandbox() as sandbox:
        await _require_pass(context, sandbox, _MODULES)
        result = await sandbox.run(context.make_job(_UNITTEST, ["TestX.test_x"]))
        if not result.clean or [record.outcome for record in select_case_records(result)] != ["failed"]:
            raise CheckFailed(f"a file from an earlier run shadowed a module: {describe_outcome(result)}")


async def _check_files(context: CheckContext) -> None:
    async with context.open_sandbox() as first, context.open_sandbox() as second:
        await _require_pass(context, first, _LEAVE)
        await _require_pass(context, second, _LOOK)
    async with context.open_sandbox() as later:
        await _require_pass(context, later, _LOOK)


async def _check_connections(context: CheckContext) -> None:
    async with context.open_sandbox() as first, context.open_sandbox() as second:
        listening = asyncio.create_task(_require_pass(context, first, _LISTEN, timeout=10))
        try:
            await _require_pass(context, second, _CALL)
        finally:
            await listening


async def _check_command(context: CheckContext) -> None:
    async with context.open_sandbox() as sandbox:
        result = await sandbox.run_command(["cat", "../" * 30 + "etc/shadow"], 5.0)
        if result.exit_code == 0:
            raise CheckFailed("a command read /etc/shadow")
        await require(expect_refusal, sandbox, context.make_job(wrap_in_case("open('/etc/shadow')")))


CHECKS = [
    Check("a daemon does not outlive its run", GROUP, _check_daemon),
    Check("files from earlier runs do not shadow modules", GROUP, _check_modules),
    Check("a sandbox cannot see another sandbox's files or IPC objects", GROUP, _check_files),
    Check("a sandbox cannot connect to another sandbox", GROUP, _check_connections),
    Check("a command is confined in the same way as a program", GROUP, _check_command),
]
