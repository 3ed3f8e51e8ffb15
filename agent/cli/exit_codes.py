"""The exit codes of all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.errors import AgentError

DONE, SOME_ERRORS, WRONG_USAGE, STOPPED = 0, 1, 2, 3


def exit_code(error: AgentError) -> int:
    """Return the exit code for an error, based on its class."""
    from agent.errors import (
        RunStopped,
        UsageError,
    )  # slow to import, and this module is imported before signals are handled

    if isinstance(error, RunStopped):
        return STOPPED
    return WRONG_USAGE if isinstance(error, UsageError) else SOME_ERRORS
