"""Programs in modules have the same results in forks as in fresh processes, and runs cannot change later runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Any

import pytest

from agent.languages.base import Module, Program
from agent.languages.python.functions import find_functions
from agent.languages.python.language import PythonLanguage
from agent.sandbox.base import RunResult, SandboxBackend
from agent.sandbox.session import SandboxSession
from agent.types import Origin
from tests.sandbox import traps
from tests.sandbox.conftest import passes
from tests.sandbox.test_modules import find_origin
from tests.sandbox.traps import TRAPS
from tests.sandbox.wheelhouse import make_wheel, use_folder

PYTHON = PythonLanguage()
WORK = "\ndef work(x):\n    return HELPER(x) + 1\n"
HELPER = "def HELPER(x): return x * 2\n"
BOX = """\
HELPERS = [1]
class Box:
    def __init__(self):
        self.x = 1

    def get(self):
        return self.x + len(HELPERS)
"""
FORGE = """\
import _blake2, os, sys
KEY = None

def work(x):
    if KEY is None:
        raise ValueError(x)
    records = [("case", "test_a", "passed"), ("start", "test_b", ""), ("case", "test_b", "passed"), ("end", "", "")]
    for number, record in enumerate(records, 2):
        parts = [part.encode() for part in (*record, "", "")]
        content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        tag = _blake2.blake2b(number.to_bytes(8, "big") + content, digest_size=16, key=KEY).digest()
        os.write(3, (16 + len(content)).to_bytes(4, "big") + tag + content)
    os._exit(0)

def spy(fd, size, read=os.read):
    global KEY
    data = read(fd, size)
    if size == 33:
        KEY = data[:32]
    return data

"""
"""A module that reads the message of the fork server's client, and forges a report with the key in the message."""
FILES = {
    "forked/__init__.py": "",
    "forked/hook.py": f"{FORGE}os.register_at_fork(after_in_child=lambda: setattr(os, 'read', spy))\n",
    "forked/audit.py": f"{FORGE}sys.addaudithook(lambda name, _: name == 'os.scandir' and setattr(os, 'read', spy))\n",
    "forked/plain.py": f"COUNTS = []\n{HELPER}{WORK}",
    "forked/method.py": BOX,
    "forked/decorator.py": "\ndef work(x):\n    return lambda: 1\n\n@work\ndef made(): pass\n",
    "forked/thread.py": f"import _thread, time\n_thread.start_new_thread(time.sleep, (9,)){WORK}",
    "forked/opened.py": f"file = open('/dev/zero'){WORK}",
    "forked/shared.py": f"import mmap\nMEMORY = mmap.mmap(-1, 8){WORK}",
    "forked/process.py": f"import subprocess\nsubprocess.Popen(['sleep', '9']){WORK}",
    "forked/timer.py": f"import signal\nsignal.setitimer(signal.ITIMER_REAL, 60){WORK}",
    "forked/files.py": f"open('/tmp/left', 'w').close(){WORK}",
    "forked/patch.py": f"import os\nos.fork = None{WORK}",
    "forked/derived.py": f"{WORK}\nKEPT = type(work)(work.__code__.replace(co_name='kept'), globals())\n",
    "forked/running.py": "\ndef work(x):\n    yield x\n\nSTARTED = work(1)\n",
    "forked/seeded.py": f"import random\nrandom.seed(4){WORK}",
    "forked/random_numbers.py": f"import random\nrandom.random(){WORK}",
    "forked/frozen.py": f"import gc{WORK}gc.freeze()\n",
    "forked/code.py": f"{WORK}KEPT = work.__code__\n",
    "forked/code_in_tuple.py": f"{WORK}KEPT = [(work.__code__,)]\n",
    "forked/code_in_dict.py": f"{WORK}KEPT = {{1: {{1: work.__code__}}}}\n",
    "forked/heavy.py": f"DATA = bytearray(b'x') * (60 << 20)\n{HELPER}{WORK}",
    "forked/framework.py": f"import pytest, unittest.mock\n{HELPER}{WORK}",
    "forked/noisy.py": f"print('importing' * 20000)\n{HELPER}{WORK}",
}
CALL = "assert work(1) == 3"
PIDS = "import os\npids = [int(n) for n in os.listdir('/proc') if n.isdigit() and int(n) not in (1, os.getpid())]\n"
BOMB = """\
import os, time
if os.fork() == 0:
    while True:
        try:
            if os.fork() == 0: os.setsid()
            else: os.kill(-1, 18)
            time.sleep(.001)
        except OSError: pass
time.sleep(.2)"""
FRESH = f"""\
{PIDS}
assert os.getppid() == 1 and os.getsid(0) == os.getpid()
assert sorted(os.listdir('/proc/self/fd'))[:-1] == list('01234') and os.access('/proc/self/mem', os.W_OK)
import _signal
assert os.listdir('/work') == [] and not _signal.pthread_sigmask(0, [])"""
PORT = """\
import socket
s = socket.create_server(('127.0.0.1', 8123))
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
c = socket.create_connection(('127.0.0.1', 8123))
s.accept()[0].close()
c.close()"""
READ = f"""\
{PIDS}
for pid in pids + [1]:
    for name in ('mem', 'environ', 'maps', 'fd', 'cwd/'):
        path = f'/proc/{{pid}}/{{name}}'
        try: os.listdir(path) if name in ('fd', 'cwd/') else open(path, 'rb').read(1)
        except OSError: continue
        raise AssertionError(name)"""
