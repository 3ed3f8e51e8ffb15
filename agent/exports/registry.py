"""Export formats, keyed by name. Each format's module is imported on first use."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.exports.rows import Export


@dataclass(frozen=True)
class Format:
    """An export format. It writes a single file, or a folder that contains the files in `entries`.

    `writer` names a function in `agent.exports` as `module:function`. If the user passes no path, the file or folder is
    created in the run folder, with the name that `default` contains.
    """

    writer: str
    default: str
    entries: frozenset[str] = frozenset()

    def write(self, export: Export, draft: Path) -> None:
        """Write an export to `draft`, which is an empty folder if the format has `entries`, and a file path otherwise.

        Raises:
            ExtraMissing: a library that the format needs is not installed.
            OSError: a file cannot be written.
        """
        module, function = self.writer.split(":")
        getattr(import_module(f"agent.exports.{module}"), function)(export, draft)


FORMATS = {
    "jsonl": Format("tables:write_jsonl", "export.jsonl"),
    "csv": Format("tables:write_csv", "export.csv"),
    "parquet": Format("tables:write_parquet", "export.parquet"),
    "hf": Format("hugging_face:write_dataset", "export-hf", frozenset({"README.md", "data/train.parquet"})),
    "beir": Format(
        "benchmarks:write_beir",
        "export-beir",
        frozenset({"corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "qrels/test.trec"}),
    ),
    "cosqa-plus": Format(
        "benchmarks:write_cosqa_plus",
        "export-cosqa-plus",
        frozenset(
            {"test_agent_query.json", "test_agent_codebase.json", "test_agent_pairs.json", "test_agent_pairs_true.json"}
        ),
    ),
}
NAMES = tuple(FORMATS)
