"""Read pairs from files and normalise them for a run."""

from __future__ import annotations

from agent.datasets.fields import Pairs, as_pairs, parse_mapping
from agent.datasets.reading import Dataset, read_pairs
from agent.datasets.sources import BadLine
from agent.datasets.spool import Spool, group_by_query, iter_normalised

__all__ = [
    "BadLine",
    "Dataset",
    "Pairs",
    "Spool",
    "as_pairs",
    "group_by_query",
    "iter_normalised",
    "parse_mapping",
    "read_pairs",
]
