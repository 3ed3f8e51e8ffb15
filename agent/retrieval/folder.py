"""A retrieval folder: one benchmark, what searchers found in it, and how well. Readable while it is written.

`manifest.json` says which benchmark it is and which rankings are whole; what is not named there is begun anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from agent.datasets.benchmark import Benchmark
from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import open_regular
from agent.errors import RunFolderError
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.rankings import encoded
from agent.store import files
from agent.store.files import Parsed, lock_folder, read_document, remove_drafts, replacing, writing
from agent.store.manifest import as_json, differences, utc_now
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
IN_RUN = "retrieval"
"""The folder in that of a run."""
OF_SCORES = (SCORES, SCORES_CSV, SCORES_JSONL, COMPARISON)
"""What is computed from rankings, and goes when one of them changes."""
_QRELS_HEAD = "query-id\tcorpus-id\tscore\n"  # as BEIR has it
_REMEDY = "Choose another folder"
_LONGEST = 100
T = TypeVar("T")


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
    finished: str = Field(default_factory=lambda: utc_now().isoformat(timespec="seconds"))


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


def _identity(benchmark: Benchmark, code_view: str, depth: int) -> dict[str, Any]:
    """Return what decides rankings besides the searcher, for others to compare."""
    known = {
        "language": benchmark.language,
        "queries": len(benchmark.queries),
        "codes": len(benchmark.codes),
        "grades": sum(map(len, benchmark.grades.values())),
        "sha256": benchmark.sha256,
    }
    return {"benchmark": known, "code_view": code_view, "depth": depth}


def is_retrieval(path: Path) -> bool:
    """Say whether a folder is one of these, whole or damaged."""
    return (path / files.MANIFEST).is_file() and (path / RANKINGS).is_dir()


def file_name(name: str) -> str:
    """Return a file's name for a searcher's, which may hold anything: percent-encoded, of long ones a hash."""
    found = quote(name, safe="", errors="surrogatepass")
    if len(found) > _LONGEST:
        found = f"{found[: _LONGEST - 17]}-{hashlib.sha256(found.encode('ascii')).hexdigest()[:16]}"
    return found


class RetrievalFolder:
    """What a retrieval folder holds. Takes no lock; to write, use `begun` or `held`.

    `about` is the benchmark's name, language and notes. `identity` is what decides rankings besides the searcher: the
    benchmark by counts and hash, `code_view`, `depth`.

    Raises:
        RunFolderError: there is none, or its manifest is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        found = self.document(files.MANIFEST, _Manifest) if is_retrieval(path) else None
        if found is None:
            remedy = f"give {path / IN_RUN}" if is_retrieval(path / IN_RUN) else "make one by: agent retrieval run"
            raise RunFolderError(f"{path}: is no retrieval folder; {remedy}")
        self._manifest = found
        self.about: Mapping[str, Any] = found.benchmark
        self.identity: Mapping[str, Any] = found.identity

    @property
    def rankings(self) -> Mapping[str, Ranked]:
        """The rankings that are whole, by searcher, as they came; whose file was removed is left out."""
        return {name: each for name, each in self._manifest.rankings.items() if self.ranking(name).is_file()}

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
        path, *codes = (Path(os.path.normpath(self.path.resolve() / each)) for each in (source.path, *source.codes))
        found = open_benchmark(path, codes, language=source.language, split=source.split)
        self._check(_identity(found, self.identity["code_view"], self.identity["depth"]))
        return found

    def queries(self) -> dict[str, str]:
        """Return the queries by id.

        Raises:
            RunFolderError: the file is missing or damaged.
        """

        def parse(line: bytes) -> tuple[str, str]:
            record = loads(line)
            return str(record["_id"]), str(record["text"])

        return dict(self._read(QUERIES, parse, "an object with _id and text"))

    def grades(self) -> dict[str, dict[str, int]]:
        """Return the benchmark's grades by query and code.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        found: dict[str, dict[str, int]] = {}
        for query, code, grade in self._table(QRELS, "query, code and grade"):
            found.setdefault(query, {})[code] = int(grade)
        return found

    def judgements(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield query, code, grade and who judged, of the benchmark and of others; nothing where no others did.

        Raises:
            RunFolderError: the file is damaged.
        """
        if (self.path / JUDGEMENTS).exists():
            for query, code, grade, judge in self._table(JUDGEMENTS, "query, code, grade and judge"):
                yield query, code, int(grade), judge

    def _table(self, name: str, expected: str) -> Iterator[list[str]]:
        """Yield the rows below a table's head."""

        def parse(line: bytes) -> list[str]:
            cells = [unquote(cell, errors="surrogatepass") for cell in line.decode().rstrip("\n").split("\t")]
            if len(cells) != expected.count(",") + 2:
                raise ValueError
            int(cells[2])
            return cells

        return self._read(name, parse, expected, skip=1)

    def _read(self, name: str, parse: Callable[[bytes], T], expected: str, skip: int = 0) -> Iterator[T]:
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

    def document(self, name: str, kind: type[Parsed]) -> Parsed | None:
        """Return a document of the folder, such as its scores; None where there is none.

        Raises:
            RunFolderError: it is damaged.
        """
        path = self.path / name
        if not path.exists():
            return None
        return read_document(path, kind, what="what `agent retrieval` writes", remedy=_REMEDY)

    def _check(self, identity: Mapping[str, Any]) -> None:
        if found := differences(self.identity, as_json(identity)):
            listed = "".join(f"  {line}\n" for line in found)
            raise RunFolderError(
                f"{self.path}: holds rankings of another benchmark, or made otherwise:\n{listed}"
                "Choose another folder (-o), or go on with the benchmark and the options of this one."
            )

    @contextmanager
    def adding(self, name: str) -> Iterator[Path]:
        """Give the file to write a ranking to; it is there once it is whole, and `added` enters it.

        Then an earlier one of that name goes, and with it all scores. The caller has the lock.

        Raises:
            StorageError: it cannot be written.
        """
        with replacing(self.ranking(name)) as draft:
            yield draft
            for each in OF_SCORES:
                (self.path / each).unlink(missing_ok=True)
            if self._manifest.rankings.pop(name, None) is not None:
                _save(self.path, self._manifest)

    def added(self, name: str, ranked: Ranked) -> None:
        """Enter a ranking that is whole.

        Raises:
            StorageError: the manifest cannot be written.
        """
        self._manifest.rankings[name] = ranked
        _save(self.path, self._manifest)


