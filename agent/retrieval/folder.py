"""A retrieval folder: one benchmark, the rankings of searchers, and their scores. Readable while it is written.

`manifest.json` names the benchmark and the complete rankings. A ranking that it does not name is made again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from agent.datasets.benchmark import Benchmark
from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import open_regular
from agent.errors import RunFolderError
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.rankings import encode_id
from agent.retrieval.results import Comparisons, RetrievalScores
from agent.store import files
from agent.store.files import Parsed, lock_folder, read_document, remove_drafts, replacing, writing
from agent.store.manifest import as_json, list_differences, utc_now
from agent.types import SCHEMA_VERSION

QRELS = "qrels.tsv"
QUERIES = "queries.jsonl"
RANKINGS = "rankings"
EMBEDDINGS = "embeddings"
SCORES = "scores.json"
SCORES_CSV = "scores.csv"
SCORES_JSONL = "scores.jsonl"
COMPARISON = "comparison.json"
POOL = "pool.jsonl"
JUDGED = "judged"
JUDGEMENTS = "judgements.tsv"
JUDGEMENTS_TREC = "judgements.qrels"
# The folder in that of a run.
RETRIEVAL_FOLDER = "retrieval"
# What is computed from rankings and labels, and is out of date when one of them changes.
RESULTS: Mapping[str, type[RetrievalScores | Comparisons]] = {SCORES: RetrievalScores, COMPARISON: Comparisons}
_WRITTEN_FILES = (
    files.MANIFEST,
    QUERIES,
    QRELS,
    SCORES,
    SCORES_CSV,
    SCORES_JSONL,
    COMPARISON,
    POOL,
    JUDGEMENTS,
    JUDGEMENTS_TREC,
)
_REMEDY = "Remove it if it can be made again, or choose another folder"
_MAX_FILE_NAME = 100
T = TypeVar("T")


class RankingRecord(BaseModel):
    """The manifest's entry of a complete ranking: who made it, and what that took.

    `kind` is `searched`, or `taken` for a file of another tool. `depth` is the largest number of codes per query, ties
    left aside; None in folders of earlier versions. `seconds` are by step (`index`, `search`), `peak_memory_mb` is the
    process's, `found` counts lines. `libraries` are versions by name.
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


class BenchmarkSource(BaseModel):
    """How a benchmark is opened (`open_benchmark`); in a manifest its paths are relative to the folder."""

    path: str
    codes: list[str] = []
    language: str | None = None
    split: str | None = None


class _Manifest(BaseModel):
    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema")
    kind: Literal["retrieval"] = "retrieval"
    benchmark: dict[str, Any]
    source: BenchmarkSource
    identity: dict[str, Any]
    rankings: dict[str, RankingRecord] = {}


def _build_identity(benchmark: Benchmark, code_view: str, depth: int) -> dict[str, Any]:
    """Return what decides rankings besides the searcher, for others to compare."""
    known = {
        "language": benchmark.language,
        "queries": len(benchmark.queries),
        "codes": len(benchmark.codes),
        "grades": sum(map(len, benchmark.grades.values())),
        "sha256": benchmark.sha256,
    }
    return {"benchmark": known, "code_view": code_view, "depth": depth}


def is_retrieval_folder(path: Path) -> bool:
    """Return whether a folder is a retrieval folder, which may be damaged."""
    return (path / files.MANIFEST).is_file() and (path / RANKINGS).is_dir()


def encode_file_name(name: str) -> str:
    """Return a file name for a searcher of any name: percent-encoded, and shortened with a hash if it is long."""
    quoted = quote(name, safe="", errors="surrogatepass")
    if len(quoted) > _MAX_FILE_NAME:
        quoted = f"{quoted[: _MAX_FILE_NAME - 17]}-{hashlib.sha256(quoted.encode('ascii')).hexdigest()[:16]}"
    return quoted


