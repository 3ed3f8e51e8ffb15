"""`annotations.jsonl`: one line per pair and round; a line that is there is committed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from agent.datasets.encoding import dumps
from agent.datasets.sources import open_regular
from agent.errors import RunFolderError
from agent.store.files import append_line, decode_record, open_own, replacing, writing
from agent.store.majority import RoundLabel
from agent.types import Annotation

Key = tuple[str, int]

_WHAT = "an annotation"
_REMEDY = "Delete that line: its pair is annotated again"


class AnnotationIndex:
    """Where the last line of each pair and round is. Sees what was whole when it was made, a torn end not.

    `superseded` counts the lines that a later one took the place of.

    Raises:
        RunFolderError: a whole line is not an annotation; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read()

    def add(self, key: Key, *, error: bool, size: int) -> None:
        """Note a line of `size` bytes at the end."""
        self.superseded += key in self._offsets
        self._offsets[key] = self.end
        self.end += size
        if error:
            self._errors.add(key)
        else:
            self._errors.discard(key)

    def done(self, *, retry_errors: bool = False) -> set[Key]:
        """Return the pairs and rounds that have an annotation; with `retry_errors` those without an error."""
        return set(self._offsets) - self._errors if retry_errors else set(self._offsets)

    def get(self, key: Key) -> Annotation | None:
        """Return the last annotation of a pair and round."""
        if key not in self._offsets:
            return None
        with self._opened() as file:
            file.seek(self._offsets[key])
            return decode_annotation(file.readline(), f"{self.path}: the line of {key[0][:60]!r}")

    def __iter__(self) -> Iterator[Annotation]:
        """Yield the last annotation of each pair and round, in the order of the file."""
        return (decode_annotation(line, f"{self.path}:{number}") for number, line in self.lines())

    def labels(self) -> Iterator[RoundLabel]:
        """Yield of the same what a pair's label is made from, for going through many quickly."""
        return (_label(line, f"{self.path}:{number}") for number, line in self.lines())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last line of each pair and round with its number."""
        position = 0
        with self._opened() as file:
            last = set(self._offsets.values())
            for number, line in enumerate(file, start=1):
                if position in last:
                    yield number, line
                position += len(line)

    def read(self) -> None:
        """Go through the file, again where it was replaced."""
        self.end = self.superseded = 0
        self._offsets: dict[Key, int] = {}
        self._errors: set[Key] = set()
        try:
            with open_regular(self.path) as file:
                self._inode = os.fstat(file.fileno()).st_ino
                for number, line in enumerate(file, start=1):
                    if line.endswith(b"\n"):
                        found = _label(line, f"{self.path}:{number}")
                        self.add((found.id, found.round), error=found.error is not None, size=len(line))
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be read ({error.strerror or error})") from error

    def _opened(self) -> IO[bytes]:
        """Open the file that the offsets are of; a run that closed meanwhile may have replaced it."""
        file = open_regular(self.path)
        found = os.fstat(file.fileno())
        if found.st_ino == self._inode and found.st_size >= self.end:
            return file
        file.close()
        self.read()
        return open_regular(self.path)


class AnnotationLog:
    """Appends annotations; on opening, removes a line that a killed writer left torn.

    The caller holds the folder's lock: there is one writer.

    Raises, as every method does:
        RunFolderError: a whole line is not an annotation, or the file is a link or something else than a file.
        StorageError: the file cannot be written (disk full), and is as before.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = open_own(path, os.O_APPEND)
        try:
            self.index = AnnotationIndex(path)
            with writing(path):
                os.ftruncate(self._descriptor, self.index.end)
        except BaseException:
            self.close()
            raise

    def append(self, annotation: Annotation) -> None:
        """Write one line, whole or not at all."""
        if self._descriptor is None:
            raise RuntimeError(f"{self.path} is closed")
        line = encode_annotation(annotation) + b"\n"
        with writing(self.path):
            append_line(self._descriptor, self.index.end, line)
        self.index.add((annotation.id, annotation.round), error=annotation.error is not None, size=len(line))

    def compact(self) -> None:
        """Close the file, and where it has superseded lines put one without them in its place."""
        self.close()
        if self.index.superseded:
            with replacing(self.path) as draft, draft.open("wb") as file:
                file.writelines(line for _, line in self.index.lines())
            self.index.read()

    def close(self) -> None:
        """Bring the file to the disk and close it; closing twice does nothing."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with writing(self.path):
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def encode_annotation(annotation: Annotation) -> bytes:
    """Return an annotation as one line of JSON, without newline.

    Raises:
        TypeError: `meta` holds what JSON cannot.
    """
    # As it is: pydantic would replace lone surrogates in its keys.
    return dumps({**annotation.model_dump(mode="json", by_alias=True, exclude={"meta"}), "meta": annotation.meta})


def decode_annotation(line: bytes, place: str) -> Annotation:
    """Read an annotation from its line, which `place` names.

    Raises:
        RunFolderError: the line is not an annotation.
    """
    return decode_record(line, Annotation, place, what=_WHAT, remedy=_REMEDY)


def _label(line: bytes, place: str) -> RoundLabel:
    return decode_record(line, RoundLabel, place, what=_WHAT, remedy=_REMEDY)
