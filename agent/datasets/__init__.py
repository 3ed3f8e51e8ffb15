"""Pairs from files, and the normalised form that a run keeps of them."""

from __future__ import annotations

from agent.datasets.objects import Pairs, pairs_of
from agent.datasets.reading import (
    Dataset,
    as_kept,
    group_by_query,
    iter_normalised,
    normalised_sha256,
    parse_mapping,
    read_pairs,
    write_normalised,
)
from agent.datasets.sources import BadLine

__all__ = [
    "BadLine",
    "Dataset",
    "Pairs",
    "as_kept",
    "group_by_query",
    "iter_normalised",
    "normalised_sha256",
    "pairs_of",
    "parse_mapping",
    "read_pairs",
    "write_normalised",
]