@contextmanager
def begun(path: Path, benchmark: Benchmark, source: Source, *, code_view: str, depth: int) -> Iterator[RetrievalFolder]:
    """Give the folder of a benchmark's rankings to write to, locked; it is made where there is none.

    Raises:
        RunFolderError: it is of another benchmark, code view or depth (the message has the differences), in use by
            another process, or no retrieval folder.
        StorageError: it cannot be written.
    """
    names = {each.name for each in path.iterdir()} if path.is_dir() else set()
    others = sorted(name for name in names - {QUERIES, QRELS, RANKINGS} if not name.startswith("."))
    if others and not is_retrieval(path):
        listed = ", ".join(map(repr, others[:3]))
        raise RunFolderError(f"{path}: is no retrieval folder (it holds {listed}); give a new one (-o)")
    identity = as_json(_identity(benchmark, code_view, depth))
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        if not (path / files.MANIFEST).exists():
            about = {"name": benchmark.name, "language": benchmark.language, "notes": list(benchmark.notes)}
            first, *codes = (
                os.path.relpath(Path(each).resolve(), path.resolve()) for each in (source.path, *source.codes)
            )
            own = source.model_copy(update={"path": first, "codes": codes})
            _write_benchmark(path, benchmark)
            # last: whoever is killed before begins anew
            _save(path, _Manifest(benchmark=about, source=own, identity=identity))
        folder = RetrievalFolder(path)
        folder._check(identity)
        yield folder


@contextmanager
def held(path: Path) -> Iterator[RetrievalFolder]:
    """Give a folder that is there to write to, locked.

    Raises:
        RunFolderError: it is none, damaged, or in use by another process.
    """
    RetrievalFolder(path)
    with _locked(path):
        yield RetrievalFolder(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock, without what killed writers left."""
    lock = lock_folder(path)
    try:
        remove_drafts(path, (files.MANIFEST, QUERIES, QRELS, *OF_SCORES, POOL, JUDGEMENTS, JUDGEMENTS_TREC))
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
        draft.write_text(_QRELS_HEAD + "".join(row(*each) for each in rows), encoding="utf-8")


def _save(path: Path, manifest: _Manifest) -> None:
    with replacing(path / files.MANIFEST) as draft:
        draft.write_bytes(dumps(manifest.model_dump(mode="json", by_alias=True), indent=True) + b"\n")


def row(*cells: object) -> str:
    """Return a line of a table; what is not plain in a cell is percent-encoded."""
    return "\t".join(encoded(str(cell)) for cell in cells) + "\n"
