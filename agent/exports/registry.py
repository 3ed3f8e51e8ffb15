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
    """An export format. It writes a single file, or a folder that contains `files`.

    `writer` names a function in `agent.exports` as `module:function`. If the user passes no path, the file or folder is
    created in the run folder, with the name that `default` contains. A format with a `part` writes all parts of a
    dataset to one folder. `{}` in `files` is the name of the part, and `part` is its name if there are no parts.
    Otherwise, each part is an export of its own, such as `train.jsonl`.
    """

    writer: str
    default: str
    files: tuple[str, ...] = ()
    part: str = ""

    @property
    def entries(self) -> frozenset[str]:
        """The files of an export without parts, relative to its folder."""
        return frozenset(name.format(self.part) for name in self.files)

    def write(self, export: Export, draft: Path) -> None:
        """Write an export to `draft`, which is an empty folder if the format has `files`, and a file path otherwise.

        Raises:
            ExtraMissing: a library that the format needs is not installed.
            OSError: a file cannot be written.
        """
        module, function = self.writer.split(":")
        getattr(import_module(f"agent.exports.{module}"), function)(export, draft)

    def list_part_entries(self, parts: Iterable[str]) -> frozenset[str]:
        """Return the files that `write_parts` writes, relative to its folder."""
        names = self.files if self.part else [f"{self._part_path}/{name}" for name in self.files] or [self._part_path]
        return frozenset(name.format(part) for name in names for part in parts)

    def write_parts(self, export: Export, folder: Path) -> None:
        """Write an export that has parts to an empty folder. Raises as `write` does."""
        if self.part:
            self.write(export, folder)
            return
        for name, part in export.iterate_parts(""):
            draft = folder / self._part_path.format(name)
            if self.files:
                draft.mkdir()
            self.write(part, draft)

    @property
    def _part_path(self) -> str:
        return "{}" + Path(self.default).suffix


_COSQA_PLUS = tuple(f"test_agent_{name}.json" for name in ("query", "codebase", "pairs", "pairs_true"))
_BEIR = ("README.md", "corpus.jsonl", "queries.jsonl", *(f"qrels/{{}}.{suffix}" for suffix in ("tsv", "trec", "jsonl")))
FORMATS = {
    "jsonl": Format("tables:write_jsonl", "export.jsonl"),
    "csv": Format("tables:write_csv", "export.csv"),
    "parquet": Format("tables:write_parquet", "export.parquet"),
    "hf": Format("hugging_face:write_dataset", "export-hf", ("README.md", "data/{}.parquet"), "train"),
    "beir": Format("benchmarks:write_beir", "export-beir", _BEIR, "test"),
    "cosqa-plus": Format("benchmarks:write_cosqa_plus", "export-cosqa-plus", _COSQA_PLUS),
}
NAMES = tuple(FORMATS)
