"""Checks whose programs exhaust resources, access protected files, or make system calls that are used for escapes."""

from __future__ import annotations

from agent.sandbox.selfcheck.check import (
    expect_no_pass,
    expect_pass,
    expect_refusal,
    make_checks,
)

# The sandbox must stop each of these programs and keep working.
_ENDS = {
    "a fork bomb that retries": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "a thread bomb": "import threading, time\n"
    "while True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: pass",
    "one huge allocation": "x = bytearray(1 << 40)",
    "many small allocations": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "a full temporary folder": "with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "full shared memory": "with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "many open files": "x = []\nwhile True: x.append(open('/dev/null'))",
    "a flood of output lines": "while True: print('x' * 70)",
    "an endless line": "import sys\nwhile True: sys.stdout.write('x' * 4096)",
    "floods on both output streams": "import os\nwhile True: os.write(1, b'\\0' * 4096); os.write(2, b'\\xff' * 4096)",
    "a busy loop": "while True: pass",
    "deep recursion": "def f(): f()\nimport sys\nsys.setrecursionlimit(10 ** 9)\nf()",
    "a loop that swallows every exception": "while True:\n    try:\n        while True: pass\n"
    "    except BaseException: pass",
    "ignored signals": "import signal, time\n"
    "for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)\n"
    "while True: time.sleep(1)",
    "a stopped process": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "a stopped process group": "import os, signal\nos.fork()\nos.kill(0, signal.SIGSTOP)",
    "a frozen clock": "import time\n"
    "time.time = time.monotonic = time.perf_counter = lambda: 0.0\ntime.sleep = lambda s: None\nwhile True: pass",
    "disabled alarms and timers": "import signal\nsignal.alarm(0)\nsignal.setitimer(signal.ITIMER_REAL, 0)\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\nwhile True: pass",
    "endless stack dumps": "import faulthandler, sys\nwhile True: faulthandler.dump_traceback(file=sys.stderr)",
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
    for name in filter(str.isdecimal, os.listdir(folder)): os.unlink(f"{folder}/{name}")
""",
    "thousands of zombies": """
import os
for _ in range(3000):
    try:
        if os.fork() == 0: os._exit(0)
    except OSError: break
""",
    "empty standard input": "import sys\nassert sys.stdin.buffer.read() == b''",
}

_INODES = {
    "the number of files": """
import errno, os
try:
    for n in range(HOST["inodes"] + 1): open(f"/tmp/{n}", "w").close()
    raise AssertionError("the number of files is not limited")
except OSError as error: assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
for entry in os.scandir("/tmp"): os.unlink(entry.path)
"""
}

_SUM_OF_MEMORY = {
    "the total memory of many processes": """
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
    "the total CPU time of many processes": """
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

_WRITES = {
    "system programs": "open('/usr/bin/x', 'w')",
    "system configuration": "open('/etc/passwd', 'a')",
    "the root folder": "open('/x', 'w')",
    "devices": "open('/dev/x', 'w')",
    "the environment store": "open('/envs/x', 'w')",
    "the interpreter's modules": "import json\nopen(json.__file__, 'r+')",
    "a kernel setting": "open('/proc/sys/kernel/hostname', 'w').write('x')",
    "the core pattern": "open('/proc/sys/kernel/core_pattern', 'w').write('|/x')",
    "handlers for other executable formats": "open('/proc/sys/fs/binfmt_misc/register', 'w').write(':x:M::x::/x:')",
    "a cgroup release agent": "import glob\n"
    "for p in glob.glob('/sys/fs/cgroup/**/release_agent', recursive=True) or ['/no/x']: open(p, 'w').write('/x')",
    "the control group that limits the sandbox": "import glob\n"
    "names = ('cgroup.procs', 'memory.max', 'memory.limit_in_bytes', 'pids.max', 'cpu.max')\n"
    "for n in names:\n    for p in glob.glob(f'/sys/fs/cgroup/**/{n}', recursive=True):\n"
    "        with open(p, 'w') as f: f.write('0')\n        raise AssertionError(p)\nopen('/no/x')",
    "the power state of the machine": "open('/sys/power/state', 'w').write('mem')",
    "the SysRq trigger": "open('/proc/sysrq-trigger', 'w').write('b')",
    "the kernel's memory": "open('/dev/mem', 'rb')",
    "the kernel log": "open('/dev/kmsg', 'rb')",
    "a raw device": "import os, stat\nos.mknod('sda', stat.S_IFBLK | 0o666, os.makedev(8, 0))",
    "PID 1's files": "import os\nos.listdir('/proc/1/root/')",
    "PID 1's memory": "open('/proc/1/mem', 'rb')",
    "PID 1's input": "open('/proc/1/fd/0', 'rb')",
    "PID 1's output": "open('/proc/1/fd/1', 'wb')",
    "PID 1's environment": "open('/proc/1/environ', 'rb')",
    "PID 1's memory map": "open('/proc/1/maps', 'rb')",
}

_HOST = {
    "links to host files do not work": """
import os
for name in ("stdout", "result.json", "program.py", "report"):
    for make in (os.symlink, os.link):
        try: make(HOST["canary"], name)
        except OSError: continue
        try:
            with open(name, "w") as f: f.write("broken")
        except OSError: pass
        os.unlink(name)
os.mkfifo("fifo")
""",
    "no path leads out of the sandbox": """
import os
for way in ("../" * 30, "/proc/self/root/" + "../" * 30, "/proc/1/cwd/" + "../" * 30, "/proc/self/cwd/" + "../" * 30):
    try:
        with open(way + HOST["canary"][1:], "w") as f: f.write("broken")
    except OSError: pass
    assert not os.path.exists(way + HOST["canary"][1:])
""",
    "file names in code objects do not open host files": """
import os
evil = compile("raise OSError('x')", "../" * 30 + HOST["canary"][1:], "exec")
try: exec(evil)
except OSError: pass
""",
    "the host's secrets are invisible": """
import os
secret = HOST["reversed_secret"][::-1].encode()
for number in filter(str.isdecimal, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            with open(f"/proc/{number}/{name}", "rb") as f: assert secret not in f.read(), (number, name)
        except OSError: pass
assert secret.decode() not in os.environ.values()
""",
    "host processes cannot be seen or killed": """
import os
try: os.kill(HOST["pid"], 9)
except OSError: pass
assert len(list(filter(str.isdecimal, os.listdir("/proc")))) < 10, os.listdir("/proc")
""",
    "container engine and message bus sockets do not exist": """
import os
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
             "/run/dbus/system_bus_socket", "/run/systemd/private", "/tmp/.X11-unix"):
    assert not os.path.exists(path), path
""",
    "the host's user and home folders are hidden": """
import os, socket
assert os.listdir("/root") == [] if os.access("/root", os.R_OK) else True
assert not os.path.exists("/home") or os.listdir("/home") == []
assert not os.path.exists("/root/.ssh") and "SSH_AUTH_SOCK" not in os.environ
assert 0 not in (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups())
""",
    "setuid programs grant no privileges": """
import os, shutil, subprocess
shutil.copy(shutil.which("id"), "id")
os.chmod("id", 0o6755)
assert subprocess.run(["./id", "-u"], capture_output=True, text=True).stdout == f"{os.getuid()}\\n" != "0\\n"
su = subprocess.run(["su", "-c", "id -u"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
assert su.returncode != 0 and su.stdout == ""
""",
    "the program has no capabilities": """
with open("/proc/self/status") as f: lines = dict(line.split(":", 1) for line in f)
for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"): assert int(lines[name], 16) == 0, (name, lines[name])
assert lines["NoNewPrivs"].strip() == "1" and lines["Seccomp"].strip() == "2", lines
""",
}

_ATTEMPT = """
import socket
def attempt(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s:
        s.settimeout(0.3)
        try:
            s.connect(address)
            if kind == socket.SOCK_DGRAM: s.send(b"x")
        except OSError: return
    raise AssertionError(address)
"""

_NETWORK = {
    "the host and its local network": f"""{_ATTEMPT}
for host in ("127.0.0.1", "172.17.0.1", "192.168.65.1", "10.0.0.1", "10.0.2.2"):
    for port in (HOST["tcp"], 22, 80, 443, 2375): attempt(socket.AF_INET, (host, port))
for host in ("172.17.0.1", "10.0.0.1"): attempt(socket.AF_INET, (host, HOST["udp"]), socket.SOCK_DGRAM)
""",
    "cloud metadata services": f"""{_ATTEMPT}
for host in ("169.254.169.254", "100.100.100.200"): attempt(socket.AF_INET, (host, 80))
attempt(socket.AF_INET6, ("fd00:ec2::254", 80))
""",
    "the internet over IPv4": f"""{_ATTEMPT}
for host in ("1.1.1.1", "8.8.8.8"):
    for port in (53, 80, 443): attempt(socket.AF_INET, (host, port))
    attempt(socket.AF_INET, (host, 53), socket.SOCK_DGRAM)
""",
    "the internet over IPv6": f"""{_ATTEMPT}
attempt(socket.AF_INET6, ("::1", HOST["tcp"]))
attempt(socket.AF_INET6, ("2606:4700:4700::1111", 53))
attempt(socket.AF_INET6, ("ff02::1", 53), socket.SOCK_DGRAM)
""",
    "name resolution": """
import socket
for name in ("example.org", "pypi.org", "metadata.google.internal"):
    try: found = socket.getaddrinfo(name, 80)
    except OSError: continue
    raise AssertionError(found)
""",
    "the host names that container engines define": f"""{_ATTEMPT}
for name in ("host.docker.internal", "host.containers.internal", "gateway.docker.internal"):
    try: found = socket.getaddrinfo(name, HOST["tcp"], type=socket.SOCK_STREAM)
    except OSError: continue
    for family, _, _, _, address in found: attempt(family, address)
""",
    "Unix sockets of the host": f"""{_ATTEMPT}
attempt(socket.AF_UNIX, chr(0) + HOST["abstract"])
attempt(socket.AF_UNIX, HOST["socket"])
""",
    "any interface except lo": """
with open("/proc/net/dev") as f: assert [line.split(":")[0].strip() for line in f][2:] == ["lo"]
""",
}

_REQUESTS = {
    "switching to another user": "import os\nos.setuid(0)",
    "changing the root folder": "import os\nos.chroot('/work')",
    "setting the clock": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)",
    "setting the host name": "import socket\nsocket.sethostname('x')",
    "a raw socket": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "a packet socket": "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "a higher priority": "import os\nos.nice(-5)",
    "lower limits for PID 1": "import resource\nresource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))",
    "a lower priority for PID 1": "import os\nos.setpriority(os.PRIO_PROCESS, 1, 19)",
    "a lower priority for all of the user's processes": "import os\nos.setpriority(os.PRIO_USER, 0, 19)",
    "another processor for PID 1": "import os\nos.sched_setaffinity(1, {0})",
    "a higher limit": "import resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
    "try: resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))\n"
    "except ValueError: raise OSError('refused')",
    "killing PID 1": "import os, time\n"
    "for s in (9, 19, 15, 6): os.kill(1, s)\ntime.sleep(0.2)\nraise OSError('refused')",
}

# The kernel lets every user create these sockets, so the sandbox needs a filter that refuses them.
_SOCKETS = {
    "a hypervisor socket": "import socket\nsocket.socket(40, socket.SOCK_STREAM)",
    "a kernel crypto socket": "import socket\nsocket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
}

# System call numbers on x86-64 and arm64. Flags: 0x10000000 for a user namespace, 0x20000 for a mount namespace.
_CALLS = {
    "a user namespace": ((272, 0x10000000), (97, 0x10000000)),
    "a mount namespace": ((272, 0x20000), (97, 0x20000)),
    "a child process in a new user namespace": ((56, 0x10000011, 0, 0, 0, 0), (220, 0x10000011, 0, 0, 0, 0)),
    "a child process created with clone3, whose flags the filter cannot read": ((435, 0, 0), (435, 0, 0)),
    "entering a namespace": ((308, 0, 0), (268, 0, 0)),
    "a mount": ((165, b"none", b"/work", b"tmpfs", 0, 0), (40, b"none", b"/work", b"tmpfs", 0, 0)),
    "a mount through the new mount API (fsopen, fsmount)": ((430, b"tmpfs", 0), (430, b"tmpfs", 0)),
    "a new root folder for all processes (pivot_root)": ((155, b"/work", b"/work"), (41, b"/work", b"/work")),
    "opening a file by its handle": ((304, -100, 0, 0), (265, -100, 0, 0)),
    "io_uring, whose calls bypass the filter": ((425, 1, b"\0" * 120), (425, 1, b"\0" * 120)),
    "inotify watches, whose limit all sandboxes share": ((294, 0), (26, 0)),
    "a keyring": ((250, 1, 0), (219, 1, 0)),
    "a key": ((248, b"user", b"x", b"x", 1, -3), (217, b"user", b"x", b"x", 1, -3)),
    "a BPF program": ((321, 0, b"\0" * 120, 120), (280, 0, b"\0" * 120, 120)),
    "userfaultfd": ((323, 1), (282, 1)),
    "performance counters": ((298, b"\0" * 120, 0, -1, -1, 0), (241, b"\0" * 120, 0, -1, -1, 0)),
    "tracing PID 1": ((101, 16, 1, 0, 0), (117, 16, 1, 0, 0)),
    "PID 1's memory": ((310, 1, 0, 0, 0, 0, 0), (270, 1, 0, 0, 0, 0, 0)),
    "PID 1's descriptors": ((438, 1, 0, 0), (438, 1, 0, 0)),
    "loading another kernel": ((246, 0, 0, 0, 0), (104, 0, 0, 0, 0)),
    "a kernel module": ((313, 0, b"", 0), (273, 0, b"", 0)),
    "a reboot": ((169, 0xFEE1DEAD, 672274793, 0x1234567), (142, 0xFEE1DEAD, 672274793, 0x1234567)),
    "swap": ((167, b"/work/x", 0), (224, b"/work/x", 0)),
    "injecting input into a terminal": ((16, 0, 0x5412, b"x"), (29, 0, 0x5412, b"x")),
    "an unknown system call": ((600,), (600,)),
}

_CALL = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
number, *arguments = {calls!r}[os.uname().machine == "aarch64"]
if libc.syscall(number, *map(lambda a: a if isinstance(a, bytes) else ctypes.c_long(a), arguments)) == 0: os._exit(0)
number = ctypes.get_errno()
assert number in (errno.EPERM, errno.ENOSYS), errno.errorcode[number]
raise OSError(number, "refused")
"""
_CALL_PROGRAMS = {name: _CALL.format(calls=calls) for name, calls in _CALLS.items()}

CHECKS = [
    *make_checks("resources", _ENDS, expect_no_pass, timeout=1.5),
    *make_checks("resources", _LIMITED, expect_pass, timeout=30),
    *make_checks("resources", _INODES, expect_pass, timeout=60, needs="inodes"),
    *make_checks("resources", _SUM_OF_MEMORY, expect_no_pass, timeout=5, needs="memory"),
    *make_checks("resources", _SUM_OF_CPU, expect_pass, timeout=10, needs="cpu"),
    *make_checks("protected files", _WRITES, expect_refusal),
    *make_checks("host", _HOST, expect_pass),
    *make_checks("network", _NETWORK, expect_pass, timeout=20),
    *make_checks("kernel", _REQUESTS, expect_refusal),
    *make_checks("kernel", _SOCKETS, expect_refusal, needs="seccomp"),
    *make_checks("kernel", _CALL_PROGRAMS, expect_refusal, needs="seccomp"),
]
