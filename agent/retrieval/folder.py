"""A retrieval folder: one benchmark, what searchers found in it, and how well. Readable while it is written.

`manifest.json` says which benchmark it is and which rankings are whole; what is not named there is begun anew.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from agent.datasets.benchmark import Benchmark, Grades
from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import open_regular
from agent.errors import RunFolderError
from agent.retrieval.benchmark import open_benchmark
from agent.store import files
from agent.store.files import Record, lock_folder, read_document, remove_drafts, replacing, writing
from agent.store.manifest import as_json, differences
from agent.types import SCHEMA_VERSION

QRELS = "qrels.tsv"
QUERIES = "queries.jsonl"
RANKINGS = "rankings"
EMBEDDINGS = "embeddings"
SCORES = "scores.json"
SCORES_CSV = "scores.csv"
SCORES_JSONL = "scores.jsonl"
"""By query, as the table."""
COMPARISON = "comparison.json"
POOL = "pool.jsonl"
JUDGED = "judged"
JUDGEMENTS = "judgements.tsv"
JUDGEMENTS_TREC = "judgements.qrels"
IN_RUN = "retrieval"
"""The folder in that of a run."""
OF_SCORES = (SCORES, SCORES_CSV, SCORES_JSONL, COMPARISON)
"""What is computed from rankings, and goes when one of them changes."""
_QRELS_HEAD = "query-id\tcorpus-id\tscore\n"  # as BEIR has it
_GRADE = re.compile(r"-?[0-9]{1,18}")
_REMEDY = "Choose another folder (-o)"
_LONGEST = 100


class Ranked(BaseModel):
    """A ranking that is whole: by whom, and what it took.

    `kind` is `searched`, or `taken` for a file of somebody else's. `seconds` are by step (`index`, `search`),
    `peak_memory_mb` is the process's, `found` counts lines. `libraries` are versions by name.
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
    finished: str


class Source(BaseModel):
    """How a benchmark is opened (`open_benchmark`); in a manifest its paths are relative to the folder."""

    path: str
    codes: list[str] = []
    language: str | None = None
    split: str | None = None


class _Manifest(BaseModel):
    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema")
    kind: Literal["retrieval"] = "retrieval"
    benchmark: dict[str, Any]
    source: Source
    identity: dict[str, Any]
    rankings: dict[str, Ranked] = {}


def identity_of(benchmark: Benchmark, *, code_view: str, depth: int) -> dict[str, Any]:
    """Return what decides rankings besides the searcher: the benchmark by counts and hash, code view, depth."""
    counts = {
        "queries": len(benchmark.queries),
        "codes": len(benchmark.codes),
        "grades": sum(map(len, benchmark.grades.values())),
    }
    known = {"language": benchmark.language, **counts, "sha256": benchmark.sha256}
    return {"benchmark": known, "code_view": code_view, "depth": depth}


def default_folder(benchmark: Path) -> Path:
    """Return where a benchmark's rankings go by default: into the run that it is, else into `runs/`."""
    if (benchmark / files.ANNOTATIONS).is_file():
        return benchmark / IN_RUN
    name = file_name(benchmark.resolve().name.split(".")[0])
    return Path("runs") / f"retrieval-{name or 'benchmark'}"


def is_retrieval(path: Path) -> bool:
    """Say whether a folder is one of these, whole or damaged."""
    return (path / files.MANIFEST).is_file() and (path / RANKINGS).is_dir()


def file_name(name: str) -> str:
    """Return a file's name for a searcher's, which may hold anything: percent-encoded, of long ones a hash."""
    encoded = _encoded(name)
    if len(encoded) <= _LONGEST:
        return encoded
    return f"{encoded[: _LONGEST - 17]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