class RetrievalFolder:
    """The content of a retrieval folder. Takes no lock; to write, use `prepare_folder` or `open_for_writing`.

    `about` is the benchmark's name, language and notes. `identity` is what decides rankings besides the searcher: the
    benchmark by counts and hash, `code_view`, `depth`.

    Raises:
        RunFolderError: the path is no retrieval folder, or its manifest is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        manifest = self.load_document(files.MANIFEST, _Manifest) if is_retrieval_folder(path) else None
        if manifest is None:
            remedy = (
                f"give {path / RETRIEVAL_FOLDER}"
                if is_retrieval_folder(path / RETRIEVAL_FOLDER)
                else "make one by: agent retrieval run"
            )
            raise RunFolderError(f"{path}: is no retrieval folder; {remedy}")
        self._manifest = manifest
        self.about: Mapping[str, Any] = manifest.benchmark
        self.identity: Mapping[str, Any] = manifest.identity

    @property
    def rankings(self) -> Mapping[str, RankingRecord]:
        """The complete rankings by searcher, in the order in which they were made. A removed file is left out."""
        return {name: each for name, each in self._manifest.rankings.items() if self.ranking_path(name).is_file()}

    def ranking_path(self, name: str) -> Path:
        """Return the file of a searcher's ranking (TREC)."""
        return self.path / RANKINGS / f"{encode_file_name(name)}.trec"

    def reopen_benchmark(self) -> Benchmark:
        """Open the benchmark again.

        Raises:
            RunFolderError: its queries, codes or grades differ from the folder's; the message lists the differences.
            UsageError: what `open_benchmark` raises.
        """
        source = self._manifest.source
        path, *codes = (Path(os.path.normpath(self.path.resolve() / each)) for each in (source.path, *source.codes))
        benchmark = open_benchmark(path, codes, language=source.language, split=source.split)
        self.check_identity(_build_identity(benchmark, self.identity["code_view"], self.identity["depth"]))
        return benchmark

    def read_queries(self) -> dict[str, str]:
        """Return the queries by id.

        Raises:
            RunFolderError: the file is missing or damaged.
        """

        def parse(line: bytes) -> tuple[str, str]:
            record = loads(line)
            return str(record["_id"]), str(record["text"])

        return dict(self._read_lines(QUERIES, parse, "an object with _id and text"))

    def read_grades(self) -> dict[str, dict[str, int]]:
        """Return the benchmark's grades by query and code.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        grades: dict[str, dict[str, int]] = {}
        for query, code, grade in self._iterate_rows(QRELS, "query, code and grade"):
            grades.setdefault(query, {})[code] = int(grade)
        return grades

    def iterate_judgements(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield query, code, grade and judge of each judgement, if others than the benchmark have judged.

        Raises:
            RunFolderError: the file is damaged.
        """
        if (self.path / JUDGEMENTS).exists():
            for query, code, grade, judge in self._iterate_rows(JUDGEMENTS, "query, code, grade and judge"):
                yield query, code, int(grade), judge

    def _iterate_rows(self, name: str, expected: str) -> Iterator[list[str]]:
        """Yield the rows below a table's head."""

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
            raise RunFolderError(f"{path}: cannot be read ({error.strerror or error}). {_REMEDY}") from None
        except (ValueError, TypeError, KeyError):
            raise RunFolderError(f"{path}:{number}: is not {expected}: the file was changed. {_REMEDY}") from None

    def load_document(self, name: str, kind: type[Parsed]) -> Parsed | None:
        """Return a document of the folder, such as its scores; None where there is none.

        Raises:
            RunFolderError: it is damaged.
        """
        path = self.path / name
        if not path.exists():
            return None
        return read_document(path, kind, expected="what `agent retrieval` writes", remedy=_REMEDY)

    def check_identity(self, identity: Mapping[str, Any]) -> None:
        """Raise a RunFolderError with the differences unless an identity is that of the folder."""
        if lines := list_differences(self.identity, as_json(identity)):
            listed = "".join(f"  {line}\n" for line in lines)
            raise RunFolderError(
                f"{self.path}: holds rankings of another benchmark, or made otherwise:\n{listed}"
                "Choose another folder (-o), or go on with the benchmark and the options of this one."
            )

    def mark_out_of_date(self, *names: str) -> None:
        """Mark these results, if they exist, as computed from other rankings or labels. The caller has the lock.

        Raises:
            RunFolderError: a result is damaged.
            StorageError: a file cannot be written.
        """
        for name in names:
            result = self.load_document(name, RESULTS[name])
            if result is not None and not result.out_of_date:
                write_json(self.path / name, result.model_copy(update={"out_of_date": True}))

    def describe_out_of_date_results(self) -> Iterator[str]:
        """Yield a sentence for each result that is out of date, with the command that refreshes it.

        Raises:
            RunFolderError: a result is damaged.
        """
        for name, command in ((SCORES, "score"), (COMPARISON, "compare")):
            result = self.load_document(name, RESULTS[name])
            if result is not None and result.out_of_date:
                cause = "is out of date: rankings, labels or scores have changed since"
                yield f"{self.path / name} {cause}. Refresh it by: agent retrieval {command} {self.path}"

    def add_ranking(self, name: str, write: Callable[[TextIO], RankingRecord]) -> RankingRecord:
        """Add a ranking. `write` writes its lines to the file that it is given, and returns its record.

        The new ranking replaces an earlier one of that name once it is complete. Scores and comparison are then marked
        as out of date. The caller has the lock.

        Raises:
            RunFolderError: scores or comparison are damaged.
            StorageError: a file cannot be written.
        """
        with replacing(self.ranking_path(name)) as draft:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                record = write(file)
            self.mark_out_of_date(*RESULTS)
            if self._manifest.rankings.pop(name, None) is not None:
                write_json(self.path / files.MANIFEST, self._manifest)
        self._manifest.rankings[name] = record
        write_json(self.path / files.MANIFEST, self._manifest)
        return record


