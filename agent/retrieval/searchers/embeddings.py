"""Vectors on disk, written batch by batch, so that the same command goes on after whatever ended it."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, PositiveInt, ValidationError

from agent.datasets.encoding import dumps
from agent.evaluation.statistics import numpy
from agent.store.files import append_line, open_own, writing

if TYPE_CHECKING:
    import numpy as np

_FORMAT = 1
_WIDTH = 4  # bytes of a float32


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
        with writing(folder), ExitStack() as opened:
            folder.mkdir(parents=True, exist_ok=True)
            self._data, self._record = map(open_own, (self._path, self._path.with_suffix(".jsonl")))
            for descriptor in (self._data, self._record):
                opened.callback(os.close, descriptor)
            self._recall()
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._opened.close()

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

    def vectors(self) -> np.ndarray[Any, Any]:
        """Return all rows, mapped from the file: (rows, dimensions) in float32."""
        mapped: np.ndarray[Any, Any] = numpy().memmap(self._path, "<f4", "r", shape=(self.rows, self.dimensions))
        return mapped

    def _recall(self) -> None:
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
