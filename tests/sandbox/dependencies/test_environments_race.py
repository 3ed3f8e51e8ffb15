"""Processes that build one environment at once publish it once, and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from pathlib import Path

from agent.sandbox.base import SandboxBackend
from tests.sandbox.conftest import VOLUME, own_store
from tests.sandbox.stores import in_store, installer_of
from tests.sandbox.wheel import make_wheel

_BUILD = """
import asyncio, json, sys
from pathlib import Path
from tests.sandbox import conftest

conftest.VOLUME, conftest.own_store = sys.argv[4], lambda: Path(sys.argv[5])

async def main():
    backend = await conftest.start(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    lock = await backend.installer.install([Path(sys.argv[2])], sys.argv[3])
    print(json.dumps(lock), flush=True)
    await backend.close()

asyncio.run(main())
"""


async def builder(backend: SandboxBackend, wheel: Path, key: str) -> asyncio.subprocess.Process:
    """Return a process that is ready to build and waits for a line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _BUILD, backend.name, str(wheel), key, VOLUME, str(own_store()),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def test_two_processes_that_build_one_environment_publish_one(backend: SandboxBackend, tmp_path: Path) -> None:
    key = f"race{secrets.token_hex(8)}"
    wheel = make_wheel(tmp_path, "bricks", {"bricks.py": "COLOUR = 'red'\n"})
    builders = await asyncio.gather(*(builder(backend, wheel, key) for _ in range(2)))
    ended = await asyncio.gather(*(process.communicate(b"go\n") for process in builders))
    assert [process.returncode for process in builders] == [0, 0]
    assert [json.loads(out) for out, _ in ended] == [["bricks==1.0"]] * 2
    assert await installer_of(backend).installed(key) == ("bricks==1.0",)
    assert (await in_store(backend, f"ls -A | grep {key}")).split() == [key]
    assert await in_store(backend, f"ls -A .staging ../staging 2>/dev/null | grep {key} || true") == ""
    await in_store(backend, f"rm -r {key}")
