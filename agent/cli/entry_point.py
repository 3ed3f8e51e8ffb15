"""Runs the command line, and reports errors by messages and exit codes."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from agent.cli import interrupts
from agent.cli.exit_codes import DONE, STOPPED, exit_code

_CTRL_C_CODE = 130  # the exit code that Typer returns for a KeyboardInterrupt


def main() -> NoReturn:
    """Run the command line. Report errors and Ctrl-C with a message and an exit code instead of a traceback."""
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


def _run() -> Any:
    """Run the command and return the exit code that Typer reports."""
    from agent.cli.app import app
    from agent.errors import AgentError

    for stream in (sys.stdout, sys.stderr):
        # escape characters that the terminal cannot encode
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
    return DONE
