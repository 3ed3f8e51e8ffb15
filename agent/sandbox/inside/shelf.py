"""Reads the environments of a store; its source is sent to the containers that do so.

Standard library only, Python 3.8 and later; what uses it is appended to it.
"""

from __future__ import annotations

import json
from pathlib import Path

LOCK = ".lock.json"


def listed(store: str) -> dict[str, list[str]]:
    """Return the lock of every published environment, by key."""
    found = {}
    for folder in Path(store).iterdir():
        try:
            found[folder.name] = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # no environment, or removed meanwhile
    return found
