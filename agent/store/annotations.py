"""`annotations.jsonl`: one line per pair and round, only ever appended to; a line that is there is committed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import open_regular
from agent.errors import RunFolderError
from agent.invalid import what_is_wrong
from agent.store.files import open_own, replacing, write_failure, writing
from agent.types import MOST_ROUNDS, SCHEMA_VERSION, Annotation

Key = tuple[str, int]


class AnnotationIndex:
    """Where the last line of each pair and round is. Sees what was whole when it was made, a torn end not.

    `superseded` counts the lines that a later one took the place of.

    Raises:
        RunFolderError: a whole line is not an annotation; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read()

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

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the same as the objects that the lines hold, for going through many quickly.

        Of their fields only those are checked that a label is made from: id, round, label, confidence and error.
        """
        return (loads(line) for _, line in self.lines())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last line of each pair and round with its number."""
        position = 0
        with self._opened() as file:
            last = set(self._offsets.values())
            for number, line in enumerate(file, start=1):
                if position in last:
                    yield number, line
                position += len(line)

    def _read(self) -> None:
        self.end = self.superseded = 0
        self._offsets: dict[Key, int] = {}
        self._errors: set[Key] = set()
        try:
            with open_regular(self.path) as file:
                self._inode = os.fstat(file.fileno()).st_ino
                for number, line in enumerate(file, start=1):
                    if line.endswith(b"\n"):
                        self._add_line(line, number)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be read ({error.strerror or error})") from error

    def _opened(self) -> IO[bytes]:
        """Open the file that the offsets are of; a run that closed meanwhile may have replaced it."""
        file = open_regular(self.path)
        found = os.fstat(file.fileno())
        if found.st_ino == self._inode and found.st_size >= self.end:
            return file
        file.close()
        self._read()
        return open_regular(self.path)

    def _add_line(self, line: bytes, number: int) -> None:
        place = f"{self.path}:{number}"
        try:
            record = loads(line)
            schema = record["schema"]
            if schema == SCHEMA_VERSION:
                _check_vote(record)
                key, failed = (record["id"], record["round"]), record["error"] is not None
                self.add(key, error=failed, size=len(line))
        except (ValueError, TypeError, KeyError) as problem:
            raise _no_annotation(place, problem) from None
        if schema != SCHEMA_VERSION:
            raise RunFolderError(f"{place}: has schema {schema}, this version reads {SCHEMA_VERSION}")


class AnnotationLog:
    """Appends annotations; on opening, removes a line that a killed writer left torn.

    The caller holds the folder's lock: there is one writer.

    Raises:
        RunFolderError: a whole line is not an annotation, or the file is a link or something else than a file.
        StorageError: the file cannot be written.
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
        """Write one line, whole or not at all.

        Raises:
            StorageError: it could not be written (disk full); the file is as before.
        """
        if self._descriptor is None:
            raise RuntimeError(f"{self.path} is closed")
        line = encode_annotation(annotation) + b"\n"
        try:
            _write_all(self._descriptor, line)
        except BaseException as error:
            # Should this fail too, the next opening removes the torn line.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self.index.end)
            if isinstance(error, OSError):
                raise write_failure(self.path, error) from error
            raise
        key, failed = (annotation.id, annotation.round), annotation.error is not None
        self.index.add(key, error=failed, size=len(line))

    def compact(self) -> None:
        """Close the file, and where it has superseded lines put one without them in its place.

        Raises:
            StorageError: the disk is full or fails; the file is as before.
        """
        self.close()
        if self.index.superseded:
            with replacing(self.path) as draft, draft.open("wb") as file:
                for _, line in self.index.lines():
                    file.write(line)
            self.index = AnnotationIndex(self.path)

    def close(self) -> None:
        """Bring the file to the disk and close it; closing twice does nothing.

        Raises:
            StorageError: the system could not write what it held.
        """
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
    try:
        return Annotation.model_validate(loads(line))
    except ValueError as error:
        raise _no_annotation(place, error) from error


def _check_vote(record: Mapping[str, Any]) -> None:
    """Check what a pair's label is made from.

    Raises:
        KeyError: a field is missing.
        ValueError: a field is of the wrong type, or out of bounds.
    """
    identifier, number = record["id"], record["round"]
    if not isinstance(identifier, str) or not isinstance(number, int) or not 0 <= number <= MOST_ROUNDS:
        raise ValueError("id or round is of the wrong type, or out of bounds")
    label, share = record["label"], record.get("confidence")
    if label is not None and (type(label) is not int or label not in (0, 1)):
        raise ValueError("label: neither 0 nor 1 nor null")
    if share is not None and (type(share) not in (int, float) or not 0 <= share <= 1):
        raise ValueError("confidence: neither a number from 0 to 1 nor null")


def _no_annotation(place: str, problem: Exception) -> RunFolderError:
    missing = isinstance(problem, KeyError)
    cause = f"it lacks {problem}" if missing else what_is_wrong(problem)
    return RunFolderError(f"{place}: is not an annotation ({cause}). Delete that line: its pair is annotated again")


def _write_all(descriptor: int, line: bytes) -> None:
    # Nearly always one write. A short one comes before a full disk, and the next one tells so.
    view = memoryview(line)
    while view:
        view = view[os.write(descriptor, view) :]
