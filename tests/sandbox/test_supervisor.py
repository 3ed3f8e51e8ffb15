"""The supervisor is protected, its children are unprivileged, and no process outlives its run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent.sandbox.base import Sandbox
from agent.sandbox.inside import build_supervisor_argv
from tests.sandbox.conftest import LIMITS, make_job, make_test_job, passes

CHILD = {
    "no capabilities": "status = open('/proc/self/status').read()\n"
    "for field in ('CapInh', 'CapPrm', 'CapEff', 'CapAmb'): assert field + ':\\t0000000000000000' in status\n"
    "assert 'NoNewPrivs:\\t1' in status",
    "nobody's user and group": "import os\nassert os.getresuid() == os.getresgid() == (65534,) * 3",
    "no groups": "import os\nassert set(os.getgroups()) <= {65534}",
    "its own /proc entries": "import os\nassert os.stat('/proc/self/mem').st_uid == os.getuid()",
    "the highest OOM score": "assert open('/proc/self/oom_score_adj').read() == '1000\\n'",
    "a session of its own": "import os\nassert os.getsid(0) == os.getpid()",
    "few descriptors": "import os\nassert sorted(map(int, os.listdir('/proc/self/fd')))[:-1] == [0, 1, 2, 3, 4]",
    "no inheritable descriptors": "import os\nassert [fd for fd in range(3, 50) if is_inherited(fd)] == []",
    "limits": "import resource as r\n"
    f"assert r.getrlimit(r.RLIMIT_FSIZE) == ({LIMITS.files},) * 2\n"
    f"assert r.getrlimit(r.RLIMIT_NOFILE) == ({LIMITS.open_files},) * 2\n"
    f"assert r.getrlimit(r.RLIMIT_DATA) == ({LIMITS.memory // 16 * 15},) * 2\n"
    "assert r.getrlimit(r.RLIMIT_CORE) == (0, 0)",
    "its working folder": "import os\nassert os.getcwd() == '/work' and os.listdir() == []",
    "a home and a user name": "import getpass, os, pwd\n"
    "assert os.path.expanduser('~') == '/tmp' and pwd.getpwuid(os.getuid()).pw_name == 'nobody'",
    "few variables": "import os\nassert set(os.environ) <= {'PATH', 'HOME', 'LANG', 'LC_ALL', 'TZ', 'PYTHONHASHSEED',"
    " 'PYTHONDONTWRITEBYTECODE', 'OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS', 'MPLBACKEND', 'PYTHONPATH'}, os.environ\n"
    "assert all(os.environ['PYTHONPATH'].split(':'))",
    "default signals": "import signal as s\nassert s.getsignal(s.SIGINT) is s.default_int_handler\n"
    "assert s.getsignal(s.SIGCHLD) == s.SIG_DFL",
    "child processes": "import subprocess, sys\n"
    "assert subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True).stdout == b'1\\n'",
    "a host name": "import socket\nassert socket.gethostname() == 'sandbox'",
    "no other processes": "import os\npids = [int(n) for n in os.listdir('/proc') if n.isdigit()]\n"
    "assert sorted(pids) == [1, os.getpid()], pids",
    "an empty main module": "import __main__\nassert not hasattr(__main__, 'WORK')",
}
PRELUDE = (
    "def is_inherited(fd):\n    import os\n    try: return os.get_inheritable(fd)\n    except OSError: return False\n"
)


@pytest.mark.parametrize("body", CHILD.values(), ids=CHILD)
async def test_a_child_process_has(shared_sandbox: Sandbox, body: str) -> None:
    result = await shared_sandbox.run(make_job(PRELUDE + make_test_job(body).program))
    assert passes(result, "test_a"), (result.records, result.stderr)


async def test_sets_of_strings_have_a_stable_order(shared_sandbox: Sandbox) -> None:
    program = "def test_a(): print(hash('a'), *{'one', 'two', 'three', 'four', 'five', 'six', 'seven'})"
    first, second = [await shared_sandbox.run(make_job(program)) for _ in range(2)]
    assert passes(first, "test_a")
    assert first.stdout == second.stdout


async def test_a_stopped_program_is_killed(shared_sandbox: Sandbox) -> None:
    result = await shared_sandbox.run(
        make_test_job("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", timeout=0.5)
    )
    assert (result.timed_out, result.exit_code, result.signal) == (True, None, 9)


async def test_exit_codes_and_signals_are_distinguished(shared_sandbox: Sandbox) -> None:
    exited = await shared_sandbox.run(make_test_job("import os\nos._exit(7)"))
    assert (exited.exit_code, exited.signal, exited.clean) == (7, None, False)
    killed = await shared_sandbox.run(make_test_job("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"))
    assert (killed.exit_code, killed.signal, killed.clean) == (None, 15, False)


async def test_a_timeout_keeps_the_earlier_records_and_the_stack(shared_sandbox: Sandbox) -> None:
    program = "import time\ndef test_a(): pass\ndef wait():\n    time.sleep(60)\ndef test_b(): wait()"
    result = await shared_sandbox.run(make_job(program, ["test_a", "test_b"], timeout=0.5))
    assert [record.kind for record in result.records] == ["start", "case", "start"]
    assert [(frame.line, frame.function) for frame in result.hang if frame.file == "program.py"] == [
        (5, "test_b"),
        (4, "wait"),
    ]


HANGS = {
    "thread": "import threading\nt = threading.Thread(target=endless)\nt.start(); t.join()",
    "pool": "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(endless).result()",
    "task": "import asyncio\nasyncio.run(waiting())",
    "tasks": "import asyncio\nasync def go(): await asyncio.gather(waiting(), waiting())\nasyncio.run(go())",
    "async generator": "import asyncio\nasync def go():\n    async for x in stepping(): pass\nasyncio.run(go())",
}
ENDLESS = """import asyncio
def endless():
    while True: pass