class RetrievalFolder:
    """What a retrieval folder holds. Takes no lock; to write, use `begun` or `held`.

    Raises:
        RunFolderError: there is none, or its manifest is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such folder; make it by: agent retrieval run BENCHMARK -o {path}")
        try:
            self._manifest = read_document(
                path / files.MANIFEST, _Manifest, what="the manifest of a retrieval folder", remedy=_REMEDY
            )
        except FileNotFoundError:
            raise RunFolderError(
                f"{path}: is not a retrieval folder (no {files.MANIFEST} in it); make one by: agent retrieval run"
            ) from None

    @property
    def about(self) -> Mapping[str, Any]:
        """The benchmark's name, language and notes."""
        return self._manifest.benchmark

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides rankings besides the searcher (`identity_of`)."""
        return self._manifest.identity

    @property
    def depth(self) -> int:
        """How many codes were asked for of each query."""
        return int(self.identity["depth"])

    @property
    def rankings(self) -> Mapping[str, Ranked]:
        """The rankings that are whole, by searcher, in the order in which they came."""
        return self._manifest.rankings

    def ranking(self, name: str) -> Path:
        """Return the file of a searcher's ranking (TREC)."""
        return self.path / RANKINGS / f"{file_name(name)}.trec"

    def benchmark(self) -> Benchmark:
        """Open the benchmark again.

        Raises:
            RunFolderError: its queries, codes or grades are not those of the folder any more; says which.
            UsageError: what `open_benchmark` raises.
        """
        source = self._manifest.source
        path, *codes = (Path(os.path.normpath(self.path / each)) for each in (source.path, *source.codes))
        found = open_benchmark(path, codes, language=source.language, split=source.split)
        self._same(identity_of(found, code_view=self.identity["code_view"], depth=self.depth))
        return found

    def queries(self) -> dict[str, str]:
        """Return the queries by id.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        found = {}
        for number, line in self._lines(QUERIES):
            try:
                record = loads(line)
                found[str(record["_id"])] = str(record["text"])
            except (ValueError, TypeError, KeyError):
                raise self._damaged(QUERIES, number, "an object with _id and text") from None
        return found

    def grades(self) -> dict[str, Grades]:
        """Return the benchmark's grades by query and code.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        found: dict[str, dict[str, int]] = {}
        for query, code, grade in self._table(QRELS, 3, "query, code and grade"):
            found.setdefault(query, {})[code] = int(grade)
        return dict(found)

    def judgements(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield query, code, grade and who judged, of the benchmark and of others; nothing where no others did.

        Raises:
            RunFolderError: the file is damaged.
        """
        if (self.path / JUDGEMENTS).exists():
            for query, code, grade, judge in self._table(JUDGEMENTS, 4, "query, code, grade and judge"):
                yield query, code, int(grade), judge

    def _table(self, name: str, columns: int, expected: str) -> Iterator[list[str]]:
        for number, line in self._lines(name):
            cells = line.decode("ascii", "replace").rstrip("\n").split("\t")
            if number > 1 and (len(cells) != columns or not _GRADE.fullmatch(cells[2])):
                raise self._damaged(name, number, f"{expected}, divided by tabs")
            if number > 1:
                yield [_decoded(cell) for cell in cells]

    def document(self, name: str, kind: type[Record]) -> Record | None:
        """Return a document of the folder, such as its scores; None where there is none.

        Raises:
            RunFolderError: it is damaged.
        """
        try:
            return read_document(self.path / name, kind, what="what `agent retrieval` writes", remedy="Make it anew")
        except FileNotFoundError:
            return None

    def _same(self, identity: Mapping[str, Any]) -> None:
        if found := differences(self.identity, as_json(identity)):
            listed = "".join(f"  {line}\n" for line in found)
            raise RunFolderError(
                f"{self.path}: holds rankings of another benchmark, or made otherwise:\n{listed}"
                "Choose another folder (-o), or go on with the benchmark and the options of this one."
            )

    def forget(self, name: str) -> None:
        """Drop a ranking, and the scores and comparisons that it is in; the caller holds the lock."""
        with writing(self.path):
            for each in OF_SCORES:
                (self.path / each).unlink(missing_ok=True)
        if self._manifest.rankings.pop(name, None) is not None:
            self._save()

    @contextmanager
    def adding(self, name: str) -> Iterator[Path]:
        """Give the file to write a ranking to; it is there once it is whole. `added` then enters it.

        Raises:
            StorageError: it cannot be written.
        """
        self.forget(name)
        with replacing(self.ranking(name)) as draft:
            yield draft

    def added(self, name: str, ranked: Ranked) -> None:
        """Enter a ranking that is whole.

        Raises:
            StorageError: the manifest cannot be written.
        """
        self._manifest.rankings[name] = ranked
        self._save()

    def _save(self) -> None:
        _write(self.path, self._manifest)

    def _lines(self, name: str) -> Iterator[tuple[int, bytes]]:
        try:
            with open_regular(self.path / name) as file:
                yield from enumerate(file, start=1)
        except OSError as error:
            raise RunFolderError(f"{self.path / name}: cannot be read ({error.strerror or error}). {_REMEDY}") from None

    def _damaged(self, name: str, number: int, expected: str) -> RunFolderError:
        return RunFolderError(f"{self.path / name}:{number}: is not {expected}: the file was changed. {_REMEDY}")


@contextmanager
def begun(path: Path, benchmark: Benchmark, source: Source, *, code_view: str, depth: int) -> Iterator[RetrievalFolder]:
    """Give the folder of a benchmark's rankings to write to, locked; it is made where there is none.

    Raises:
        RunFolderError: it is of another benchmark, code view or depth (the message has the differences), in use by
            another process, or no retrieval folder.
        StorageError: it cannot be written.
    """
    _check_free(path)
    identity = as_json(identity_of(benchmark, code_view=code_view, depth=depth))
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    lock = lock_folder(path)
    try:
        _tidy(path)
        if not (path / files.MANIFEST).exists():
            about = {"name": benchmark.name, "language": benchmark.language, "notes": list(benchmark.notes)}
            home, places = path.resolve(), [Path(each).resolve() for each in (source.path, *source.codes)]
            relative = [os.path.relpath(each, home) for each in places]
            own = source.model_copy(update={"path": relative[0], "codes": relative[1:]})
            _begin(path, benchmark, _Manifest(benchmark=about, source=own, identity=identity))
        folder = RetrievalFolder(path)
        folder._same(identity)
        yield folder
    finally:
        os.close(lock)


@contextmanager
def held(path: Path) -> Iterator[RetrievalFolder]:
    """Give a folder that is there to write to, locked.

    Raises:
        RunFolderError: it is none, damaged, or in use by another process.
    """
    RetrievalFolder(path)
    lock = lock_folder(path)
    try:
        _tidy(path)
        yield RetrievalFolder(path)
    finally:
        os.close(lock)


def now() -> str:
    """Return the time for a manifest."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _begin(path: Path, benchmark: Benchmark, manifest: _Manifest) -> None:
    with writing(path):
        (path / RANKINGS).mkdir(exist_ok=True)
    with replacing(path / QUERIES) as draft, draft.open("wb") as file:
        file.writelines(dumps({"_id": name, "text": text}) + b"\n" for name, text in benchmark.queries.items())
    with replacing(path / QRELS) as draft, draft.open("w", encoding="ascii", newline="\n") as table:
        table.write(_QRELS_HEAD)
        for query, grades in benchmark.grades.items():
            table.writelines(row(query, code, grade) for code, grade in grades.items())
    # last: whoever is killed before begins anew
    _write(path, manifest)


def _write(path: Path, manifest: _Manifest) -> None:
    with replacing(path / files.MANIFEST) as draft:
        draft.write_bytes(dumps(manifest.model_dump(mode="json", by_alias=True), indent=True) + b"\n")


def row(*cells: object) -> str:
    """Return a line of a table; what is not plain in a cell is percent-encoded."""
    return "\t".join(quote(str(cell), safe=" /:+", errors="surrogatepass") for cell in cells) + "\n"


def _encoded(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


def _decoded(text: str) -> str:
    return unquote(text, errors="surrogatepass")


def _check_free(path: Path) -> None:
    """Refuse a folder that holds something else."""
    if "\0" in str(path):
        raise RunFolderError(f"{str(path)!r}: a path cannot hold NUL; give another folder (-o)")
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"{path}: is a file; give a folder (-o)")
    if is_retrieval(path) or not path.exists():
        return
    others = sorted(
        each.name for each in path.iterdir() if each.name not in (QUERIES, QRELS, RANKINGS) and each.name[0] != "."
    )
    if others:
        listed = ", ".join(map(repr, others[:3]))
        raise RunFolderError(f"{path}: is not a retrieval folder (it holds {listed}); give a new one (-o)")


def _tidy(path: Path) -> None:
    remove_drafts(path, (files.MANIFEST, QUERIES, QRELS, *OF_SCORES, POOL, JUDGEMENTS, JUDGEMENTS_TREC))
    if (path / RANKINGS).is_dir():
        with writing(path):
            for each in (path / RANKINGS).glob(".*.tmp"):
                each.unlink(missing_ok=True)
