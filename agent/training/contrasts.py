"""Contrasts to train on: queries with their right code and a mutant of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from agent.corpus.near_duplicates import cluster, shingle_query
from agent.datasets.encoding import dumps
from agent.datasets.mutants import Contrast, read_contrasts
from agent.errors import UsageError
from agent.retrieval.searchers.trained import ContrastRecord
from agent.types import Progress


@dataclass(frozen=True)
class Contrasts:
    """Mutants with their right code.

    Contrasts with equal `families` have equal or nearly equal queries or right code, or are connected by other
    contrasts that have.
    """

    rows: Sequence[Contrast] = field(repr=False)
    families: Sequence[int] = field(repr=False)
    record: ContrastRecord


def read_contrast_data(path: Path, language: str | None, excluded: Collection[str], progress: Progress) -> Contrasts:
    """Read a file of `agent corpus mutate`, without the functions that have a text in `excluded`.

    `language` selects contrasts.

    Raises:
        UsageError: no function remains.
        InputError, ExtraMissing: see `read_contrasts`.
    """
    rows = list(read_contrasts(path))
    leaking = {row.function for row in rows if not {row.query, row.right, row.wrong}.isdisjoint(excluded)}
    rows = [row for row in rows if row.function not in leaking and language in (None, row.language)]
    if not rows:
        raise UsageError(f"{path}: all functions are held out or in other languages. Pass another file.")
    groups = cluster((row.query for row in rows), len(rows), progress, shingle_query)
    clusters = cluster((row.right for row in rows), len(rows), progress)
    digest = sha256(b"".join(dumps([row.query, row.right, row.wrong]) + b"\n" for row in rows)).hexdigest()
    functions = len({row.function for row in rows})
    record = ContrastRecord(name=path.name, count=len(rows), functions=functions, sha256=digest)
    return Contrasts(rows, _connect(groups, clusters), record)


def _connect(groups: Sequence[int], clusters: Sequence[int]) -> list[int]:
    """Return the component of each contrast. Contrasts with the same group or the same cluster are connected."""
    parents = dict[int, int]()  # clusters are negative, so that they differ from groups

    def find(number: int) -> int:
        while (parent := parents.setdefault(number, number)) != number:
            parents[number] = number = parents[parent]
        return number

    for group, code in zip(groups, clusters, strict=True):
        parents[find(-1 - code)] = find(group)
    return [find(group) for group in groups]
