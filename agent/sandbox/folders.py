"""Where sandboxes' parts keep what lasts, and how a file is put there whole."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "test-driven-annotator"


def user_cache() -> Path:
    """Return the user's cache folder for this package; it may not exist. A user without a home gets a temporary one."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / _NAME
    try:
        return Path.home() / ".cache" / _NAME
    except RuntimeError:
        return Path(tempfile.mkdtemp(prefix="agent-cache-"))


def shared_cache() -> Path:
    """Return the folder for what other users' processes must read: root's sandboxes run as nobody."""
    return Path("/var/cache") / _NAME if os.geteuid() == 0 else user_cache()


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """Give the name of a new file beside `path`; at the end it takes its place in one step, unless an error came.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
