"""The sandbox backends, keyed by name, with their classes and installation hints.

To add a backend, add an entry to `REGISTRY` and a folder with a subclass of `SandboxBackend` whose constructor takes
the arguments that `select.py` passes. The backend must pass `agent.sandbox.selfcheck` and
`tests/sandbox/test_contract.py`.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BackendEntry:
    """One backend. `class_path` names its class as `module:Class`, which is imported on first use.

    `remedies` maps operating systems (values of `platform.system()`, or "" for all others) to a hint on how to install
    the backend. If `runs_images` is true, the constructor also takes `image` and `images`.
    """

    class_path: str
    remedies: Mapping[str, str] = field(default_factory=dict)
    runs_images: bool = False


INSTALL = "sudo apt install bubblewrap (or dnf install, pacman -S, apk add, zypper install)"
_WSL = "install WSL2 (wsl --install); in WSL2, install this package and bubblewrap (apt install bubblewrap) or Docker"

REGISTRY: Mapping[str, BackendEntry] = {
    "bwrap": BackendEntry(
        "agent.sandbox.bwrap.backend:BwrapBackend",
        {
            "Darwin": "bubblewrap needs Linux; use Docker instead",
            "Windows": _WSL,
            "": f"install bubblewrap: {INSTALL}",
        },
    ),
    "docker": BackendEntry(
        "agent.sandbox.docker.backend:DockerBackend",
        {
            "Darwin": "install Docker Desktop, or Colima: brew install colima docker && colima start",
            "Windows": _WSL,
            "": "install Docker (docs.docker.com/engine/install) or Podman and start it, or set DOCKER_HOST",
        },
        runs_images=True,
    ),
}
"""The backends, keyed by name, in the order in which `auto` prefers them."""

CHOICES = ("auto", *REGISTRY)
"""The values that `--sandbox` accepts."""


def suggest_remedy(name: str, *, system: str | None = None) -> str:
    """Return a hint on how to install a backend. `system` defaults to the value of `platform.system()`."""
    remedies = REGISTRY[name].remedies
    return remedies.get(system or platform.system()) or remedies.get("", "")
