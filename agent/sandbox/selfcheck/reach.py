"""Programs that reach for what is not theirs: the system's files, the host's, the network."""

from __future__ import annotations

from agent.sandbox.selfcheck.check import is_refused, passes, programs

_WRITES = {
    "the system": "open('/usr/bin/x', 'w')",
    "configuration": "open('/etc/passwd', 'a')",
    "the root": "open('/x', 'w')",
    "devices": "open('/dev/x', 'w')",
    "the environment store": "open('/envs/x', 'w')",
    "the interpreter's own modules": "import json\nopen(json.__file__, 'r+')",
    "a kernel setting": "open('/proc/sys/kernel/hostname', 'w').write('x')",
    "a core pattern": "open('/proc/sys/kernel/core_pattern', 'w').write('|/x')",
    "what handles unknown programs": "open('/proc/sys/fs/binfmt_misc/register', 'w').write(':x:M::x::/x:')",
    "a release agent": "import glob\n"
    "for p in glob.glob('/sys/fs/cgroup/**/release_agent', recursive=True) or ['/no/x']: open(p, 'w').write('/x')",
    "its own control group": "import glob\n"
    "names = ('cgroup.procs', 'memory.max', 'memory.limit_in_bytes', 'pids.max', 'cpu.max')\n"
    "for n in names:\n    for p in glob.glob(f'/sys/fs/cgroup/**/{n}', recursive=True):\n"
    "        with open(p, 'w') as f: f.write('0')\n        raise AssertionError(p)\nopen('/no/x')",
    "the power of the machine": "open('/sys/power/state', 'w').write('mem')",
    "the trigger of system requests": "open('/proc/sysrq-trigger', 'w').write('b')",
    "the kernel's memory": "open('/dev/mem', 'rb')",
    "the kernel's messages": "open('/dev/kmsg', 'rb')",
    "a raw device": "import os, stat\nos.mknod('sda', stat.S_IFBLK | 0o666, os.makedev(8, 0))",
    "the first process's files": "import os\nos.listdir('/proc/1/root/')",
    "the first process's memory": "open('/proc/1/mem', 'rb')",
    "the first process's input": "open('/proc/1/fd/0', 'rb')",
    "the first process's answers": "open('/proc/1/fd/1', 'wb')",
    "the first process's environment": "open('/proc/1/environ', 'rb')",
    "the first process's map": "open('/proc/1/maps', 'rb')",
}

_HOST = {
    "links to the host's files lead nowhere": """
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
    "no path leads up and out": """
import os
for way in ("../" * 30, "/proc/self/root/" + "../" * 30, "/proc/1/cwd/" + "../" * 30, "/proc/self/cwd/" + "../" * 30):
    try:
        with open(way + HOST["canary"][1:], "w") as f: f.write("broken")
    except OSError: pass
    assert not os.path.exists(way + HOST["canary"][1:])
""",
    "a name from the program is no path of the host": """
import os
evil = compile("raise OSError('x')", "../" * 30 + HOST["canary"][1:], "exec")
try: exec(evil)
except OSError: pass
""",
    "its secrets cannot be seen": """
import os
secret = HOST["terces"][::-1].encode()
for number in filter(str.isdecimal, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            with open(f"/proc/{number}/{name}", "rb") as f: assert secret not in f.read(), (number, name)
        except OSError: pass
assert secret.decode() not in os.environ.values()
""",
    "its processes cannot be seen or ended": """
import os
try: os.kill(HOST["pid"], 9)
except OSError: pass
assert len(list(filter(str.isdecimal, os.listdir("/proc")))) < 10, os.listdir("/proc")
""",
    "its engine and buses are not there": """
import os
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
             "/run/dbus/system_bus_socket", "/run/systemd/private", "/tmp/.X11-unix"):
    assert not os.path.exists(path), path
""",
    "its name and home are hidden": """
import os, socket
assert os.listdir("/root") == [] if os.access("/root", os.R_OK) else True
assert not os.path.exists("/home") or os.listdir("/home") == []
assert not os.path.exists("/root/.ssh") and "SSH_AUTH_SOCK" not in os.environ
assert 0 not in (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups())
""",
    "a setuid program gives no rights": """
import os, shutil, subprocess
shutil.copy(shutil.which("id"), "id")
os.chmod("id", 0o6755)
assert subprocess.run(["./id", "-u"], capture_output=True, text=True).stdout == f"{os.getuid()}\\n" != "0\\n"
su = subprocess.run(["su", "-c", "id -u"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
assert su.returncode != 0 and su.stdout == ""
""",
    "it has no capabilities": """
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
    "the host and its neighbours": f"""{_ATTEMPT}
for host in ("127.0.0.1", "172.17.0.1", "192.168.65.1", "10.0.0.1", "10.0.2.2"):
    for port in (HOST["tcp"], 22, 80, 443, 2375): attempt(socket.AF_INET, (host, port))
for host in ("172.17.0.1", "10.0.0.1"): attempt(socket.AF_INET, (host, HOST["udp"]), socket.SOCK_DGRAM)
""",
    "the metadata of a cloud": f"""{_ATTEMPT}
for host in ("169.254.169.254", "100.100.100.200"): attempt(socket.AF_INET, (host, 80))
attempt(socket.AF_INET6, ("fd00:ec2::254", 80))
""",
    "the internet": f"""{_ATTEMPT}
for host in ("1.1.1.1", "8.8.8.8"):
    for port in (53, 80, 443): attempt(socket.AF_INET, (host, port))
    attempt(socket.AF_INET, (host, 53), socket.SOCK_DGRAM)
""",
    "the internet by version 6": f"""{_ATTEMPT}
attempt(socket.AF_INET6, ("::1", HOST["tcp"]))
attempt(socket.AF_INET6, ("2606:4700:4700::1111", 53))
attempt(socket.AF_INET6, ("ff02::1", 53), socket.SOCK_DGRAM)
""",
    "names": """
import socket
for name in ("example.org", "pypi.org", "metadata.google.internal"):
    try: found = socket.getaddrinfo(name, 80)
    except OSError: continue
    raise AssertionError(found)
""",
    "the host by the names that engines give it": f"""{_ATTEMPT}
for name in ("host.docker.internal", "host.containers.internal", "gateway.docker.internal"):
    try: found = socket.getaddrinfo(name, HOST["tcp"], type=socket.SOCK_STREAM)
    except OSError: continue
    for family, _, _, _, address in found: attempt(family, address)
""",
    "Unix sockets of the host": f"""{_ATTEMPT}
attempt(socket.AF_UNIX, chr(0) + HOST["abstract"])
attempt(socket.AF_UNIX, HOST["socket"])
""",
    "any interface but its own": """
with open("/proc/net/dev") as f: assert [line.split(":")[0].strip() for line in f][2:] == ["lo"]
""",
}

CHECKS = [
    *programs("files that are not its own", _WRITES, is_refused),
    *programs("the host", _HOST, passes),
    *programs("network", _NETWORK, passes, timeout=20),
]
