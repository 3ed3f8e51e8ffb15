"""What a benchmark for code search is, whatever files it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agent.datasets.encoding import dumps

Grades = Mapping[str, int]
"""Of one query: the grade by code id. 1 or more is relevant, 0 was judged and is not; others were not judged."""


@dataclass(frozen=True)
class Benchmark:
    """Queries, the codes to search, and which of them are right.

    `queries` and `codes` are texts by id, in the benchmark's order; no two codes have the same text. `grades` are by
    query id. `answers` are codes that answer a query and need not be among `codes` (Neural Code Search's; by query id).
    `notes` say in words what a reader of figures must know, such as how many duplicates became one code; `same` has the
    ids of those, with the id of the code that each became.
    """

    name: str
    queries: Mapping[str, str] = field(repr=False)
    codes: Mapping[str, str] = field(repr=False)
    grades: Mapping[str, Grades] = field(repr=False)
    language: str = "python"
    answers: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    same: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def sha256(self) -> str:
        """The hash (hex) of queries and codes in their order, and of grades and answers in any order."""
        digest = hashlib.sha256()
        for part in (self.queries, self.codes):
            digest.update(b"%d\n" % len(part))
            for item in part.items():
                digest.update(dumps(item) + b"\n")
        for query, grades in sorted(self.grades.items()):
            digest.update(dumps([query, sorted(grades.items())]) + b"\n")
        digest.update(dumps(sorted(self.answers.items())))
        return digest.hexdigest()