LIMIT = f"""\
{PIDS}
import resource
for pid in pids:
    try: resource.prlimit(pid, resource.RLIMIT_NOFILE, (9, 9))
    except OSError: continue
    raise AssertionError(pid)"""
CROWD = """\
import forked.heavy as m, subprocess, sys
work(1)
for n in range(0, 60 << 20, 4096): m.DATA[n] = 1
subprocess.check_call([sys.executable, '-c', "b'x' * (140 << 20)"])"""
"""Needs less than the sandbox's memory, but more than what the fork server leaves."""
SAME = {
    "passes": CALL,
    "fails": "assert work(1) == 4",
    "raises": "work(None)",
    "exits": "import os\nos._exit(0)",
    "exits like a process that did not start": "import os\nos._exit(70)",
    "dies": "import os\nos.kill(os.getpid(), 9)",
    "times out": "import time\ntime.sleep(9)",
    "takes too much memory": "list(range(10 ** 9))",
    "floods its output": "while True: print('x' * 10000)",
    "never calls the snippet": "assert True",
    "replaces the snippet": "import forked.plain as m\nm.work = lambda x: 3\nassert m.work(1) == 3",
    "changes assertions": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None",
    "forges a record": "import os\nos.write(3, b'\\0\\0\\0\\x20' + b'x' * 32)\nos._exit(0)",
    "starts as a fresh process": FRESH,
    "starts processes": "import os, sys\nassert os.system(sys.executable + ' -c \"import test_program\"') == 0",
    "leaves files": "import os\nos.makedirs('/work/a/b')\nos.symlink('a', '/tmp/l')\nos.mkfifo('/tmp/f')",
    "leaves an unreadable folder": "import os\nos.makedirs('/tmp/a/b')\nos.chmod('/tmp/a', 0)",
    "leaves a used port": PORT,
    "leaves shared memory": "import ctypes\nassert ctypes.CDLL(None).shmget(77, 4096, 0o3600) != -1",
    "leaves a message queue": "import ctypes\nassert ctypes.CDLL(None).mq_open(b'/q', 0o302, 0o600, None) == -1",
    "leaves processes": "import subprocess as s\nfor _ in range(9): s.Popen(['sleep', '9'], preexec_fn=s.os.setsid)",
    "leaves a fork bomb": BOMB,
    "changes data": "import forked.plain as m\nassert not m.COUNTS\nm.COUNTS.append(1)",
    "changes functions": "from forked.plain import HELPER as h\nassert h(1) == 2\nh.__code__ = (lambda x: 5).__code__",
    "changes modules": "import json\nassert json.dumps(1) == '1'\njson.dumps = None",
    "kills others": f"{PIDS}\nfor pid in pids: os.kill(pid, 9)",
    "stops others": f"{PIDS}\nfor pid in pids: os.kill(pid, 19)",
    "signals others": f"{PIDS}\nfor pid in pids + [1]:\n    for number in (2, 10, 12, 15, 34): os.kill(pid, number)",
    "reads others": READ,
    "limits others": LIMIT,
    "finds the folder for temporary files": "import tempfile\nassert tempfile.gettempdir() == '/tmp'",
}
"""Programs. The test and the sentinel run are repeated, so that leftovers of a run would affect the next."""
LOST = {
    "leaves an unreadable folder",
    "leaves a used port",
    "leaves shared memory",
    "kills others",
    "signals others",
}
"""Programs after which the sandbox does not fork again."""
FORGERY = "forged pass, no sentinel"
REFUSED = (
    "thread", "opened", "shared", "process", "timer", "files", "patch", "derived", "running", "seeded",
    "random_numbers", "frozen", "code", "code_in_tuple", "code_in_dict",
)  # fmt: skip


