"""Implements dense retrieval. Stores vectors from any embedder, and finds exact nearest neighbours by inner product."""

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
from agent.evaluation.lazy_numpy import np
from agent.retrieval.searchers.base import SearchResult, Vectors, select_best_codes
from agent.retrieval.searchers.presets import Kind
from agent.runs.store.files import append_line, lock_file, open_run_file, reading, writing
from agent.text import plural
from agent.types import Progress

if TYPE_CHECKING:
    from agent.retrieval.searchers.trained import TrainingRecord

_PLURAL: Mapping[Kind, str] = {"query": "queries", "code": "snippets"}
_BATCH_TEXTS, _BATCH_CHARACTERS = 64, 65_536
_QUERY_BATCH_SIZE = 64
_EXTRA_CANDIDATES = 16
_FORMAT = 1
_FLOAT_SIZE = 4  # bytes of a float32


@dataclass(frozen=True)
class EmbeddedTexts:
    """The vectors for n texts, in a float32 array of shape (n, dimensions).

    In `counts`, `cut` is the number of texts that were truncated to the model's limit, and `tokens` is the number of
    tokens that an endpoint reported.
    """

    vectors: np.ndarray[Any, Any]
    counts: Mapping[str, int] = field(default_factory=dict)


class Embedder(Protocol):
    """Turns texts into vectors whose inner product is the score. For cosine similarity, the vectors have length 1.

    The searcher takes its `name`, `about` and `settings` from the embedder. If the settings change, all texts are
    embedded again. `concurrency` is the maximum number of concurrent batches.
    """

    name: str
    about: str
    settings: Mapping[str, Any]
    concurrency: int

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
        """Embed one batch. Called from several threads if `concurrency` is greater than 1.

        Raises:
            UsageError, RunStopped: the texts cannot be embedded.
        """


class _Batch(BaseModel):
    """A line in `KEY.jsonl` (see `EmbeddingFile`), which records the state of the vector file after a batch.

    `rows` is the number of complete rows in the file, and `dimensions` is the length of each row. `counts` contains the
    counts for the batch (see `EmbeddedTexts`).
    """

    rows: PositiveInt
    dimensions: PositiveInt
    counts: dict[str, int]


