"""Which of the wheels at hand a set of requirements needs, and what is missing, by the target interpreter's markers."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

from agent.errors import DependencyUnavailable

_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_METADATA_LIMIT = 4 << 20


def close_over(
    requirements: Sequence[Requirement], wheels: Mapping[NormalizedName, Path], markers: Mapping[str, str]
) -> tuple[set[NormalizedName], list[str]]:
    """Follow dependencies from `requirements` through the wheels; return the names reached and what no wheel provides.

    Raises:
        DependencyUnavailable: a wheel is damaged, or asks for something by URL.
    """
    seen: set[tuple[NormalizedName, str]] = set()
    missing: dict[str, None] = {}
    queue = list(requirements)
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name not in wheels:
            missing[f"{name}{requirement.specifier}"] = None
            continue
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                queue.extend(_dependencies(wheels[name], extra, markers))
    return {name for name, _extra in seen}, sorted(missing)


def _dependencies(wheel: Path, extra: str, markers: Mapping[str, str]) -> Iterator[Requirement]:
    for line in _requires(wheel):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            raise DependencyUnavailable(f"{wheel.name}: its metadata has an unreadable requirement") from None
        marker = requirement.marker
        if not (extra == "" if marker is None else marker.evaluate({**markers, "extra": extra})):
            continue
        if requirement.url is not None:
            raise DependencyUnavailable(f"{wheel.name}: it asks for {requirement.name} by URL, which is not fetched")
        yield requirement


def _requires(wheel: Path) -> Iterable[str]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if _METADATA.fullmatch(name)]
            if len(names) != 1 or archive.getinfo(names[0]).file_size > _METADATA_LIMIT:
                raise DependencyUnavailable(f"{wheel.name}: it has no usable metadata")
            text = archive.read(names[0]).decode("utf-8", "replace")
    except (zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError) as error:
        raise DependencyUnavailable(f"{wheel.name}: the wheel is damaged ({type(error).__name__})") from error
    return HeaderParser().parsestr(text, headersonly=True).get_all("Requires-Dist", [])
