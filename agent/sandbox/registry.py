"""The sandbox backends by name, with their classes and the remedies for machines on which they do not work.

To add a backend, add an entry to `REGISTRY` and a folder with a subclass of `SandboxBackend` whose constructor takes
the arguments that `select.py` passes. It must pass `agent.sandbox.selfcheck` and `tests/sandbox/test_contract.py`.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BackendEntry:
    """One backend: `place` is its class, as `module:Class`, which is imported on first need.

    `remedies` say how to get it on an operating system, by the name that `platform.system()` has for it; under "" for
    the others. With `runs_images` its constructor takes `image` and `images` as well.
    """

    class_path: str
    remedies: Mapping[str, str] = field(default_factory=dict)
    runs_images: bool = False


INSTALL = "sudo apt install bubblewrap, or dnf, pacman -S, apk add, zypper install"
_WSL = "install WSL2 (wsl --install), and in it this package and bubblewrap (sudo apt install bubblewrap) or Docker"

REGISTRY: Mapping[str, BackendEntry] = {
    "bwrap": BackendEntry(
        "agent.sandbox.bwrap.backend:BwrapBackend",
        {
            "Darwin": "bubblewrap is for Linux: use Docker",
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
"""In the order in which `auto` tries them."""

CHOICES = ("auto", *REGISTRY)
"""The values of `--sandbox`."""


def suggest_remedy(name: str, *, system: str | None = None) -> str:
    """Say how to install a backend on an operating system, named as by `platform.system()`; by default this one."""
    remedies = REGISTRY[name].remedies
    return remedies.get(system or platform.system()) or remedies.get("", "")