@contextmanager
def prepare_folder(
    path: Path, benchmark: Benchmark, source: BenchmarkSource, *, code_view: str, depth: int
) -> Iterator[RetrievalFolder]:
    """Make the folder of a benchmark's rankings, or open the one that is there, and hold its lock.

    Raises:
        RunFolderError: the folder is of another benchmark, code view or depth (the message has the differences), in use
            by another process, or no retrieval folder.
        StorageError: it cannot be written.
    """
    names = {each.name for each in path.iterdir()} if path.is_dir() else set()
    others = sorted(name for name in names - {QUERIES, QRELS, RANKINGS} if not name.startswith("."))
    if others and not is_retrieval_folder(path):
        listed = ", ".join(map(repr, others[:3]))
        raise RunFolderError(f"{path}: is no retrieval folder (it holds {listed}); give a new one (-o)")
    identity = as_json(_build_identity(benchmark, code_view, depth))
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    with _lock(path):
        if not (path / files.MANIFEST).exists():
            about = {"name": benchmark.name, "language": benchmark.language, "notes": list(benchmark.notes)}
            first, *codes = (
                os.path.relpath(Path(each).resolve(), path.resolve()) for each in (source.path, *source.codes)
            )
            own = source.model_copy(update={"path": first, "codes": codes})
            _write_benchmark(path, benchmark)
            # last: a folder without manifest is made again
            write_json(path / files.MANIFEST, _Manifest(benchmark=about, source=own, identity=identity))
        folder = RetrievalFolder(path)
        folder.check_identity(identity)
        yield folder


@contextmanager
def open_for_writing(path: Path) -> Iterator[RetrievalFolder]:
    """Open a retrieval folder to write to it, and hold its lock.

    Raises:
        RunFolderError: the path is no retrieval folder, or the folder is damaged or in use by another process.
    """
    RetrievalFolder(path)
    with _lock(path):
        yield RetrievalFolder(path)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Lock the folder, and remove files left by killed writers."""
    lock = lock_folder(path)
    try:
        remove_drafts(path, _WRITTEN_FILES)
        with writing(path):
            for each in (path / RANKINGS).glob(".*.tmp"):
                each.unlink(missing_ok=True)
        yield
    finally:
        os.close(lock)


def _write_benchmark(path: Path, benchmark: Benchmark) -> None:
    with writing(path):
        (path / RANKINGS).mkdir(exist_ok=True)
    with replacing(path / QUERIES) as draft, draft.open("wb") as file:
        file.writelines(dumps({"_id": name, "text": text}) + b"\n" for name, text in benchmark.queries.items())
    rows = ((query, *graded) for query, grades in benchmark.grades.items() for graded in grades.items())
    with replacing(path / QRELS) as draft:
        draft.write_text("query-id\tcorpus-id\tscore\n" + "".join(format_row(*each) for each in rows), encoding="utf-8")


def write_json(path: Path, document: BaseModel) -> None:
    """Write a document of a retrieval folder.

    Raises:
        StorageError: the file cannot be written; the earlier one stays.
    """
    with replacing(path) as draft:
        draft.write_bytes(dumps(document.model_dump(mode="json", by_alias=True), indent=True) + b"\n")


def format_row(*cells: object) -> str:
    """Return a line of a table, with its cells percent-encoded as ids are in run files."""
    return "\t".join(encode_id(str(cell)) for cell in cells) + "\n"
