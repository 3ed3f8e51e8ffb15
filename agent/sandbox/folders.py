"""Cache folders, and atomic replacement of files in them."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "test-driven-annotator"


def get_user_cache() -> Path:
    """Return the user's cache folder for this package, which may not exist. Temporary for users without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / _NAME
    try:
        return Path.home() / ".cache" / _NAME
    except RuntimeError:
        return Path(tempfile.mkdtemp(prefix="agent-cache-"))


def get_shared_cache() -> Path:
    """Return the cache folder that sandboxes can read. System-wide for root, whose sandboxes run as nobody."""
    return Path("/var/cache") / _NAME if os.geteuid() == 0 else get_user_cache()


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """Yield the path of a new file next to `path`, and move it to `path` at the end unless the block raised.

    Raises:
        OSError: the folder is not writable.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
