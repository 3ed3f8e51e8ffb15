"""Finds requirements of one distribution that no version can meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


def contradiction(requirements: Iterable[Requirement]) -> str | None:
    """Name the requirements of one distribution that no version meets, or return None where none can be seen.

    Requirements with a marker are compared with those of the same marker and of none.
    """
    for together in _groups(list(requirements)):
        specifiers = SpecifierSet(",".join(str(one.specifier) for one in together if one.specifier))
        if not any(specifiers.contains(version, prereleases=True) for version in _candidates(specifiers)):
            named = sorted({f"{canonicalize_name(one.name)}{one.specifier}" for one in together if one.specifier})
            return f"{' and '.join(named)}: no version meets {'both' if len(named) == 2 else 'that'}"
    return None


def _groups(requirements: list[Requirement]) -> Iterator[list[Requirement]]:
    keys = {(canonicalize_name(one.name), str(one.marker or "")) for one in requirements}
    for name, marker in sorted(keys):
        yield [
            one for one in requirements if canonicalize_name(one.name) == name and str(one.marker or "") in ("", marker)
        ]


def _candidates(specifiers: SpecifierSet) -> Iterator[Version]:
    """Yield versions of which one meets the specifiers if any does: each that is named, and its neighbours."""
    yield Version("0")
    named = [version for specifier in specifiers for version in _named(specifier)]
    # longer than every version that is named, it lies between each and the next
    longest = max((len(version.release) for version in named), default=0)
    for version in named:
        yield version
        epoch = f"{version.epoch}!"
        yield Version(f"{epoch}0")
        padded = [*version.release, *[0] * (longest - len(version.release))]
        yield Version(epoch + ".".join(map(str, [*padded, 1])))
        for place in range(len(version.release)):
            yield Version(epoch + ".".join(map(str, [*version.release[:place], version.release[place] + 1])))


def _named(specifier: Specifier) -> Iterator[Version]:
    try:
        yield Version(specifier.version.removesuffix(".*"))
    except InvalidVersion:
        return
