"""What is asked of an engine in another way, or given up, where it refuses to start a container as it was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.sandbox.docker.containers import Setting
from agent.sandbox.seccomp import PROFILE


@dataclass(frozen=True)
class Concession:
    """For an engine whose refusal has `word` in it. `loss` says what is not enforced then; nothing, if it is empty."""

    what: str
    word: str
    loss: str
    made: Callable[[Setting], Setting]


CONCESSIONS = (
    # Podman reads the name of a file where Docker reads the profile itself; a remote one has no such file
    Concession(
        "seccomp",
        "seccomp",
        "",
        lambda setting: replace(setting, security=(f"seccomp={PROFILE}",)),
    ),
    Concession(
        "seccomp",
        "seccomp",
        "the engine keeps its own profile, for it does not take ours",
        lambda setting: replace(setting, security=()),
    ),
    # Podman, as of version 4.3
    Concession(
        "inodes",
        "nr_inodes",
        "the engine limits the size of temporary folders and not the number of files",
        lambda setting: replace(setting, limits=replace(setting.limits, inodes=0)),
    ),
)
"""In the order in which they are tried."""
