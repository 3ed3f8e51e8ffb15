"""Chooses an image with a certain Python among those that the engine has; nothing is pulled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from agent.errors import InterpreterUnavailable

_OFFICIAL = re.compile(r"(?:docker\.io/)?(?:library/)?python:(3\.\d{1,2})(?:\.\d+)?(|-.+)")


class LocalImages(Protocol):
    """What is needed of a container engine. The calls block."""

    def image_id(self, name: str) -> str | None:
        """Return the id of a local image, or None."""
        ...

    def image_names(self) -> list[str]:
        """Return the names of all local images."""
        ...


def image_with(engine: LocalImages, python: str, images: Mapping[str, str]) -> str:
    """Return the image that `images` names for a minor version, else an official one of that version. Blocks.

    Raises:
        InterpreterUnavailable: there is none; names the versions that are there.
        SandboxError: the engine does not say what it has.
    """
    if python in images:
        if engine.image_id(images[python]) is None:
            raise InterpreterUnavailable(
                f"sandbox.images names {images[python]} for Python {python}, and the engine does not have it: "
                f"docker pull {images[python]}, or build it"
            )
        return images[python]
    official = _official(engine.image_names())
    if python in official:
        return official[python]
    there = sorted({*images, *official}, key=lambda version: int(version.rpartition(".")[2]))
    raise InterpreterUnavailable(
        f"the Docker engine has no image with Python {python}; it has: {', '.join(there) or 'none'}. Nothing is pulled "
        f"for this: docker pull python:{python}-slim, or name an image of yours: "
        f"-c 'sandbox.images={{\"{python}\": NAME}}'"
    )


def _official(names: Iterable[str]) -> dict[str, str]:
    """Return the best official image of each version: a slim one, else the plain one, else any."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _OFFICIAL.fullmatch(name)
        if match is not None:
            kind = 0 if match[2].startswith("-slim") else 1 if not match[2] else 2
            found.setdefault(match[1], []).append((kind, name))
    return {version: min(candidates)[1] for version, candidates in found.items()}
