"""The exit codes of all commands."""

from __future__ import annotations

from agent.errors import AgentError, RunStopped, UsageError

DONE, SOME_ERRORS, WRONG_USAGE, STOPPED = 0, 1, 2, 3


def exit_code(error: AgentError) -> int:
    """Return the exit code for an error, based on its class."""
    if isinstance(error, RunStopped):
        return STOPPED
    return WRONG_USAGE if isinstance(error, UsageError) else SOME_ERRORS