class EmbeddingFile:
    """Stores vectors on disk, in files named after a hash of the texts and settings.

    `KEY.f32` contains one row of little-endian float32 values per text, in the order of the texts. Each line of
    `KEY.jsonl` records the number of complete rows after a batch. Opening the files locks them and removes data after
    the last complete batch.

    Raises:
        RunFolderError: a file is a link or not a regular file, or another process has locked it.
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
            lock_file(folder, self._data)
            self._load_record()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._data)
        os.close(self._record)

    def append(self, vectors: np.ndarray[Any, Any], counts: Mapping[str, int]) -> None:
        """Append a batch of vectors with shape (rows, dimensions), then add a line to `KEY.jsonl`.

        Raises:
            StorageError: the batch cannot be written. Earlier batches are unaffected.
        """
        rows, dimensions = vectors.shape
        data = vectors.astype("<f4", order="C").tobytes()
        line = dumps({"rows": self.rows + rows, "dimensions": dimensions, "counts": dict(counts)}) + b"\n"
        with writing(self._path):
            offset = self.rows * dimensions * _FLOAT_SIZE
            os.lseek(self._data, offset, os.SEEK_SET)
            append_line(self._data, offset, data, sync=True)
            append_line(self._record, os.lseek(self._record, 0, os.SEEK_END), line)
        self.rows, self.dimensions = self.rows + rows, dimensions
        self.counts.update(counts)

    def map_vectors(self) -> np.ndarray[Any, Any]:
        """Map all rows into memory as a float32 array of shape (rows, dimensions)."""
        rows: np.ndarray[Any, Any] = np.memmap(self._path, "<f4", "r", shape=(self.rows, self.dimensions))
        return rows

    def read_vectors(self, rows: Sequence[int]) -> np.ndarray[Any, Any]:
        """Read rows into a float32 array of shape (rows, dimensions), because mapped pages count as memory in use.

        Raises:
            RunFolderError: the file cannot be read.
            RunStopped: rows are missing, because another process has truncated the file.
        """
        size = self.dimensions * _FLOAT_SIZE
        with reading(self._path), self._path.open("rb", buffering=0) as file:
            data = b"".join(os.pread(file.fileno(), size, row * size) for row in rows)
        if len(data) != len(rows) * size:
            raise RunStopped(f"{self._path}: vectors are missing")
        vectors: np.ndarray[Any, Any] = np.frombuffer(data, "<f4")
        return vectors.reshape(len(rows), self.dimensions)

    def _load_record(self) -> None:
        """Read `KEY.jsonl`, and truncate both files after the last complete batch."""
        size, end = os.fstat(self._data).st_size, 0
        with suppress(ValidationError):
            for line in os.pread(self._record, os.fstat(self._record).st_size, 0).splitlines(keepends=True):
                batch = _Batch.model_validate_json(line)
                if not line.endswith(b"\n") or batch.rows * batch.dimensions * _FLOAT_SIZE > size:
                    break
                self.rows, self.dimensions = batch.rows, batch.dimensions
                self.counts.update(batch.counts)
                end += len(line)
        os.ftruncate(self._data, self.rows * self.dimensions * _FLOAT_SIZE)
        os.ftruncate(self._record, end)


class VectorSearcher:
    """Base class of searchers that rank snippets by a score of two vectors. Subclasses implement `_find_best`.

    Vectors are stored in `folder`, so an interrupted command resumes after the last complete batch. When texts are
    embedded, messages for the user are added to `notes`. `training` describes how `agent train` made the model.
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self._folder = folder
        self.notes: tuple[str, ...] = ()
        self.training: TrainingRecord | None = None
        self.name, self.about, self.settings = embedder.name, embedder.about, embedder.settings

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """Embed the snippets that have no vectors yet.

        Raises:
            ExtraMissing: a library that the model needs is not installed.
            UsageError: there are no snippets, or the model cannot be used.
            RunFolderError, StorageError: vectors cannot be read or stored.
            RunStopped: an endpoint rejects a request or cannot be reached. Vectors computed so far are stored.
        """
        if not codes:
            raise UsageError("there are no snippets to embed")
        file, order = self._embed_texts(codes, "code", progress)
        self._codes = file.map_vectors()
        self._positions = np.array(order)
        self._rows = np.argsort(self._positions)

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """Iterate over the results for the queries, in order.

        Raises:
            RunFolderError, StorageError, RunStopped: see `index`.
        """
        if not queries:
            return
        file, order = self._embed_texts(queries, "query", progress)
        vectors = file.map_vectors()[np.argsort(order)]
        for start in range(0, len(queries), _QUERY_BATCH_SIZE):
            yield from self._find_best(vectors[start : start + _QUERY_BATCH_SIZE], depth)

    def truncate(self, codes: Sequence[str]) -> Sequence[str] | None:
        """Return the beginning of each snippet that the model reads, or None if the embedder does not report it."""
        truncate = getattr(self._embedder, "truncate", None)
        return None if truncate is None else truncate(codes)

    def _find_best(self, queries: np.ndarray[Any, Any], depth: int) -> Iterator[SearchResult]:
        """Iterate over the results for a batch of query vectors. The vectors of snippets are in `_codes`."""
        raise NotImplementedError

    def _embed_texts(self, texts: Sequence[str], kind: Kind, progress: Progress) -> tuple[EmbeddingFile, list[int]]:
        """Return a closed file with the vectors of all texts, longest text first, and the position of each row's text.

        `map_vectors` and `read_vectors` open the file again.
        """
        order = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
        sorted_texts = [texts[position] for position in order]
        step = f"embedding {_PLURAL[kind]}"
        with EmbeddingFile(self._folder, {"name": self.name, "kind": kind, **self.settings}, sorted_texts) as file:
            progress(step, file.rows, len(texts))
            batches = list(_split_batches(sorted_texts[file.rows :]))
            for batch, result in zip(batches, self._embed_batches(batches, kind), strict=True):
                self._check_vectors(result.vectors, len(batch), file.dimensions)
                file.append(result.vectors, result.counts)
                progress(step, file.rows, len(texts))
            if cut := file.counts["cut"]:
                truncated = f"{cut:,} of {len(texts):,} {_PLURAL[kind]} truncated to the model's limit"
                self.notes = (*self.notes, truncated)
            if tokens := file.counts["tokens"]:
                self.notes = (*self.notes, f"the server counted {plural(tokens, 'token')} in the {_PLURAL[kind]}")
            return file, order

    def _embed_batches(self, batches: Sequence[Sequence[str]], kind: Kind) -> Iterator[EmbeddedTexts]:
        if self._embedder.concurrency == 1:  # in this thread, so that Ctrl-C can interrupt it
            yield from map(self._embedder.embed, batches, repeat(kind))
            return
        # concurrent.futures is not used, because it joins its threads at exit even after Ctrl-C
        with ThreadPool(self._embedder.concurrency) as pool:
            yield from pool.imap(partial(self._embedder.embed, kind=kind), batches)

    def _check_vectors(self, vectors: np.ndarray[Any, Any], texts: int, dimensions: int) -> None:
        rows, width = vectors.shape
        if rows != texts or not width or (dimensions and width != dimensions):
            earlier = f" (earlier vectors have {plural(dimensions, 'dimension')})" if dimensions else ""
            result = f"{plural(rows, 'vector')} with {plural(width, 'dimension')} for {plural(texts, 'text')}"
            raise RunStopped(f"{self.name} returned {result}{earlier}")
        if not np.isfinite(vectors).all():
            raise RunStopped(f"{self.name} returned a vector with non-finite values, such as NaN")


