"""Writes the log of the package to standard error (`--verbose`) or to a file (`--log-file`)."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from agent.cli.text import Console, escape_hidden, print_text
from agent.errors import UsageError

_CAUSES = 10


def write_log(*, verbose: bool, file: Path | None) -> None:
    """Enable logging. The file also contains debug messages and tracebacks for bug reports.

    Raises:
        UsageError: the file cannot be written.
    """
    handlers: list[logging.Handler] = []
    if verbose:
        handlers.append(_StandardError())
        handlers[0].setLevel(logging.INFO)
    if file is not None:
        try:
            handlers.append(_File(file, encoding="utf-8", errors="backslashreplace"))
        except OSError as error:
            raise UsageError(f"--log-file {file}: cannot be written: {error.strerror}") from error
    log = logging.getLogger("agent")
    for handler in handlers:
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)-5s %(name)s: %(message)s"))
        log.addHandler(handler)
    if handlers:
        log.setLevel(logging.DEBUG)


class _StandardError(logging.StreamHandler[TextIO]):
    """A handler that writes to the current `sys.stderr`, so that lines appear above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record to the current standard error."""
        self.stream = sys.stderr
        super().emit(record)


class _File(logging.FileHandler):
    """A log file whose write errors are reported once and otherwise ignored."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Print the first error."""
        if not self._failed:
            print_text(Console(stderr=True), f"--log-file {self.baseFilename}: cannot be written: {sys.exc_info()[1]}")
        self._failed = True


class _Formatter(logging.Formatter):
    """A formatter that puts each message on one line and escapes control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape_hidden(super().formatMessage(record)).replace("\n", "\\n")

    def formatException(self, ei: Any) -> str:
        """Return the tracebacks of an error and its causes. Omit the error messages, which may quote pairs or keys."""
        parts: list[str] = []
        error = ei[1]
        while error is not None and len(parts) < _CAUSES:
            parts.append(f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}")
            error = error.__cause__ or error.__context__
        return escape_hidden("caused by ".join(parts))
