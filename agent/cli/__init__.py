"""The command line: annotate, ablate, exec, show, replay, score, report, review, doctor, graph, env."""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from types import FrameType

    from agent.errors import AgentError

DONE, SOME_ERRORS, WRONG_USAGE, STOPPED = 0, 1, 2, 3
_INTERRUPTED = b"Interrupted.\n"
_SOON = 0.01  # seconds
_OF_CTRL_C = 130  # what Typer makes of a KeyboardInterrupt


def main() -> None:
    """Run the command line; an error or Ctrl-C is a message and an exit code, not a traceback."""
    handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is to be ignored
    if handles:
        # there is nothing to clean up yet, and an import that is interrupted may print a traceback and go on
        signal.signal(signal.SIGINT, _leave)
        # later Python would put the system's way, death by signal, in the place of ours
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        _run(handles)
    except KeyboardInterrupt:
        code: Any = _OF_CTRL_C
    except SystemExit as leaving:
        code = leaving.code
    if handles:
        signal.signal(signal.SIGINT, _leave)
    if code == _OF_CTRL_C:
        os.write(2, _INTERRUPTED)
        code = STOPPED
    sys.exit(code)


def exit_code(error: AgentError) -> int:
    """Return the exit code of a command that ended in an error, as the tree of errors has it."""
    from agent.errors import RunStopped, UsageError

    if isinstance(error, RunStopped):
        return STOPPED
    return WRONG_USAGE if isinstance(error, UsageError) else SOME_ERRORS


def _run(handles: bool) -> NoReturn:
    from agent.cli.app import app
    from agent.errors import AgentError

    for stream in (sys.stdout, sys.stderr):
        # what the terminal cannot show is shown as an escape
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        if handles:
            signal.signal(signal.SIGINT, _interrupt)
        app(prog_name="agent")
    except AgentError as error:
        import logging

        from agent.cli.text import plain

        logging.getLogger(__name__).debug("the command failed", exc_info=True)
        print(f"agent: {plain(str(error))}", file=sys.stderr)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        # the reader of our output is gone (agent show … | head); Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(DONE)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but only after an import in progress, which may swallow it and print a traceback."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _thread.start_new_thread(_again, ())
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _again() -> None:
    time.sleep(_SOON)
    os.kill(os.getpid(), signal.SIGINT)


def _leave(*_: object) -> NoReturn:
    os.write(2, _INTERRUPTED)
    os._exit(STOPPED)
