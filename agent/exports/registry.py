"""The formats by name; what writes one is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.exports.rows import Export


@dataclass(frozen=True)
class Format:
    """A format: a file, or a folder of the files `entries`.

    `module` is that in `agent.exports` whose function `write` fills a draft of the file or folder.
    """

    module: str
    default: str
    """The name that it has in the run's folder unless another path is given."""
    entries: frozenset[str] = frozenset()

    def writer(self) -> Callable[[Export, Path], None]:
        """Return what writes the rows of an export to a path: an empty file, or an empty folder."""
        write: Callable[[Export, Path], None] = import_module(f"agent.exports.{self.module}").write
        return write


FORMATS = {
    "jsonl": Format("jsonl", "export.jsonl"),
    "csv": Format("csv", "export.csv"),
    "parquet": Format("parquet", "export.parquet"),
    "hf": Format("hugging_face", "export-hf", frozenset({"README.md", "data/train.parquet"})),
    "beir": Format(
        "beir", "export-beir", frozenset({"corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "qrels/test.trec"})
    ),
    "cosqa-plus": Format(
        "cosqa_plus",
        "export-cosqa-plus",
        frozenset(
            {"test_agent_query.json", "test_agent_codebase.json", "test_agent_pairs.json", "test_agent_pairs_true.json"}
        ),
    ),
}
NAMES = tuple(FORMATS)
