"""Programs that take all they can get: each ends with its run, and the sandbox goes on."""

from __future__ import annotations

from agent.sandbox.selfcheck.check import does_not_pass, passes, programs

GROUP = "resources"

_ENDS = {
    "a fork bomb that keeps trying": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "a bomb of threads": "import threading, time\n"
    "while True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: pass",
    "memory in one piece": "x = bytearray(1 << 40)",
    "memory in pieces": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "a full temporary folder": "with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "full shared memory": "with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "many files open": "x = []\nwhile True: x.append(open('/dev/null'))",
    "a flood of lines": "while True: print('x' * 70)",
    "an endless line": "import sys\nwhile True: sys.stdout.write('x' * 4096)",
    "a flood on both streams": "import os\nwhile True: os.write(1, b'\\0' * 4096); os.write(2, b'\\xff' * 4096)",
    "a busy loop": "while True: pass",
    "deep recursion": "def f(): f()\nimport sys\nsys.setrecursionlimit(10 ** 9)\nf()",
    "a loop that swallows every exception": "while True:\n    try:\n        while True: pass\n"
    "    except BaseException: pass",
    "signals ignored": "import signal, time\n"
    "for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)\n"
    "while True: time.sleep(1)",
    "a stop": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "its whole group stopped": "import os, signal\nos.fork()\nos.kill(0, signal.SIGSTOP)",
    "a clock that stands still": "import time\n"
    "time.time = time.monotonic = time.perf_counter = lambda: 0.0\ntime.sleep = lambda s: None\nwhile True: pass",
    "alarms and timers switched off": "import signal\nsignal.alarm(0)\nsignal.setitimer(signal.ITIMER_REAL, 0)\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\nwhile True: pass",
    "stacks asked for endlessly": "import faulthandler, sys\nwhile True: faulthandler.dump_traceback(file=sys.stderr)",
}

_LIMITED = {
    "the number of processes": """
import os, time
count = 0
try:
    while count < HOST["processes"] + 100:
        if os.fork() == 0: time.sleep(60)
        count += 1
except OSError: pass
assert 3 < count <= HOST["processes"] + 8, count
""",
    "the size of each folder": """
import errno, os
for folder in ("/tmp", os.getcwd(), "/dev/shm"):
    try:
        for n in range(HOST["files"] // (1 << 20) + 1):
            with open(f"{folder}/{n}", "wb") as f: f.write(bytes(1 << 20))
        raise AssertionError(f"{folder} is not limited")
    except OSError as error: assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
    for name in os.listdir(folder): os.unlink(f"{folder}/{name}")
""",
    "zombies by the thousand": """
import os
for _ in range(3000):
    try:
        if os.fork() == 0: os._exit(0)
    except OSError: break
""",
    "standard input, which is empty": "import sys\nassert sys.stdin.buffer.read() == b''",
}

_INODES = {
    "the number of files": """
import errno, os
try:
    for n in range(HOST["inodes"] + 1): open(f"/tmp/{n}", "w").close()
    raise AssertionError("as many files as it likes")
except OSError as error: assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
for entry in os.scandir("/tmp"): os.unlink(entry.path)
"""
}

_SUM_OF_MEMORY = {
    "memory over many processes": """
import os, time
children = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        x = b"x" * (HOST["memory"] // 4)
        time.sleep(2)
        os._exit(0)
    children.append(pid)
assert not any(os.waitpid(pid, 0)[1] for pid in children)
""",
}

_SUM_OF_CPU = {
    "more than its share of the processors": """
import os, time
started, until = time.monotonic(), time.monotonic() + 1.5
children = []
for _ in range(2 * os.cpu_count()):
    pid = os.fork()
    if pid == 0:
        while time.monotonic() < until: pass
        os._exit(0)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)
used = sum(os.times()[2:4]) / (time.monotonic() - started)
assert used < 1.25 * HOST["cpus"] + 0.1, f"{used:.2f} cores"
"""
}

CHECKS = [
    *programs(GROUP, _ENDS, does_not_pass, timeout=1.5),
    *programs(GROUP, _LIMITED, passes, timeout=30),
    *programs(GROUP, _INODES, passes, timeout=60, needs="inodes"),
    *programs(GROUP, _SUM_OF_MEMORY, does_not_pass, timeout=5, needs="memory"),
    *programs(GROUP, _SUM_OF_CPU, passes, timeout=10, needs="cpu"),
]
