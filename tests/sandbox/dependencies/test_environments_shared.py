"""Programs cannot change a shared environment for the next program."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.sandbox.base import SandboxBackend
from tests.sandbox.conftest import make_job, passes, read_outcomes, run_once
from tests.sandbox.stores import publish_wheel, run_in_store
from tests.sandbox.wheelhouse import make_wheel

_COMMON = """
import ctypes, mmap, os, shared_bricks
FILE = shared_bricks.__file__
FOLDER = os.path.dirname(FILE)
ROOT = os.path.dirname(FOLDER)
CACHE = shared_bricks.__cached__

def assert_refused(act, *arguments):
    try:
        act(*arguments)
    except (OSError, ValueError):
        return
    raise AssertionError("not refused")

def write(path, flags):
    os.write(os.open(path, flags, 0o666), b"raise SystemExit")

def libc(name, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)
"""
ATTEMPTS = {
    "write_a_new_module": "assert_refused(write, FOLDER + '/new.py', os.O_WRONLY | os.O_CREAT)",
    "append": "assert_refused(write, FILE, os.O_WRONLY | os.O_APPEND)",
    "truncate": "assert_refused(write, FILE, os.O_RDWR | os.O_TRUNC)",
    "truncate_by_path": "assert_refused(os.truncate, FILE, 0)",
    "write_bytecode": "assert_refused(write, CACHE, os.O_RDWR | os.O_TRUNC)",
    "write_new_bytecode": "assert_refused(write, FOLDER + '/__pycache__/new.pyc', os.O_WRONLY | os.O_CREAT)",
    "add_a_pth": "assert_refused(write, ROOT + '/evil.pth', os.O_WRONLY | os.O_CREAT)",
    "add_an_environment": "assert_refused(os.mkdir, os.path.dirname(ROOT) + '/planted')",
    "chmod": "assert_refused(os.chmod, FILE, 0o777); assert_refused(os.chmod, ROOT, 0o777)",
    "utime": "assert_refused(os.utime, FILE, (0, 0))",
    "link_to_work": "assert_refused(os.link, FILE, '/work/linked'); assert not os.path.exists('/work/linked')",
    "link_to_tmp": "assert_refused(os.link, FILE, '/tmp/linked')",
    "rename": "assert_refused(os.rename, FILE, FILE + '2'); assert_refused(os.rename, ROOT, ROOT + '2')",
    "replace": "open('/work/x', 'w').close(); assert_refused(os.replace, '/work/x', FILE)",
    "unlink": "assert_refused(os.unlink, FILE); assert_refused(os.unlink, CACHE)",
    "symlink": "assert_refused(os.symlink, '/work', FOLDER + '/data')",
    "map_shared": "assert_refused(mmap.mmap, os.open(FILE, os.O_RDONLY), 1, mmap.MAP_SHARED, mmap.PROT_WRITE)",
    "reopen_for_writing": "assert_refused(open, '/proc/self/fd/%d' % os.open(FILE, os.O_RDONLY), 'r+b')",
    "through_the_first_process": "assert_refused(open, '/proc/1/root' + FILE, 'r+b')",
    "mount_over": "assert_refused(libc, 'mount', b'/work', ROOT.encode(), None, 4096, None)",
    "remount": "assert_refused(libc, 'mount', None, b'/envs', None, 32 | 4096, None)",
    "unmount": "assert_refused(libc, 'umount2', b'/envs', 2)",
    "namespace": "assert_refused(libc, 'unshare', 0x10000000 | 0x20000)",
}
_READS = "def test_a():\n    import shared_bricks\n    assert shared_bricks.COLOUR == 'red'\n"


@pytest.fixture(scope="module")
async def key(backend: SandboxBackend, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """An environment with one package."""
    name = f"shared{secrets.token_hex(8)}"
    folder: Path = tmp_path_factory.mktemp("wheels")
    wheel = make_wheel(folder, "shared_bricks", files={"shared_bricks/__init__.py": "COLOUR = 'red'\n"})
    await publish_wheel(backend, wheel, name)
    yield name
    await run_in_store(backend, f"rm -r {name}")


async def test_a_program_cannot_change_what_the_next_one_imports(backend: SandboxBackend, key: str) -> None:
    every_byte = f"find {key} -type f -exec cksum {{}} + | sort; find {key} -exec stat -c '%n %a %u %Y' {{}} + | sort"
    before = await run_in_store(backend, every_byte)
    assert "shared_bricks/__init__.py" in before
    cases = "".join(f"\ndef test_{name}():\n    {attempt}\n" for name, attempt in ATTEMPTS.items())
    program = make_job(_COMMON + cases, [f"test_{name}" for name in ATTEMPTS], timeout=20)
    result = await run_once(backend, program, key)
    messages = [(record.name, record.message) for record in result.records if record.message]
    assert read_outcomes(result) == dict.fromkeys((f"test_{name}" for name in ATTEMPTS), "passed"), messages
    assert await run_in_store(backend, every_byte) == before
    assert passes(await run_once(backend, make_job(_READS), key), "test_a")