async def waiting():
    await asyncio.sleep(60)
async def stepping():
    await waiting()
    yield 1
"""


@pytest.mark.parametrize("body", HANGS.values(), ids=HANGS)
async def test_a_hang_shows_where_threads_and_tasks_are(shared_sandbox: Sandbox, body: str) -> None:
    result = await shared_sandbox.run(make_job(ENDLESS + make_test_job(body).program, timeout=2.0))
    assert result.timed_out
    last = [[frame for frame in stack if frame.file == "program.py"][-1:] for stack in result.hang_beside]
    assert {(frame.line, frame.function) for (frame,) in filter(None, last)} & {(3, "endless"), (5, "waiting")}
    main = [frame.function for frame in result.hang if frame.file == "program.py"]
    assert main == ["test_a"]


async def test_a_patched_asyncio_does_not_hide_the_main_threads_hang(shared_sandbox: Sandbox) -> None:
    body = "import asyncio\nasyncio.tasks.all_tasks = None\nasyncio.run(waiting())"
    result = await shared_sandbox.run(make_job(ENDLESS + make_test_job(body).program, timeout=2.0))
    assert (result.timed_out, result.signal, result.hang_beside) == (True, 9, ())
    assert [frame.function for frame in result.hang if frame.file == "program.py"] == ["test_a"]


async def test_stacks_written_by_a_program_are_limited(shared_sandbox: Sandbox) -> None:
    stack = b'X (most recent call first):\n  File "program.py", line 1 in f\n'
    body = f"import os\nwhile True: os.write(4, {stack!r} * 1000)"
    result = await shared_sandbox.run(make_test_job(body, timeout=0.5))
    assert (result.timed_out, result.clean, len(result.records)) == (True, False, 1)
    assert len(result.hang_beside) == 32


async def test_a_truncated_report_is_not_tampering(shared_sandbox: Sandbox) -> None:
    body = "import os\nos.write(3, (1000).to_bytes(4, 'big') + b'x')\nwhile True: pass"
    result = await shared_sandbox.run(make_test_job(body, timeout=0.3))
    assert [record.kind for record in result.records] == ["start"]


async def test_commands_have_the_same_limits(shared_sandbox: Sandbox) -> None:
    python = "import os, resource, sys; print(os.getuid(), resource.getrlimit(resource.RLIMIT_FSIZE)[0], os.getcwd())"
    process = await shared_sandbox.run_command(["python3", "-c", python], 10)
    assert (process.exit_code, process.output) == (0, f"65534 {LIMITS.files} /work\n")
    flood = await shared_sandbox.run_command(["yes"], 10)
    assert (flood.exit_code, flood.timed_out, len(flood.output)) == (None, False, LIMITS.output)
    mixed = await shared_sandbox.run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 10)
    assert (mixed.exit_code, mixed.output) == (3, "out\nerr\n")
    assert (await shared_sandbox.run_command(["no-such-command"], 10)).exit_code == 127
    assert (await shared_sandbox.run_command(["a\0b"], 10)).exit_code == 127
    assert (await shared_sandbox.run_command(["sh", "-c", "read x; echo [$x]"], 10)).output == "[]\n"


async def test_background_processes_of_a_command_are_killed(shared_sandbox: Sandbox) -> None:
    await shared_sandbox.run_command(["sh", "-c", "sleep 600 & sleep 600 & exit 0"], 10)
    check = "import os\nassert sorted(int(n) for n in os.listdir('/proc') if n.isdigit()) == [1, os.getpid()]"
    assert passes(await shared_sandbox.run(make_test_job(check)), "test_a")


def test_the_supervisor_requires_pid_1() -> None:
    argv = build_supervisor_argv(sys.executable, user=None, work="/")
    process = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (1, "")
    assert "PID namespace" in process.stderr
