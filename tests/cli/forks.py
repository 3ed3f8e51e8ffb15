"""Runs `agent` in forks of a process that has imported the package, in milliseconds instead of seconds.

As a program (`forks.py SOCKET ARGUMENT ...`) it runs a command through the server at that socket. The command uses the
program's standard files, receives its signals and determines its exit code.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_MESSAGE = 1 << 20
_IMPORTED = """
    agent.cli.ablate agent.cli.annotate agent.cli.app agent.cli.doctor agent.cli.execute agent.cli.export
    agent.cli.graph agent.cli.replay agent.cli.report agent.cli.review agent.cli.score agent.cli.show
    agent.languages.registry agent.llm.heuristic agent.llm.openai agent.llm.replay agent.sandbox.bwrap.backend
    agent.views.server langchain_openai langgraph.graph langgraph.runtime numpy scipy.stats starlette.applications
    uvicorn
"""


def start(
    server: str, arguments: Sequence[str], folder: str, environment: Mapping[str, str], files: Sequence[int]
) -> tuple[socket.socket, int]:
    """Start a command. Return a connection that receives its exit code, and its process id.

    Signal numbers sent to the connection are forwarded to the command. Closing the connection kills it.
    """
    # packets, so that messages sent together are read one by one
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(server)
    job = {"arguments": arguments, "folder": folder, "environment": dict(environment)}
    socket.send_fds(connection, [json.dumps(job).encode()], list(files))
    return connection, int(connection.recv(_MESSAGE))


def serve(server: str, imports: Sequence[str]) -> None:
    """Import the package and `imports`, and run commands until standard input ends."""
    import gc
    from importlib import import_module

    for name in (*_IMPORTED.split(), *imports):
        import_module(name)
    from agent.pipeline.prompts import Prompts

    Prompts()  # compiled once for all commands
    gc.freeze()  # pages that the garbage collector does not touch are not copied
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(server)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _serve_one(connection)
            connection.close()


def _serve_one(connection: socket.socket) -> NoReturn:
    """Run one command in a new session."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    job, files, _, _ = socket.recv_fds(connection, _MESSAGE, 3)
    if not job:
        os._exit(0)
    child = os.fork()
    if child == 0:
        connection.close()
        os._exit(_run(json.loads(job), files))
    for file in files:
        os.close(file)
    connection.send(b"%d" % child)
    exit_fd = os.pidfd_open(child)
    while exit_fd not in select.select([connection, exit_fd], [], [])[0]:
        try:
            number = connection.recv(_MESSAGE)
        except ConnectionResetError:
            number = b""
        os.kill(child, int(number or signal.SIGKILL))
        if not number:
            break
    else:
        connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


def _run(job: dict[str, Any], files: Sequence[int]) -> int:
    import atexit
    import threading
    import traceback

    import agent.cli

    os.setsid()
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # new streams, because a stream remembers whether its file is seekable
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["agent", *job["arguments"]]
    code: Any = 0
    try:
        agent.cli.main()
    except SystemExit as exit_:
        code = exit_.code or 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 70
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code)


def _run_as_command(server: str, arguments: Sequence[str]) -> NoReturn:
    connection, _ = start(server, arguments, os.getcwd(), os.environ, (0, 1, 2))  # noqa: PTH109
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: connection.send(b"%d" % number))
    code = int(connection.recv(_MESSAGE))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    _run_as_command(sys.argv[1], sys.argv[2:])
