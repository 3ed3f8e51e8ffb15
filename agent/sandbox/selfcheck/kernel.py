"""Programs that ask the kernel for what most escapes need: each call is refused."""

from __future__ import annotations

from agent.sandbox.selfcheck.check import is_refused, programs

_REQUESTS = {
    "another user": "import os\nos.setuid(0)",
    "another root": "import os\nos.chroot('/work')",
    "a clock": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)",
    "a name for the host": "import socket\nsocket.sethostname('x')",
    "a raw socket": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "a packet socket": "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "a higher priority": "import os\nos.nice(-5)",
    "lower limits for the first process": "import resource\nresource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))",
    "less time for the first process": "import os\nos.setpriority(os.PRIO_PROCESS, 1, 19)",
    "less time for all of its user": "import os\nos.setpriority(os.PRIO_USER, 0, 19)",
    "another processor for the first process": "import os\nos.sched_setaffinity(1, {0})",
    "a higher limit": "import resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
    "try: resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))\n"
    "except ValueError: raise OSError('refused')",
    "to end the first process": "import os, time\n"
    "for s in (9, 19, 15, 6): os.kill(1, s)\ntime.sleep(0.2)\nraise OSError('it is still there')",
}

# What the kernel itself would give to anybody.
_SOCKETS = {
    "a socket to its hypervisor": "import socket\nsocket.socket(40, socket.SOCK_STREAM)",
    "a socket of the kernel's ciphers": "import socket\nsocket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
}

# Numbers on x86-64 and on arm64. Flags: a new user namespace, 0x10000000; a new mount namespace, 0x20000.
_CALLS = {
    "a user namespace": ((272, 0x10000000), (97, 0x10000000)),
    "a mount namespace": ((272, 0x20000), (97, 0x20000)),
    "a child in a user namespace": ((56, 0x10000011, 0, 0, 0, 0), (220, 0x10000011, 0, 0, 0, 0)),
    "a child with flags in memory": ((435, 0, 0), (435, 0, 0)),
    "to enter a namespace": ((308, 0, 0), (268, 0, 0)),
    "a mount": ((165, b"none", b"/work", b"tmpfs", 0, 0), (40, b"none", b"/work", b"tmpfs", 0, 0)),
    "a mount by the newer calls": ((430, b"tmpfs", 0), (430, b"tmpfs", 0)),
    "another root for all": ((155, b"/work", b"/work"), (41, b"/work", b"/work")),
    "a handle on a file": ((304, -100, 0, 0), (265, -100, 0, 0)),
    "a queue of calls that no filter sees": ((425, 1, b"\0" * 120), (425, 1, b"\0" * 120)),
    "watches that all sandboxes share": ((294, 0), (26, 0)),
    "a keyring": ((250, 1, 0), (219, 1, 0)),
    "a key": ((248, b"user", b"x", b"x", 1, -3), (217, b"user", b"x", b"x", 1, -3)),
    "code in the kernel": ((321, 0, b"\0" * 120, 120), (280, 0, b"\0" * 120, 120)),
    "a place to stop the kernel in": ((323, 1), (282, 1)),
    "counters of the processor": ((298, b"\0" * 120, 0, -1, -1, 0), (241, b"\0" * 120, 0, -1, -1, 0)),
    "to trace the first process": ((101, 16, 1, 0, 0), (117, 16, 1, 0, 0)),
    "the first process's memory": ((310, 1, 0, 0, 0, 0, 0), (270, 1, 0, 0, 0, 0, 0)),
    "the first process's descriptors": ((438, 1, 0, 0), (438, 1, 0, 0)),
    "another kernel": ((246, 0, 0, 0, 0), (104, 0, 0, 0, 0)),
    "a module in the kernel": ((313, 0, b"", 0), (273, 0, b"", 0)),
    "a restart": ((169, 0xFEE1DEAD, 672274793, 0x1234567), (142, 0xFEE1DEAD, 672274793, 0x1234567)),
    "swap": ((167, b"/work/x", 0), (224, b"/work/x", 0)),
    "input pushed into a terminal": ((16, 0, 0x5412, b"x"), (29, 0, 0x5412, b"x")),
    "a call that no kernel has yet": ((600,), (600,)),
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

CHECKS = [
    *programs("the kernel", _REQUESTS, is_refused),
    *programs("the kernel", _SOCKETS, is_refused, needs="seccomp"),
    *programs(
        "the kernel", {name: _CALL.format(calls=calls) for name, calls in _CALLS.items()}, is_refused, needs="seccomp"
    ),
]
