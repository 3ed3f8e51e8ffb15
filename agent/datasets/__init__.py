"""Pairs from files, and the normalised form that a run keeps of them."""

from __future__ import annotations

from agent.datasets.fields import Pairs, pairs_of, parse_mapping
from agent.datasets.reading import Dataset, read_pairs
from agent.datasets.sources import BadLine
from agent.datasets.spool import Spool, group_by_query, iter_normalised

__all__ = [
    "BadLine",
    "Dataset",
    "Pairs",
    "Spool",
    "group_by_query",
    "iter_normalised",
    "pairs_of",
    "parse_mapping",
    "read_pairs",
]
