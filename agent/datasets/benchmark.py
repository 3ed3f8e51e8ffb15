"""A benchmark for code search, independent of its file format."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from agent.datasets.encoding import dumps

Grades = Mapping[str, int]
"""The grades for one query, keyed by code id.

A grade of 1 or more means that the snippet is relevant. A grade of 0 means that it was judged not relevant. Snippets
without a grade are unjudged.
"""
Judgement = tuple[str, str, int]
"""A query id, a code id and a grade, as in the files."""


@dataclass(frozen=True)
class Benchmark:
    """Queries, a corpus of code snippets, and grades.

    `queries` and `codes` map ids to texts in the benchmark's order. No two snippets have the same text. `grades` maps
    query ids to grades. `answers` maps query ids to code that answers the query. Only Neural Code Search has answers,
    and they need not be in the corpus. `notes` help readers interpret the scores. For example, they list merged
    duplicates and skipped rows. `duplicates` maps the ids of merged snippets to the ids of their replacements.
    `judgements` contains all grades in the order of the files, with the ids of merged snippets and with unknown ids.
    If `lists_pairs` is set, the files list pairs, and the snippets have no ids of their own.
    """

    name: str
    queries: Mapping[str, str] = field(repr=False)
    codes: Mapping[str, str] = field(repr=False)
    grades: Mapping[str, Grades] = field(repr=False)
    language: str = "python"
    answers: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    duplicates: Mapping[str, str] = field(default_factory=dict, repr=False)
    judgements: Sequence[Judgement] = field(default=(), repr=False)
    lists_pairs: bool = False

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of the content.

        The hash depends on the order of queries and snippets, but not on the order of grades and answers.
        """
        digest = hashlib.sha256()
        for part in (self.queries, self.codes):
            digest.update(b"%d\n" % len(part))
            for item in part.items():
                digest.update(dumps(item) + b"\n")
        for query, grades in sorted(self.grades.items()):
            digest.update(dumps([query, sorted(grades.items())]) + b"\n")
        digest.update(dumps(sorted(self.answers.items())))
        return digest.hexdigest()