class DenseSearcher(VectorSearcher):
    """Ranks snippets by the inner product of their vectors with the query's vector.

    Scores are computed in float64 and rounded to float32, so identical vectors have the same score regardless of their
    position.
    """

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `VectorSearcher.index`."""
        super().index(codes, progress)
        blocks = range(0, len(codes), 65_536)
        self._max_norm = max(float(np.linalg.norm(self._codes[row : row + 65_536], axis=1).max()) for row in blocks)

    def embed(self, codes: Sequence[str], queries: Sequence[str], progress: Progress) -> Vectors:
        """Embed the snippets and queries that have no vectors yet. The vectors of snippets remain on disk.

        Raises:
            ExtraMissing, UsageError, RunFolderError, StorageError, RunStopped: see `index`.
        """
        file, order = self._embed_texts(codes, "code", progress)
        query_file, query_order = self._embed_texts(queries, "query", progress)
        widths = file.dimensions, query_file.dimensions
        if widths[0] != widths[1]:
            raise RunStopped(f"{self.name} returned {widths[0]} dimensions for snippets and {widths[1]} for queries")
        rows = np.argsort(order)
        vectors = query_file.read_vectors(np.argsort(query_order).tolist())
        return Vectors(vectors, lambda start, stop: file.read_vectors(rows[start:stop].tolist()))

    def _find_best(self, queries: np.ndarray[Any, Any], depth: int) -> Iterator[SearchResult]:
        """Find the nearest snippets for each query.

        Candidates are fetched by float32 score. The number of candidates grows until no rounding error can move the
        last one into the top `depth`. The scores of the candidates are then computed in float64.
        """
        inner, codes = faiss.METRIC_INNER_PRODUCT, self._codes
        initial = min(len(codes), depth + _EXTRA_CANDIDATES)
        all_scores, all_rows = faiss.knn(queries, codes, initial, metric=inner)
        # empirical bound on the rounding error of float32 inner products; the worst-case bound is far larger
        error = 4 * np.finfo(np.float32).eps * np.sqrt(codes.shape[1]) * self._max_norm
        for query, scores, rows in zip(queries, all_scores, all_rows, strict=True):
            margin, count = error * np.linalg.norm(query), initial
            while count < len(codes) and scores[depth - 1] - scores[-1] <= margin:
                count = min(len(codes), 2 * count)
                [scores], [rows] = faiss.knn(query[None], codes, count, metric=inner)
            positions = np.sort(self._positions[rows])
            exact = codes[self._rows[positions]].astype(np.float64) @ query.astype(np.float64)
            best = select_best_codes(exact.astype(np.float32), depth)
            yield SearchResult(positions[best.positions], best.scores)


def _split_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split texts into batches. Texts are sorted longest first, because each batch is padded to its longest text."""
    start = 0
    while start < len(texts):
        size = max(1, min(_BATCH_TEXTS, _BATCH_CHARACTERS // max(1, len(texts[start]))))
        yield texts[start : start + size]
        start += size
