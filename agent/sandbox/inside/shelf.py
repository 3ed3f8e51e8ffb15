"""Reads the environments of a store; its source is sent to the containers that do so.

Standard library only, Python 3.8 and later; what uses it is appended to it.
"""

from __future__ import annotations

import json
import os

LOCK = ".lock.json"


def listed(store: str) -> dict[str, list[str]]:
    """Return the lock of every published environment, by key."""
    found = {}
    for entry in os.scandir(store):
        try:
            with open(os.path.join(entry.path, LOCK), encoding="utf-8") as file:
                found[entry.name] = json.load(file)
        except (OSError, ValueError):
            continue  # no environment, or removed meanwhile
    return found
