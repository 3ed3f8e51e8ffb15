"""What stays whole on the host while programs attack it."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_WHOLE = "whole"
_SECRET = "AGENT_SELFCHECK_SECRET"


class Disturbed(Exception):
    """A canary on the host is not as it was; the message says which."""


@dataclass
class Host:
    """Canaries: a file and a folder that anybody may write, a process, a secret, and listeners that nobody calls.

    `known` is what programs are told, so that they need not guess: names and numbers, never the secret as it stands.
    """

    folder: Path
    process: subprocess.Popen[bytes]
    secret: str
    ports: tuple[int, int]
    heard: list[str] = field(default_factory=list)

    @property
    def known(self) -> dict[str, object]:
        """What a program may know."""
        return {
            "canary": str(self.folder / "canary"),
            "socket": str(self.folder / "socket"),
            "abstract": f"agent-{self.secret[:8]}",
            "pid": self.process.pid,
            "tcp": self.ports[0],
            "udp": self.ports[1],
            "terces": self.secret[::-1],
        }

    def inspect(self) -> None:
        """Look at every canary.

        Raises:
            Disturbed: one is not as it was.
        """
        names = sorted(entry.name for entry in self.folder.iterdir())
        if names != ["canary", "socket"]:
            raise Disturbed(f"the host's folder holds {names}")
        canary = self.folder / "canary"
        if canary.is_symlink() or canary.read_text(encoding="utf-8") != _WHOLE:
            raise Disturbed("the host's file was changed")
        if self.process.poll() is not None:
            raise Disturbed("the host's process was ended")
        if self.heard:
            raise Disturbed(f"the host was called: {', '.join(self.heard)}")


@contextmanager
def canaries() -> Iterator[Host]:
    """Set up the canaries, and remove them at the end."""
    secret = secrets.token_hex(16)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agent-selfcheck-")))
        folder.chmod(0o777)
        (folder / "canary").write_text(_WHOLE, encoding="utf-8")
        (folder / "canary").chmod(0o666)
        waiting = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        process = subprocess.Popen(waiting, stdin=subprocess.PIPE, env={_SECRET: secret})
        stack.callback(_end, process)
        os.environ[_SECRET] = secret
        stack.callback(os.environ.pop, _SECRET, None)
        host = Host(folder, process, secret, (0, 0))
        tcp = stack.enter_context(_listening(host, socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0), "over TCP"))
        udp = stack.enter_context(_listening(host, socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0), "over UDP"))
        host.ports = tcp.getsockname()[1], udp.getsockname()[1]
        for address in (f"\0{host.known['abstract']}", str(host.known["socket"])):
            stack.enter_context(_listening(host, socket.AF_UNIX, socket.SOCK_STREAM, address, "over a Unix socket"))
        (folder / "socket").chmod(0o666)
        yield host


@contextmanager
def _listening(
    host: Host, family: int, kind: int, address: tuple[str, int] | str, name: str
) -> Iterator[socket.socket]:
    server = socket.socket(family, kind)
    server.bind(address)
    if kind == socket.SOCK_STREAM:
        server.listen()
    ended = threading.Event()

    def serve() -> None:
        server.settimeout(0.1)
        while not ended.is_set():
            try:
                if kind == socket.SOCK_STREAM:
                    server.accept()[0].close()
                else:
                    server.recv(1)
            except TimeoutError:
                continue
            host.heard.append(name)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        ended.set()
        thread.join()
        server.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
