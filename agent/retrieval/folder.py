"""Reads and writes retrieval folders. A folder can be read while another process writes to it.

A retrieval folder contains one benchmark, the searchers' rankings, and their scores. `manifest.json` describes the
benchmark and lists the complete rankings. A ranking that is not listed is computed again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks.building import OnUnknownId
from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import open_regular
from agent.errors import RunFolderError, UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.rankings import encode_id
from agent.retrieval.results import Audit, Blindness, Comparisons, RetrievalScores
from agent.retrieval.searchers.trained import TrainingRecord
from agent.runs.store import files
from agent.runs.store.files import Parsed, lock_folder, read_document, replacing, write_document, writing
from agent.runs.store.manifest import as_json, list_differences, utc_now
from agent.types import SCHEMA_VERSION

QRELS = "qrels.tsv"
QUERIES = "queries.jsonl"
RANKINGS = "rankings"
EMBEDDINGS = "embeddings"
SCORES = "scores.json"
SCORES_CSV = "scores.csv"
SCORES_JSONL = "scores.jsonl"
COMPARISON = "comparison.json"
BLINDNESS = "blindness.json"
AUDIT = "audit.json"
POOL = "pool.jsonl"
JUDGED = "judged"
JUDGEMENTS = "judgements.tsv"
JUDGEMENTS_TREC = "judgements.qrels"
# Name of the retrieval folder inside a run folder.
RETRIEVAL_FOLDER = "retrieval"
# Results that become out of date when rankings change, and those that also become out of date when labels change.
RESULTS: Mapping[str, type[RetrievalScores | Comparisons | Blindness | Audit]] = {
    SCORES: RetrievalScores,
    COMPARISON: Comparisons,
    BLINDNESS: Blindness,
    AUDIT: Audit,
}
LABEL_RESULTS = (SCORES, COMPARISON, AUDIT)
_REMEDY = "Remove the file if it can be recreated, or choose another folder."
_MAX_FILE_NAME = 100
T = TypeVar("T")


class RankingRecord(BaseModel):
    """The manifest entry for a complete ranking, with its origin and cost.

    `kind` is `searched` for a ranking computed by a searcher, or `taken` for an imported run file. `depth` is the
    maximum number of snippets per query, not counting ties. It is None if it is unknown (in some imported rankings, and
    in folders written by earlier versions of this package). `seconds` maps `index` and `search` to durations.
    `peak_memory_mb` is measured for the whole process. `found` is the number of lines in the run file. `libraries` maps
    library names to versions. `training` describes how `agent train` trained the searcher.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["searched", "taken"]
    about: str = ""
    notes: list[str] = []
    settings: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    peak_memory_mb: float | None = None
    libraries: dict[str, str] = {}
    found: int
    depth: int | None = None
    finished: str = Field(default_factory=lambda: utc_now().isoformat(timespec="seconds"))
    training: TrainingRecord | None = Field(default=None, exclude_if=lambda value: value is None)


class BenchmarkSource(BaseModel):
    """The arguments for `open_benchmark`. In a manifest, paths are relative to the retrieval folder."""

    path: str
    codes: list[str] = []
    language: str | None = None
    split: str | None = None
    with_generated: bool = Field(default=False, exclude_if=lambda value: not value)
    mapping: str | None = Field(default=None, exclude_if=lambda value: value is None)
    on_unknown_id: OnUnknownId = Field(default="fail", exclude_if=lambda value: value == "fail")


class _Manifest(BaseModel):
    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema")
    kind: Literal["retrieval"] = "retrieval"
    benchmark: dict[str, Any]
    source: BenchmarkSource
    identity: dict[str, Any]
    rankings: dict[str, RankingRecord] = {}


def _build_identity(benchmark: Benchmark, code_view: str, depth: int) -> dict[str, Any]:
    """Return everything that determines a ranking, except the searcher."""
    counts_and_hash = {
        "language": benchmark.language,
        "queries": len(benchmark.queries),
        "codes": len(benchmark.codes),
        "grades": sum(map(len, benchmark.grades.values())),
        "sha256": benchmark.sha256,
    }
    return {"benchmark": counts_and_hash, "code_view": code_view, "depth": depth}


def is_retrieval_folder(path: Path) -> bool:
    """Return whether a path is a retrieval folder. The files in the folder are not checked for damage."""
    return (path / files.MANIFEST).is_file() and (path / RANKINGS).is_dir()


def encode_file_name(name: str) -> str:
    """Percent-encode a searcher's name for use as a file name. A hash replaces the end of a long name."""
    encoded = quote(name, safe="", errors="surrogatepass")
    if len(encoded) > _MAX_FILE_NAME:
        encoded = f"{encoded[: _MAX_FILE_NAME - 17]}-{hashlib.sha256(encoded.encode('ascii')).hexdigest()[:16]}"
    return encoded


