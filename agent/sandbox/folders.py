"""Locates cache folders."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_NAME = "test-driven-annotator"


def get_user_cache() -> Path:
    """Return the user's cache folder for this package. The folder may not exist yet.

    A user without a home folder gets a new temporary folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / _NAME
    try:
        return Path.home() / ".cache" / _NAME
    except RuntimeError:
        return Path(tempfile.mkdtemp(prefix="agent-cache-"))


def get_shared_cache() -> Path:
    """Return the cache folder that sandboxes can read.

    Root gets a system-wide folder, because sandboxes that root starts run as nobody.
    """
    return Path("/var/cache") / _NAME if os.geteuid() == 0 else get_user_cache()
