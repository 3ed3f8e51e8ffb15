"""Searches by vectors: any embedder, its vectors kept on disk, and the exact nearest codes by inner product."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import faiss
from pydantic import BaseModel, PositiveInt, ValidationError

from agent.datasets.encoding import dumps
from agent.errors import RunStopped, UsageError
from agent.evaluation.statistics import import_numpy
from agent.retrieval.searchers.base import Progress, SearchResult, select_best_codes
from agent.retrieval.searchers.recipes import Kind
from agent.store.files import append_line, open_run_file, writing
from agent.wording import plural

if TYPE_CHECKING:
    import numpy as np

_PLURAL: Mapping[Kind, str] = {"query": "queries", "code": "codes"}
_MOST_TEXTS, _MOST_CHARACTERS = 64, 65_536
_QUERIES_AT_ONCE = 64
_SPARE = 16
_FORMAT = 1
_WIDTH = 4  # bytes of a float32


@dataclass(frozen=True)
class EmbeddedTexts:
    """What an embedder gives for n texts: vectors (n, dimensions) in float32.

    `counts` says how many texts were `cut` at what the model takes, and how many `tokens` an endpoint counted.
    """

    vectors: np.ndarray[Any, Any]
    counts: Mapping[str, int] = field(default_factory=dict)


class Embedder(Protocol):
    """Gives texts vectors whose inner product is the score: of unit length where a model is compared by cosine.

    `name`, `about` and `settings` are the searcher's. Changed settings embed every text again. `concurrency` is the
    number of batches in flight.
    """

    name: str
    about: str
    settings: Mapping[str, Any]
    concurrency: int

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
        """Embed one batch; called from other threads where several are asked for at a time.

        Raises:
            UsageError, RunStopped: no vectors can be had.
        """


class _Batch(BaseModel):
    """A line of the record: how many rows are whole with this batch, and what it counts."""

    rows: PositiveInt
    dimensions: PositiveInt
    counts: dict[str, int]


class EmbeddingFile:
    """The vectors of some texts made with some settings, which together name the files.

    `KEY.f32` holds rows of float32 (little-endian) in the order of the texts and nothing else; each line of `KEY.jsonl`
    says how many rows are whole with one more batch. What stands after the last whole batch is removed when the files
    are opened. The caller is their only writer.

    Raises:
        RunFolderError: a file is a link, or no ordinary file.
        StorageError: a file cannot be written.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], texts: Sequence[str]) -> None:
        key = hashlib.sha256(dumps([_FORMAT, sorted(settings.items())]))
        for text in texts:
            key.update(dumps(text))
        self.rows, self.dimensions = 0, 0
        self.counts: Counter[str] = Counter()
        self._path = folder / f"{key.hexdigest()}.f32"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._data, self._record = map(open_run_file, (self._path, self._path.with_suffix(".jsonl")))
            self._load_record()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._data)
        os.close(self._record)

    def append(self, vectors: np.ndarray[Any, Any], counts: Mapping[str, int]) -> None:
        """Keep one more batch (rows, dimensions), the vectors before the line that says that they are there.

        Raises:
            StorageError: it cannot be written; the files are as before.
        """
        rows, dimensions = vectors.shape
        data = vectors.astype("<f4", order="C").tobytes()
        line = dumps({"rows": self.rows + rows, "dimensions": dimensions, "counts": dict(counts)}) + b"\n"
        with writing(self._path):
            at = self.rows * dimensions * _WIDTH
            os.lseek(self._data, at, os.SEEK_SET)
            append_line(self._data, at, data, sync=True)
            append_line(self._record, os.lseek(self._record, 0, os.SEEK_END), line)
        self.rows, self.dimensions = self.rows + rows, dimensions
        self.counts.update(counts)

    def map_vectors(self) -> np.ndarray[Any, Any]:
        """Return all rows, mapped from the file: (rows, dimensions) in float32."""
        mapped: np.ndarray[Any, Any] = import_numpy().memmap(self._path, "<f4", "r", shape=(self.rows, self.dimensions))
        return mapped

    def _load_record(self) -> None:
        """Take in the whole batches, and cut both files after the last of them."""
        size, end = os.fstat(self._data).st_size, 0
        with suppress(ValidationError):
            for line in os.pread(self._record, os.fstat(self._record).st_size, 0).splitlines(keepends=True):
                batch = _Batch.model_validate_json(line)
                if not line.endswith(b"\n") or batch.rows * batch.dimensions * _WIDTH > size:
                    break
                self.rows, self.dimensions = batch.rows, batch.dimensions
                self.counts.update(batch.counts)
                end += len(line)
        os.ftruncate(self._data, self.rows * self.dimensions * _WIDTH)
        os.ftruncate(self._record, end)


