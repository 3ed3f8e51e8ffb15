"""What a run's folder holds, and how its files are written: whole or not at all, and never through a link."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TypeVar

from pydantic import BaseModel

from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import LONGEST_LINE, check_regular, open_regular
from agent.errors import RunFolderError, StorageError
from agent.types import SCHEMA_VERSION
from agent.wording import describe_error

LOCK = ".lock"
MANIFEST = "manifest.json"
INPUT = "input.jsonl.gz"
ANNOTATIONS = "annotations.jsonl"
EVIDENCE = "evidence.sqlite"
LABELS = "labels.jsonl"
BATCHES = "batches.sqlite"
REVIEWS = "reviews.jsonl"
REVIEW_SAMPLE = "review_sample.json"
ABLATION = "ablation.json"  # in the folder that holds the runs of an ablation
ABLATION_CSV = "ablation.csv"
ABLATION_MARKDOWN = "ablation.md"

# Files that are read again: no export or report may replace one.
PROTECTED = frozenset({LOCK, MANIFEST, INPUT, ANNOTATIONS, EVIDENCE, LABELS, BATCHES, REVIEWS, REVIEW_SAMPLE, ABLATION})

# What a run that was killed while it was made may have left, besides hidden files.
UNFINISHED = frozenset({INPUT, ANNOTATIONS, LABELS, EVIDENCE, f"{EVIDENCE}-wal", f"{EVIDENCE}-shm"})

_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file has reached the size limit of this process (ulimit -f)",
    errno.EIO: "the disk reports an input/output error",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
}
RESUME_HINT = "Nothing that was finished is lost: mend that and give the same command again."
_NOT_OURS = (errno.ELOOP, errno.ENXIO, errno.EINVAL)
_REFUSED = (
    "is a link, or no ordinary file, and nothing is written through it; move it away, or put the file itself there"
)
_SHOWN = 40
_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


Parsed = TypeVar("Parsed", bound=BaseModel)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn system errors into `StorageError`: what failed, where, and how to go on."""
    try:
        yield
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0) or error.strerror or str(error)
        raise StorageError(f"{path}: cannot be written: {cause}. {RESUME_HINT}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn system errors into `RunFolderError`."""
    try:
        yield
    except FileNotFoundError:
        raise RunFolderError(f"{path}: no such file") from None
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error.strerror or error})") from error


def append_line(descriptor: int, end: int, line: bytes, *, sync: bool = False) -> None:
    """Write a line at the end of a file, whole or not at all; with `sync` it is on the disk then.

    Raises:
        OSError: it could not be written; the file ends where it did.
    """
    view = memoryview(line)
    try:
        while view:  # nearly always one write; a short one comes before a full disk
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    except BaseException:
        # Should this fail too, the next opening removes the torn line.
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


def decode_record(data: bytes, kind: type[Parsed], place: str, *, expected: str, remedy: str) -> Parsed:
    """Read a record of JSON that we wrote, which `place` names.

    Raises:
        RunFolderError: it is of another schema, or is not `what` it should be; then the message gives the `remedy`.
    """
    try:
        record = loads(data)
        schema = record.get("schema", SCHEMA_VERSION) if isinstance(record, dict) else SCHEMA_VERSION
        if schema != SCHEMA_VERSION:
            raise RunFolderError(f"{place}: has schema {schema}, this version reads {SCHEMA_VERSION}")
        return kind.model_validate(record)
    except ValueError as error:
        raise RunFolderError(f"{place}: is not {expected} ({describe_error(error)}). {remedy}") from None


def number_lines(file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their ends and numbers, from 1.

    Raises:
        RunFolderError: one is too long.
    """
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            raise RunFolderError(f"{path}:{number}: the line is longer than {LONGEST_LINE >> 20} MB")
        yield number, line


def read_document(path: Path, kind: type[Parsed], *, expected: str, remedy: str) -> Parsed:
    """Read a file that is one record of JSON.

    Raises:
        RunFolderError: it is missing or cannot be read, or as `decode_record`.
    """
    with reading(path), open_regular(path) as file:
        data = file.read(LONGEST_LINE)
    return decode_record(data, kind, str(path), expected=expected, remedy=remedy)


def open_run_file(path: Path, flags: int = 0) -> int:
    """Open a file for reading and writing, made where there is none, and return its descriptor.

    Raises:
        RunFolderError: it is a link, or something else than a file.
        StorageError: it cannot be opened for writing.
    """
    own = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with writing(path):
        try:
            return check_regular(os.open(path, own | flags, 0o644))
        except OSError as error:
            if error.errno in _NOT_OURS:
                raise RunFolderError(f"{path}: {_REFUSED}") from None
            raise


def check_run_file(path: Path) -> None:
    """Refuse what SQLite is about to open, unless it is a file or not there.

    Raises:
        RunFolderError: it is a link, or something else than a file.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise RunFolderError(f"{path}: {_REFUSED}")


def lock_folder(folder: Path) -> int:
    """Lock a folder, and return the descriptor that holds the lock until it is closed, or the process dies.

    Raises:
        RunFolderError: another process holds it (the message names it), the file system has no locks, or the lock
            file is a link.
        StorageError: the lock file cannot be written.
    """
    path = folder / LOCK
    descriptor = open_run_file(path)
    try:
        _lock(folder, descriptor)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        with writing(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            record = loads(os.pread(descriptor, 4096, 0))
            holder = f"process {record['pid']} on {record['host']} since {record['since']}"
        except (ValueError, TypeError, KeyError):
            holder = "another process"  # which has not written the file yet
        raise RunFolderError(f"{folder}: is in use by {holder}; wait for it or choose another folder") from None
    except OSError as error:
        raise RunFolderError(
            f"{folder}: its file system has no file locks ({error.strerror}); choose a folder on a local disk"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to; it takes the place of `path` once it is whole and on the disk.

    Raises:
        StorageError: it cannot be written; `path` is as before.
    """
    with writing(path):
        # hidden, and cut so that it is a name wherever that of `path` is one
        draft = path.with_name(f".{path.name[:_SHOWN]}.{secrets.token_hex(8)}.tmp")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
        try:
            if path.is_file() and not path.is_symlink():
                draft.chmod(path.stat().st_mode & 0o777)
            yield draft
            sync_to_disk(draft, os.O_RDWR)
            draft.replace(path)
            sync_to_disk(path.parent)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def remove_drafts(folder: Path, names: Collection[str]) -> None:
    """Remove what killed writers of these files left; the caller is their only writer.

    Raises:
        StorageError: one cannot be removed.
    """
    with writing(folder):
        for entry in folder.iterdir():
            match = _DRAFT.fullmatch(entry.name)
            if match is not None and match[1] in names:
                entry.unlink(missing_ok=True)


def sync_to_disk(path: Path, flags: int = os.O_RDONLY) -> None:
    """Sync a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
