"""Export formats, keyed by name. Each format's module is imported on first use."""

from __future__ import annotations

from collections.abc import Iterable
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
    created in the run folder, with the name that `default` contains. `part_entries` are the files of a folder that
    contains all parts of a dataset, with `{}` for the name of the part. If it is empty, each part is an export of its
    own, such as `train.jsonl`.
    """

    writer: str
    default: str
    entries: frozenset[str] = frozenset()
    part_entries: tuple[str, ...] = ()

    def write(self, export: Export, draft: Path) -> None:
        """Write an export to `draft`, which is an empty folder if the format has `entries`, and a file path otherwise.

        Raises:
            ExtraMissing: a library that the format needs is not installed.
            OSError: a file cannot be written.
        """
        module, function = self.writer.split(":")
        getattr(import_module(f"agent.exports.{module}"), function)(export, draft)

    def list_part_entries(self, parts: Iterable[str]) -> frozenset[str]:
        """Return the files that `write_parts` writes, relative to its folder."""
        names = self.part_entries or [f"{self._part_path}/{entry}" for entry in self.entries] or [self._part_path]
        return frozenset(name.format(part) for name in names for part in parts)

    def write_parts(self, export: Export, folder: Path) -> None:
        """Write an export that has parts to an empty folder. Raises as `write` does."""
        if self.part_entries:
            self.write(export, folder)
            return
        for name, part in export.iterate_parts(""):
            draft = folder / self._part_path.format(name)
            if self.entries:
                draft.mkdir()
            self.write(part, draft)

    @property
    def _part_path(self) -> str:
        return "{}" + Path(self.default).suffix


FORMATS = {
    "jsonl": Format("tables:write_jsonl", "export.jsonl"),
    "csv": Format("tables:write_csv", "export.csv"),
    "parquet": Format("tables:write_parquet", "export.parquet"),
    "hf": Format(
        "hugging_face:write_dataset",
        "export-hf",
        frozenset({"README.md", "data/train.parquet"}),
        ("README.md", "data/{}.parquet"),
    ),
    "beir": Format(
        "benchmarks:write_beir",
        "export-beir",
        frozenset({"corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "qrels/test.trec"}),
        ("corpus.jsonl", "queries.jsonl", "qrels/{}.tsv", "qrels/{}.trec"),
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