class DenseSearcher:
    """Ranks codes by the inner product with the query's vector.

    Vectors are kept in `folder`, so that the same command resumes after the last whole batch. Scores are computed in
    float64 and rounded to float32, so that equal vectors get equal scores at any position. `notes` say what a reader of
    scores must know, once texts are embedded.
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self._folder = folder
        self.notes: tuple[str, ...] = ()
        self.name, self.about, self.settings = embedder.name, embedder.about, embedder.settings

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """Embed the codes that have no vectors yet.

        Raises:
            ExtraMissing: what the model needs is not installed.
            UsageError: there are no codes, or the model cannot be used.
            RunFolderError, StorageError: vectors cannot be read, or not be kept.
            RunStopped: an endpoint refuses or cannot be reached; what was embedded is kept.
        """
        if not codes:
            raise UsageError("there are no codes to embed")
        np = import_numpy()
        self._codes, order = self._embed_texts(codes, "code", progress)
        self._positions = np.array(order)
        self._rows = np.argsort(self._positions)
        blocks = range(0, len(codes), 65_536)
        self._max_norm = max(float(np.linalg.norm(self._codes[at : at + 65_536], axis=1).max()) for at in blocks)

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """Yield what is found for each query, in their order.

        Raises:
            RunFolderError, StorageError, RunStopped: as `index`.
        """
        if not queries:
            return
        embedded, order = self._embed_texts(queries, "query", progress)
        vectors = embedded[import_numpy().argsort(order)]
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            yield from self._find_nearest(vectors[start : start + _QUERIES_AT_ONCE], depth)

    def _find_nearest(self, queries: np.ndarray[Any, Any], depth: int) -> Iterator[SearchResult]:
        """Yield the nearest codes of each query, of all whose float32 scores are not surely below the last."""
        np = import_numpy()
        inner, codes = faiss.METRIC_INNER_PRODUCT, self._codes
        first = min(len(codes), depth + _SPARE)
        scores, rows = faiss.knn(queries, codes, first, metric=inner)
        # how far float32 sums of d products stray; by experience, for the worst case bounds far more
        strays = 4 * np.finfo(np.float32).eps * np.sqrt(codes.shape[1]) * self._max_norm
        for query, nearest, places in zip(queries, scores, rows, strict=True):
            margin, take = strays * np.linalg.norm(query), first
            while take < len(codes) and nearest[depth - 1] - nearest[-1] <= margin:
                take = min(len(codes), 2 * take)
                [nearest], [places] = faiss.knn(query[None], codes, take, metric=inner)
            positions = np.sort(self._positions[places])
            exact = codes[self._rows[positions]].astype(np.float64) @ query.astype(np.float64)
            kept = select_best_codes(exact.astype(np.float32), depth)
            yield SearchResult(positions[kept.positions], kept.scores)

    def _embed_texts(
        self, texts: Sequence[str], kind: Kind, progress: Progress
    ) -> tuple[np.ndarray[Any, Any], list[int]]:
        """Return the vectors of all texts, longest text first, and which text each row is of."""
        order = sorted(range(len(texts)), key=lambda at: -len(texts[at]))
        ordered = [texts[at] for at in order]
        what = f"embedding {_PLURAL[kind]}"
        with EmbeddingFile(self._folder, {"name": self.name, "kind": kind, **self.settings}, ordered) as kept:
            progress(what, kept.rows, len(texts))
            batches = list(_split_batches(ordered[kept.rows :]))
            for batch, embedded in zip(batches, self._embed_batches(batches, kind), strict=True):
                self._check_vectors(embedded.vectors, len(batch), kept.dimensions)
                kept.append(embedded.vectors, embedded.counts)
                progress(what, kept.rows, len(texts))
            if cut := kept.counts["cut"]:
                longer = f"{cut:,} of {len(texts):,} {_PLURAL[kind]} are longer than the model takes, and were cut"
                self.notes = (*self.notes, longer)
            if tokens := kept.counts["tokens"]:
                self.notes = (*self.notes, f"the server counted {plural(tokens, 'token')} of {_PLURAL[kind]}")
            return kept.map_vectors(), order

    def _embed_batches(self, batches: Sequence[Sequence[str]], kind: Kind) -> Iterator[EmbeddedTexts]:
        """Yield what the embedder gives for each batch, in their order."""
        if self._embedder.concurrency == 1:  # here, where Ctrl-C reaches it
            yield from map(self._embedder.embed, batches, repeat(kind))
            return
        # the threads of concurrent.futures would be joined at exit, after Ctrl-C too
        with ThreadPool(self._embedder.concurrency) as pool:
            yield from pool.imap(partial(self._embedder.embed, kind=kind), batches)

    def _check_vectors(self, vectors: np.ndarray[Any, Any], texts: int, dimensions: int) -> None:
        rows, width = vectors.shape
        if rows != texts or not width or (dimensions and width != dimensions):
            before = f", and {dimensions:,} dimensions before" if dimensions else ""
            what = f"gave {plural(rows, 'vector')} of {width:,} dimensions for {plural(texts, 'text')}{before}"
            raise RunStopped(f"{self.name}: {what}")
        if not import_numpy().isfinite(vectors).all():
            raise RunStopped(f"{self.name}: gave a vector with values that are no finite numbers (NaN)")


def _split_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield texts in batches; the texts come longest first, and shorter ones are padded to the longest of a batch."""
    start = 0
    while start < len(texts):
        size = max(1, min(_MOST_TEXTS, _MOST_CHARACTERS // max(1, len(texts[start]))))
        yield texts[start : start + size]
        start += size
