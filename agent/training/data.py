"""Training data: labelled pairs of queries and codes, and the held-out queries that they must not contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.datasets.benchmark import Benchmark


class TrainingPair(NamedTuple):
    """A pair with its label, 1 or 0. `query` and `code` are positions in the texts of `TrainingData`."""

    query: int
    code: int
    label: int


@dataclass(frozen=True)
class TrainingData:
    """Pairs to train on, without undecided pairs.

    `queries` and `codes` are distinct texts. `languages` has the language of each code. Queries with equal
    `query_groups` are near duplicates, and so are codes with equal `code_clusters`. `validation` selects the best
    epoch. The queries of `validation` and `tests` are held out.
    """

    name: str
    queries: Sequence[str] = field(repr=False)
    codes: Sequence[str] = field(repr=False)
    pairs: Sequence[TrainingPair] = field(repr=False)
    languages: Sequence[str] = field(repr=False)
    query_groups: Sequence[int] = field(repr=False)
    code_clusters: Sequence[int] = field(repr=False)
    validation: Benchmark | None = None
    tests: Sequence[Benchmark] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    """Counts of the pairs that were read, by `1`, `0` and `undecided`."""
    sources: Mapping[str, int] = field(default_factory=dict)
    licences: Mapping[str, int] = field(default_factory=dict)
    sha256: str = ""