class RetrievalFolder:
    """A retrieval folder, opened without a lock. To write, use `prepare_folder` or `open_for_writing`.

    `about` contains the benchmark's name, language and notes. `identity` contains everything that determines a ranking,
    except the searcher: the benchmark's counts and hash, `code_view` and `depth`.

    Raises:
        RunFolderError: the path is not a retrieval folder, or its manifest is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        manifest = self.load_document(files.MANIFEST, _Manifest) if is_retrieval_folder(path) else None
        if manifest is None:
            nested = path / RETRIEVAL_FOLDER
            remedy = f"Pass {nested}." if is_retrieval_folder(nested) else "Create one with: agent retrieval run"
            raise RunFolderError(f"{path} is not a retrieval folder. {remedy}")
        self._manifest = manifest
        self.about: Mapping[str, Any] = manifest.benchmark
        self.identity: Mapping[str, Any] = manifest.identity

    @property
    def rankings(self) -> Mapping[str, RankingRecord]:
        """The complete rankings whose files exist, keyed by searcher, in the order in which they were added."""
        return {name: record for name, record in self._manifest.rankings.items() if self.ranking_path(name).is_file()}

    def check_searchers(self, names: Sequence[str]) -> None:
        """Check that the folder has complete rankings of all these searchers, and at least one.

        Raises:
            UsageError: there is no ranking, or none with one of the names.
        """
        if not self.rankings:
            raise UsageError(f"{self.path} has no complete ranking. Create or resume one with: agent retrieval run")
        if unknown := [name for name in names if name not in self.rankings]:
            available = ", ".join(self.rankings)
            raise UsageError(f"{self.path} has no ranking for {', '.join(unknown)}. Available: {available}.")

    def ranking_path(self, name: str) -> Path:
        """Return the path of a searcher's ranking, a TREC run file."""
        return self.path / RANKINGS / f"{encode_file_name(name)}.trec"

    def reopen_benchmark(self) -> Benchmark:
        """Open the folder's benchmark again.

        Raises:
            RunFolderError: the queries, snippets or grades have changed. The message lists the differences.
            UsageError: the benchmark cannot be opened (see `open_benchmark`).
        """
        source, root = self._manifest.source, self.path.resolve()
        path, *codes = (Path(os.path.normpath(root / relative)) for relative in (source.path, *source.codes))
        benchmark = open_benchmark(path, codes, **source.model_dump(exclude={"path", "codes"}))
        self.check_identity(_build_identity(benchmark, self.identity["code_view"], self.identity["depth"]))
        return benchmark

    def read_queries(self) -> dict[str, str]:
        """Return the queries, keyed by id.

        Raises:
            RunFolderError: the file is missing or damaged.
        """

        def parse(line: bytes) -> tuple[str, str]:
            record = loads(line)
            return str(record["_id"]), str(record["text"])

        return dict(self._read_lines(QUERIES, parse, "an object with _id and text"))

    def read_grades(self) -> dict[str, dict[str, int]]:
        """Return the benchmark's grades, keyed by query id and code id.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        grades: dict[str, dict[str, int]] = {}
        for query, code, grade in self._iterate_rows(QRELS, "query, code and grade"):
            grades.setdefault(query, {})[code] = int(grade)
        return grades

    def iterate_judgements(self) -> Iterator[tuple[str, str, int, str]]:
        """Iterate over all judgements as (query, code, grade, judge). Yields nothing if there are none yet.

        Raises:
            RunFolderError: the file is damaged.
        """
        if (self.path / JUDGEMENTS).exists():
            for query, code, grade, judge in self._iterate_rows(JUDGEMENTS, "query, code, grade and judge"):
                yield query, code, int(grade), judge

    def _iterate_rows(self, name: str, expected: str) -> Iterator[list[str]]:
        def parse(line: bytes) -> list[str]:
            cells = [unquote(cell, errors="surrogatepass") for cell in line.decode().rstrip("\n").split("\t")]
            if len(cells) != expected.count(",") + 2:
                raise ValueError
            int(cells[2])
            return cells

        return self._read_lines(name, parse, expected, skip=1)

    def _read_lines(self, name: str, parse: Callable[[bytes], T], expected: str, skip: int = 0) -> Iterator[T]:
        path, number = self.path / name, 0
        try:
            with open_regular(path) as file:
                for number, line in enumerate(file, start=1):
                    if number > skip:
                        yield parse(line)
        except OSError as error:
            raise RunFolderError(f"{path} cannot be read ({error.strerror or error}). {_REMEDY}") from None
        except (ValueError, TypeError, KeyError):
            message = f"expected {expected}. The file is damaged or was modified. {_REMEDY}"
            raise RunFolderError(f"{path}:{number}: {message}") from None

    def load_document(self, name: str, kind: type[Parsed]) -> Parsed | None:
        """Load a JSON document from the folder, such as the scores. Returns None if the file does not exist.

        Raises:
            RunFolderError: the file is damaged.
        """
        path = self.path / name
        if not path.exists():
            return None
        return read_document(path, kind, expected="a file written by `agent retrieval`", remedy=_REMEDY)

    def check_identity(self, identity: Mapping[str, Any]) -> None:
        """Check that `identity` matches the folder.

        Raises:
            RunFolderError: `identity` does not match. The message lists the differences.
        """
        if lines := list_differences(self.identity, as_json(identity)):
            indented = "".join(f"  {line}\n" for line in lines)
            raise RunFolderError(
                f"{self.path} contains rankings for another benchmark or with other options:\n{indented}"
                "Choose another folder (-o), or pass the benchmark and options that were used to create this one."
            )

    def mark_out_of_date(self, *names: str) -> None:
        """Mark results as out of date, if they exist. The caller must hold the lock.

        Raises:
            RunFolderError: a result is damaged.
            StorageError: a file cannot be written.
        """
        for name in names:
            result = self.load_document(name, RESULTS[name])
            if result is not None and not result.out_of_date:
                write_document(self.path / name, result.model_copy(update={"out_of_date": True}))

    def describe_out_of_date_results(self) -> Iterator[str]:
        """Yield a sentence for each out-of-date result, with the command that refreshes it.

        Raises:
            RunFolderError: a result is damaged.
        """
        for name, command in (
            (SCORES, "score"),
            (COMPARISON, "compare"),
            (BLINDNESS, "score --mutants FILE"),
            (AUDIT, "audit [--against TRAIN] [--equivalents FILE]"),
        ):
            result = self.load_document(name, RESULTS[name])
            if result is not None and result.out_of_date:
                cause = "is out of date: rankings, labels or scores have changed since it was written"
                yield f"{self.path / name} {cause}. Refresh it with: agent retrieval {command} {self.path}"

    def add_ranking(self, name: str, write: Callable[[TextIO], RankingRecord]) -> RankingRecord:
        """Add a ranking. `write` writes the lines to an open file and returns the manifest entry.

        When the ranking is complete, it replaces any ranking with the same name. All results are then marked as out of
        date. The caller must hold the lock.

        Raises:
            RunFolderError: a result is damaged.
            StorageError: a file cannot be written.
        """
        with replacing(self.ranking_path(name)) as draft:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                record = write(file)
            self.mark_out_of_date(*RESULTS)
            if self._manifest.rankings.pop(name, None) is not None:
                write_document(self.path / files.MANIFEST, self._manifest)
        self._manifest.rankings[name] = record
        write_document(self.path / files.MANIFEST, self._manifest)
        return record


@contextmanager
def prepare_folder(
    path: Path, benchmark: Benchmark, source: BenchmarkSource, *, code_view: str, depth: int
) -> Iterator[RetrievalFolder]:
    """Create or open the retrieval folder for a benchmark, and lock it.

    Raises:
        RunFolderError: the path is not a retrieval folder, another process is using it, or it was created for
            another benchmark, code view or depth. The message lists the differences.
        StorageError: the folder cannot be written.
    """
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    others = sorted(name for name in names - {QUERIES, QRELS, RANKINGS} if not name.startswith("."))
    if others and not is_retrieval_folder(path):
        examples = ", ".join(map(repr, others[:3]))
        raise RunFolderError(f"{path} is not a retrieval folder (it contains {examples}). Choose a new folder (-o).")
    identity = as_json(_build_identity(benchmark, code_view, depth))
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    with _lock(path):
        if not (path / files.MANIFEST).exists():
            about = {"name": benchmark.name, "language": benchmark.language, "notes": list(benchmark.notes)}
            first, *codes = (
                os.path.relpath(Path(file).resolve(), path.resolve()) for file in (source.path, *source.codes)
            )
            relative = source.model_copy(update={"path": first, "codes": codes})
            _write_benchmark(path, benchmark)
            # written last, because a folder without a manifest is initialised again
            write_document(path / files.MANIFEST, _Manifest(benchmark=about, source=relative, identity=identity))
        folder = RetrievalFolder(path)
        folder.check_identity(identity)
        yield folder


@contextmanager
def open_for_writing(path: Path) -> Iterator[RetrievalFolder]:
    """Open a retrieval folder and lock it.

    Raises:
        RunFolderError: the path is not a retrieval folder, or the folder is damaged or in use by another process.
    """
    RetrievalFolder(path)
    with _lock(path):
        yield RetrievalFolder(path)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    lock = lock_folder(path)
    try:
        yield
    finally:
        os.close(lock)


def _write_benchmark(path: Path, benchmark: Benchmark) -> None:
    with writing(path):
        (path / RANKINGS).mkdir(exist_ok=True)
    with replacing(path / QUERIES) as draft, draft.open("wb") as file:
        file.writelines(dumps({"_id": name, "text": text}) + b"\n" for name, text in benchmark.queries.items())
    rows = ((query, *judgement) for query, grades in benchmark.grades.items() for judgement in grades.items())
    with replacing(path / QRELS) as draft:
        draft.write_text("query-id\tcorpus-id\tscore\n" + "".join(format_row(*row) for row in rows), encoding="utf-8")


def format_row(*cells: object) -> str:
    """Format a tab-separated row. Cells are percent-encoded in the same way as ids in run files."""
    return "\t".join(encode_id(str(cell)) for cell in cells) + "\n"
