"""The index rule: only distributions in the import map and established projects may be installed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Protocol

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.imports import (
    DISTRIBUTIONS,
    PYTHON2_MODULES,
    WHEEL_SUBSTITUTES,
    find_requirement,
    is_stdlib,
)
from agent.sandbox.dependencies.package_index import Project

MIN_AGE = timedelta(days=730)
"""Minimum age of a project's first upload."""

MIN_RELEASES = 5
"""Minimum number of releases of a project, excluding yanked ones."""

_MAX_NAME_LENGTH = 100

_ALLOWED = frozenset(canonicalize_name(Requirement(text).name) for text in DISTRIBUTIONS.values()) | frozenset(
    canonicalize_name(name) for name in WHEEL_SUBSTITUTES.values()
)
_NAMESPACES = frozenset(name.partition(".")[0] for name in DISTRIBUTIONS if "." in name)
_NAMES = sorted(_ALLOWED | {canonicalize_name(name) for name in (*DISTRIBUTIONS, *WHEEL_SUBSTITUTES)})


class Index(Protocol):
    """A registry of packages."""

    async def find_project(self, name: NormalizedName, /) -> Project | None:
        """Look up a project. Return None if the registry does not have it."""


class IndexRule:
    """Allows every distribution in the import map, and established projects on the index.

    An established project was first uploaded at least two years ago and has at least five releases. Its name differs
    from every name in the map by more than one edit. This protects against squatters, who register names that models
    invent or that people type by mistake. Dependencies of an allowed distribution are not checked. Without an `index`,
    only distributions in the map are allowed.

    A distribution outside the map is assumed to provide a single import name, which equals the distribution's name.
    """

    allowed: ClassVar[Collection[str]] = _ALLOWED
    names: ClassVar[Collection[str]] = _NAMES

    def __init__(self, index: Index | None, *, clock: Callable[[], float] = time.time) -> None:
        self._index = index
        self._clock = clock
        self._verdicts: dict[str, str | None] = {}

    async def resolve(self, import_name: str) -> str | None:
        """Return the requirement that provides an import name, or None if no distribution is known to provide it.

        Dotted names outside the map are treated as unknown, because a program that cannot import `a.b` has already
        imported `a`. Namespaces that many distributions share are treated as unknown, too.

        Raises:
            DependencyUnavailable: the rule refuses the distribution; or the index does not respond or denies access,
                and the error is marked as `temporary`.
        """
        requirement = find_requirement(import_name)
        if requirement is not None or is_stdlib(import_name) or import_name in PYTHON2_MODULES:
            return requirement
        name = canonicalize_name(import_name)
        # a distribution in the map provides other import names than this one
        if not (import_name.isascii() and import_name.isidentifier()) or name in _ALLOWED | _NAMESPACES:
            return None
        if (reason := await self.find_refusal(name)) is not None:
            raise DependencyUnavailable(reason)
        return name

    async def find_refusal(self, distribution: str) -> str | None:
        """Return the reason why a distribution is refused, or None if it may be installed.

        Raises:
            DependencyUnavailable: the index does not respond or denies access. The error is marked as `temporary`.
        """
        try:
            name = self.normalise(distribution[: _MAX_NAME_LENGTH + 1])
        except ValueError:
            return f"{distribution[:_MAX_NAME_LENGTH]!r} is not a valid distribution name"
        if name in self.allowed:
            return None
        if name not in self._verdicts:
            reason = await self._judge(name)
            self._verdicts[name] = None if reason is None else f"{name[:_MAX_NAME_LENGTH]}: {reason}"
        return self._verdicts[name]

    def normalise(self, name: str) -> str:
        """Return the normalised form of a distribution's name.

        Raises:
            ValueError: the name is not valid.
        """
        return canonicalize_name(name, validate=True)

    async def _judge(self, name: str) -> str | None:
        if len(name) > _MAX_NAME_LENGTH:
            return f"not installed because the name is longer than {_MAX_NAME_LENGTH} characters"
        if similar := next((known for known in self.names if is_within_one_edit(name.lower(), known)), None):
            return f"not installed because the name equals or resembles the known name {similar!r}"
        if self._index is None:
            return (
                "not a known distribution, and other distributions are disabled by sandbox.index_rule or "
                "sandbox.install_packages"
            )
        try:
            project = await self._index.find_project(NormalizedName(name))
        except DependencyUnavailable as error:
            if error.temporary:
                raise
            return str(error)
        if project is None:
            return "not found on the package index"
        if project.first_upload is None:
            return "not a known distribution, and the package index does not report its upload times (PEP 700)"
        if project.first_upload > datetime.fromtimestamp(self._clock(), UTC) - MIN_AGE:
            return f"not installed because the project is too new (first upload: {project.first_upload:%Y-%m-%d})"
        if project.releases < MIN_RELEASES:
            return (
                "not installed because the project has too few releases: "
                f"{project.releases}, but at least {MIN_RELEASES} are needed"
            )
        return None


def is_within_one_edit(first: str, second: str) -> bool:
    """Return whether two texts differ by at most one insertion, deletion, replacement or adjacent swap."""
    short, long = sorted((first, second), key=len)
    if len(long) - len(short) > 1:
        return False
    start = next((index for index, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[start:] == long[start + 1 :]
    with_swap = short[:start] + short[start : start + 2][::-1] + short[start + 2 :]
    return short[start + 1 :] == long[start + 1 :] or with_swap == long
