"""The command line: annotate, ablate, exec, show, replay, score, report, review, doctor, graph, env."""

from __future__ import annotations

import os
import sys

from agent.errors import AgentError, RunStopped

DONE, SOME_ERRORS, WRONG_USAGE, STOPPED = 0, 1, 2, 3


def main() -> None:
    """Run the command line; an error is a message and an exit code, not a traceback."""
    from agent.cli.app import app

    try:
        app(prog_name="agent")
    except AgentError as error:
        from agent.cli.text import plain

        print(f"agent: {plain(str(error))}", file=sys.stderr)
        sys.exit(STOPPED if isinstance(error, RunStopped) else WRONG_USAGE)
    except BrokenPipeError:
        # the reader of our output is gone (agent show … | head); Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(DONE)
