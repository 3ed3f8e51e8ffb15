"""Read pairs from files and normalise them for a run."""

from __future__ import annotations

from agent.datasets.fields import Pairs, as_pairs, parse_mapping
from agent.datasets.pair_store import PairStore, group_by_query, iter_normalised
from agent.datasets.reading import Dataset, read_pairs
from agent.datasets.sources import BadLine

__all__ = [
    "BadLine",
    "Dataset",
    "PairStore",
    "Pairs",
    "as_pairs",
    "group_by_query",
    "iter_normalised",
    "parse_mapping",
    "read_pairs",
]
