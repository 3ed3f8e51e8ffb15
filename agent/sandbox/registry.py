"""Every sandbox backend by name: where it is, and what to do where it does not work.

To add a backend: an entry in `REGISTRY`, and its folder with a subclass of `SandboxBackend`, whose constructor takes
what `select.py` gives it. It must pass `agent.sandbox.selfcheck` and `tests/sandbox/test_contract.py`.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One backend: `place` is its class, as `module:Class`, which is imported on first need.

    `remedies` say how to get it on an operating system, by the name that `platform.system()` has for it; under "" for
    the others. `{install}` stands for the command that installs packages. With `runs_images` its constructor takes
    `image` and `images` as well.
    """

    place: str
    remedies: Mapping[str, str] = field(default_factory=dict)
    runs_images: bool = False


_WSL = "install WSL2 (wsl --install), and in it this package and bubblewrap (sudo apt install bubblewrap) or Docker"

REGISTRY: Mapping[str, Entry] = {
    "docker": Entry(
        "agent.sandbox.docker.backend:DockerBackend",
        {
            "Darwin": "install Docker Desktop, or Colima: brew install colima docker && colima start",
            "Windows": _WSL,
            "": "install Docker (docs.docker.com/engine/install) or Podman and start it, or set DOCKER_HOST",
        },
        runs_images=True,
    ),
    "bwrap": Entry(
        "agent.sandbox.bwrap.backend:BwrapBackend",
        {
            "Darwin": "bubblewrap is for Linux: use Docker",
            "Windows": _WSL,
            "": "install bubblewrap: {install} bubblewrap",
        },
    ),
}
"""In the order in which `auto` tries them."""

CHOICES = ("auto", *REGISTRY)
"""What may be asked for."""

_PACKAGE_MANAGERS = {
    "debian": "sudo apt install",
    "ubuntu": "sudo apt install",
    "fedora": "sudo dnf install",
    "rhel": "sudo dnf install",
    "arch": "sudo pacman -S",
    "alpine": "sudo apk add",
    "suse": "sudo zypper install",
}


def remedy(name: str, *, system: str | None = None, release: str | None = None) -> str:
    """Say how to get a backend to work on an operating system, by default this one.

    `system` is as `platform.system()` says it; `release` the text of Linux's os-release file.
    """
    remedies = REGISTRY[name].remedies
    text = remedies.get(system or platform.system()) or remedies.get("", "")
    return text.format(install=_install(_os_release() if release is None else release))


def _install(release: str) -> str:
    """Return the start of the distribution's command for installing packages."""
    fields = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    names = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    known = (command for name in names for like, command in _PACKAGE_MANAGERS.items() if like in name)
    return next(known, "with the system's package manager:")


def _os_release() -> str:
    for path in (Path("/etc/os-release"), Path("/usr/lib/os-release")):
        if path.is_file():
            return path.read_text(encoding="utf-8", errors="replace")
    return ""