@pytest.fixture(scope="module")
async def environment(backend: SandboxBackend) -> AsyncIterator[str]:
    """The key of an environment with the package."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        make_wheel(Path(folder), "forked", "1.0", files={**traps.FILES, **FILES})
        use_folder(patch, Path(folder))
        built = await backend.environments.build(["forked==1.0"])
    yield built.key
    backend.environments.release(built.key)


def list_jobs(key: str, module: str, body: str, timeout: float = 5.0) -> list[Any]:
    """Return the jobs of the test and the sentinel run of a program with two cases, of which one does nothing."""
    function = next(f for f in find_functions(FILES[f"forked/{module}.py"]) if f.name in ("work", "get"))
    origin = Origin(
        repository="forked",
        commit="1.0",
        name=function.name,
        module=f"forked.{module}",
        class_name=function.class_name,
        lines=(function.start_line, function.end_line),
    )
    text = f"from forked.{module} import {function.class_name or 'work'}\n\ndef test_a():\n{indent(body, '    ')}\n"
    snippet = PYTHON.inspect(function.code or "")
    program = PYTHON.insert_in_module(text + "\ndef test_b(): pass\n", snippet, Module(origin, ""))
    return list_runs(program, key, timeout)


def list_runs(program: Program, key: str, timeout: float) -> list[Any]:
    return [make(program, environment=key, timeout=timeout) for make in (PYTHON.job, PYTHON.sentinel_job)]


async def run(backend: SandboxBackend, jobs: list[Any], forks: bool) -> tuple[list[RunResult], bool]:
    """Run jobs as the pipeline does. Returns their results, and whether the last sandbox was still forking."""
    session, results = SandboxSession(backend, forks=forks), []
    for job in jobs:
        await session.refresh()
        results.append(await session.run(job))
    await session.close()
    return results, session.forks


def summarise(result: RunResult) -> tuple[Any, ...]:
    records = [(record.kind, record.name, record.outcome, record.error_type) for record in result.records]
    frames = [frame.function for frame in result.hang[-3:]]
    return result.exit_code, result.signal, result.timed_out, result.limit, records, frames


async def compare(backend: SandboxBackend, jobs: list[Any]) -> tuple[list[RunResult], bool]:
    """Check that forks have the results of fresh processes. Returns the results and whether there were forks."""
    fresh, _ = await run(backend, jobs, forks=False)
    results, forked = await run(backend, jobs, forks=True)
    assert [summarise(result) for result in results] == [summarise(result) for result in fresh]
    return results, forked


@pytest.mark.parametrize("name", SAME)
async def test_a_program_has_the_same_results_in_forks(backend: SandboxBackend, environment: str, name: str) -> None:
    timeout = 1.5 if name == "times out" else 5.0
    _, forked = await compare(backend, list_jobs(environment, "plain", SAME[name], timeout) * 2)
    assert forked == (name not in LOST) or name == "leaves a fork bomb"


@pytest.mark.parametrize(
    ("module", "body"),
    [
        ("plain", CALL),
        ("method", "assert Box().get() == 2"),
        ("decorator", "from forked.decorator import made\nmade()"),
    ],
)
async def test_the_sentinel_is_in_every_function(
    backend: SandboxBackend, environment: str, module: str, body: str
) -> None:
    results, forked = await compare(backend, list_jobs(environment, module, body))
    assert forked
    assert "SnippetEntered" in {record.error_type for record in results[1].records}


@pytest.mark.parametrize("backend", ["docker"], indirect=True)  # its image has pytest
@pytest.mark.parametrize("module", ["plain", "framework"])
@pytest.mark.parametrize("prefix", ["", "import pytest\n"])
async def test_programs_with_pytest_have_the_same_results_in_forks(
    backend: SandboxBackend, environment: str, module: str, prefix: str
) -> None:
    jobs = list_jobs(environment, module, f"{prefix}work(1)")
    assert (await compare(backend, jobs))[1]
    assert bool(prefix) == ("pytest" in jobs[0].options)


async def test_a_fork_that_lacks_memory_is_repeated(backend: SandboxBackend, environment: str) -> None:
    jobs = list_jobs(environment, "heavy", CROWD)
    results, _ = await compare(backend, jobs)
    assert passes(results[0], "test_a", "test_b")


@pytest.mark.parametrize("name", REFUSED)
async def test_forks_are_not_used(backend: SandboxBackend, environment: str, name: str) -> None:
    _, forked = await compare(backend, list_jobs(environment, name, "work(1)"))
    assert not forked


async def test_forks_have_their_own_random_numbers(backend: SandboxBackend, environment: str) -> None:
    body = "import random, tempfile\nprint(random.random(), tempfile.mkdtemp())"
    results, forked = await run(backend, list_jobs(environment, "plain", body), forks=True)
    first, second = (result.stdout.split() for result in results)
    assert forked
    assert all(left != right for left, right in zip(first, second, strict=True))


@pytest.mark.parametrize("module", ["hook", "audit"])
async def test_a_module_cannot_forge_reports_of_forks(backend: SandboxBackend, environment: str, module: str) -> None:
    results, forked = await run(backend, list_jobs(environment, module, "work(1)") * 2, forks=True)
    assert forked
    assert not any(passes(result, "test_a", "test_b") for result in results)


async def test_an_import_may_print(backend: SandboxBackend, environment: str) -> None:
    results, forked = await compare(backend, list_jobs(environment, "noisy", "assert work(1) == 2"))
    assert forked
    assert results[0].stdout.startswith("importing")


async def test_other_jobs_may_come_between(backend: SandboxBackend, environment: str) -> None:
    jobs = list_jobs(environment, "plain", CALL)
    others = list_jobs(environment, "method", "assert Box().get() == 2")
    session = SandboxSession(backend, forks=True)
    for job in (jobs[0], others[1], jobs[1], others[0], jobs[0]):
        assert (await session.run(job)).exit_code == 0
    assert (await session.run_command(["mkdir", "/work/a"], 5)).exit_code == 0
    (job, _) = list_jobs(environment, "plain", "import os\nassert os.listdir('/work') == ['a']")
    assert passes(await session.run(job), "test_a", "test_b")
    assert not session.forks
    await session.close()


@pytest.mark.parametrize("name", sorted({*TRAPS} - {FORGERY, "no import with sentinels", "large module"}))
async def test_a_trap_has_the_same_results_in_forks(backend: SandboxBackend, environment: str, name: str) -> None:
    snippet, origin = find_origin(TRAPS[name])
    program = PYTHON.insert_in_module(TRAPS[name].program, snippet, Module(origin, ""))
    await compare(backend, list_runs(program, environment, 3))


async def test_a_module_cannot_forge_passes_in_test_runs_only(backend: SandboxBackend, environment: str) -> None:
    snippet, origin = find_origin(TRAPS[FORGERY])
    program = PYTHON.insert_in_module(TRAPS[FORGERY].program, snippet, Module(origin, ""))
    results, forked = await run(backend, list_runs(program, environment, 3), forks=True)
    assert forked
    assert all(passes(result, "test_a") for result in results)  # so nothing exercises the snippet
