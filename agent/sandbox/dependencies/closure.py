"""Which of the wheels at hand a set of requirements needs, and what is missing, by the target interpreter's markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.wheel_archive import metadata

_MOST_REQUIREMENTS = 2_000
_LONGEST_REQUIREMENT = 2_000
_MOST_STEPS = 100_000


def close_over(
    requirements: Sequence[Requirement], wheels: Mapping[NormalizedName, Path], markers: Mapping[str, str]
) -> tuple[set[NormalizedName], list[str]]:
    """Follow dependencies from `requirements` through the wheels; return the names reached and what no wheel provides.

    Raises:
        DependencyUnavailable: a wheel is damaged, asks for something by URL, or for more than any package does.
    """
    required: dict[NormalizedName, list[Requirement]] = {}
    steps = 0
    seen: set[tuple[NormalizedName, str]] = set()
    missing: dict[str, None] = {}
    queue = list(requirements)
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name not in wheels:
            missing[f"{name}{requirement.specifier}"] = None
            if len(missing) > _MOST_REQUIREMENTS:
                raise DependencyUnavailable(f"the dependencies of {requirements[0]} have no end")
            continue
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name not in required:
                required[name] = _required(wheels[name])
            steps += 1 + len(required[name])
            if steps > _MOST_STEPS:
                raise DependencyUnavailable(f"{wheels[name].name}: its dependencies and extras have no end")
            queue.extend(_dependencies(wheels[name], required[name], {**markers, "extra": extra}))
    return {name for name, _extra in seen}, sorted(missing)


def _required(wheel: Path) -> list[Requirement]:
    lines = HeaderParser().parsestr(metadata(wheel), headersonly=True).get_all("Requires-Dist", [])
    if len(lines) > _MOST_REQUIREMENTS or any(len(line) > _LONGEST_REQUIREMENT for line in lines):
        raise DependencyUnavailable(f"{wheel.name}: it asks for more than any package does")
    try:
        return [Requirement(line) for line in lines]
    except (InvalidRequirement, RecursionError):
        raise DependencyUnavailable(f"{wheel.name}: its metadata has an unreadable requirement") from None


def _dependencies(wheel: Path, required: Sequence[Requirement], markers: Mapping[str, str]) -> list[Requirement]:
    found = []
    for requirement in required:
        if not _applies(wheel, requirement, markers):
            continue
        if requirement.url is not None:
            raise DependencyUnavailable(f"{wheel.name}: it asks for {requirement.name} by URL, which is not fetched")
        found.append(requirement)
    return found


def _applies(wheel: Path, requirement: Requirement, markers: Mapping[str, str]) -> bool:
    if requirement.marker is None:
        return markers["extra"] == ""
    try:
        return requirement.marker.evaluate(dict(markers))
    except (ValueError, RecursionError):  # the errors of packaging are ValueErrors
        raise DependencyUnavailable(f"{wheel.name}: its metadata has an unreadable marker") from None
