"""One process at a time writes to a run's folder."""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from agent.datasets.encoding import dumps, loads
from agent.errors import RunFolderError
from agent.store import files
from agent.store.failures import writing
from agent.store.opening import open_own


class FolderLock:
    """Holds a folder's lock until it is released; the system releases it when the process dies.

    Raises:
        RunFolderError: another process holds it (the message says which), the file system has no locks, or the lock
            file is a link.
        StorageError: the lock file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / files.LOCK
        self._descriptor: int | None = open_own(self.path)
        try:
            self._take(folder, self._descriptor)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the folder free; releasing twice does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self, folder: Path, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.pread(descriptor, 4096, 0))
            message = f"{folder}: is in use by {holder}; wait for it or choose another folder (-o)"
            raise RunFolderError(message) from None
        except OSError as error:
            message = f"{folder}: its file system has no file locks ({error.strerror}); choose a folder on a local disk"
            raise RunFolderError(message) from error
        since = datetime.now(UTC).isoformat(timespec="seconds")
        with writing(self.path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}), 0)


def _holder(content: bytes) -> str:
    try:
        record = loads(content)
        return f"process {record['pid']} on {record['host']} since {record['since']}"
    except (ValueError, TypeError, KeyError):
        # Read between its taking and its writing.
        return "another process"
