"""Filters of system calls for each backend, written by `scripts/make-seccomp` from `scripts/seccomp/rules.py`."""

from __future__ import annotations

import json
from pathlib import Path

_HERE = Path(__file__).parent


def kernel_filter(machine: str) -> Path | None:
    """Return the file that `bwrap --seccomp` takes on a machine (`x86_64`, `aarch64`), or None for other machines."""
    path = _HERE / f"{machine}.bpf"
    return path if path.is_file() else None


PROFILE = _HERE / "docker.json"
"""The profile for engines, as a file."""


def engine_profile() -> str:
    """Return the profile that Docker's engine takes, as JSON on one line."""
    return json.dumps(json.loads(PROFILE.read_text(encoding="ascii")), separators=(",", ":"))
