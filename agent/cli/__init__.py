"""The command line: annotate, ablate, exec, show, replay, score, report, review, doctor, graph, env."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from agent.cli import interrupts
from agent.cli.interrupts import STOPPED as STOPPED

if TYPE_CHECKING:
    from agent.errors import AgentError

DONE, SOME_ERRORS, WRONG_USAGE = 0, 1, 2
_CTRL_C_CODE = 130  # what Typer makes of a KeyboardInterrupt


def main() -> NoReturn:
    """Run the command line; an error or Ctrl-C is a message and an exit code, not a traceback."""
    interrupts.install()
    try:
        code = _run()
        interrupts.finish()
    except KeyboardInterrupt:
        code = _CTRL_C_CODE
    if code == _CTRL_C_CODE:
        os.write(2, interrupts.INTERRUPTED)
        code = STOPPED
    sys.exit(code)


def exit_code(error: AgentError) -> int:
    """Return the exit code of a command that ended in an error, as the tree of errors has it."""
    from agent.errors import RunStopped, UsageError

    if isinstance(error, RunStopped):
        return STOPPED
    return WRONG_USAGE if isinstance(error, UsageError) else SOME_ERRORS


def _run() -> Any:
    """Run the command; return its exit code as Typer has it."""
    from agent.cli.app import app
    from agent.errors import AgentError

    for stream in (sys.stdout, sys.stderr):
        # what the terminal cannot show is shown as an escape
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app(prog_name="agent")
    except SystemExit as exit_:
        return exit_.code
    except AgentError as error:
        import logging

        from agent.cli.text import escape_hidden

        logging.getLogger(__name__).debug("the command failed", exc_info=True)
        print(f"agent: {escape_hidden(str(error))}", file=sys.stderr)
        return exit_code(error)
    except BrokenPipeError:
        # the reader of our output is gone (agent show … | head); Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
