"""Pairs from files, and the normalised form that a run keeps of them."""

from __future__ import annotations

from agent.datasets.objects import Pairs, pairs_of
from agent.datasets.reading import (
    Dataset,
    group_by_query,
    iter_normalised,
    normalised_line,
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
    "group_by_query",
    "iter_normalised",
    "normalised_line",
    "normalised_sha256",
    "pairs_of",
    "parse_mapping",
    "read_pairs",
    "write_normalised",
]
