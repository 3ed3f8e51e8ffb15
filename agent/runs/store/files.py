"""Names of the files in a run folder, and functions that write files atomically and never follow links."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import BaseModel

from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import LONGEST_LINE, check_regular, open_regular
from agent.errors import RunFolderError, StorageError
from agent.runs.store.former import SCHEMA as FORMER_SCHEMA
from agent.text import describe_error
from agent.types import SCHEMA_VERSION

LOCK = ".lock"
MADE = ".made"
MANIFEST = "manifest.json"
INPUT = "input.jsonl.gz"
ANNOTATIONS = "annotations.jsonl"
EVIDENCE = "evidence.sqlite"
LABELS = "labels.jsonl"
BATCHES = "batches.sqlite"
REVIEWS = "reviews.jsonl"
REVIEW_SAMPLE = "review_sample.json"
CERTIFICATE = "certificate.json"
ABLATION = "ablation.json"  # in the parent folder of an ablation's runs
ABLATION_CSV = "ablation.csv"
ABLATION_MARKDOWN = "ablation.md"

# Files that later commands read and that exports and reports must not replace.
PROTECTED = frozenset(
    {LOCK, MANIFEST, INPUT, ANNOTATIONS, EVIDENCE, LABELS, BATCHES, REVIEWS, REVIEW_SAMPLE, CERTIFICATE, ABLATION}
)

# Files (apart from hidden files) that a run may leave behind if it is killed while it creates its folder.
UNFINISHED = frozenset({INPUT, ANNOTATIONS, LABELS, EVIDENCE, f"{EVIDENCE}-wal", f"{EVIDENCE}-shm"})

_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is exhausted",
    errno.EFBIG: "the file has reached the size limit of this process (ulimit -f)",
    errno.EIO: "the disk reports an input/output error",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}
RESUME_HINT = "Finished work is saved. Fix the problem and run the same command again."
_IRREGULAR = (errno.ELOOP, errno.ENXIO, errno.EINVAL)
_REFUSED = "is a link or not a regular file. Replace it with a regular file or move it away."
_MAX_NAME_LENGTH = 40
_DRAFT_END = re.compile(r"[0-9a-f]{16}\.(tmp|old)")


Parsed = TypeVar("Parsed", bound=BaseModel)
# Changes a record of the former schema into a record of today's schema.
Update = Callable[[dict[str, Any]], None]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Translate system errors into `StorageError`, with the path, the cause and a remedy."""
    try:
        yield
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0) or error.strerror or str(error)
        raise StorageError(f"{path}: cannot be written: {cause}. {RESUME_HINT}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Translate system errors into `RunFolderError`."""
    try:
        yield
    except FileNotFoundError:
        raise RunFolderError(f"{path}: no such file") from None
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error.strerror or error})") from error


def append_line(descriptor: int, end: int, line: bytes, *, sync: bool = False) -> None:
    """Append a line at offset `end`, either completely or not at all. With `sync`, also sync the file to disk.

    Raises:
        OSError: the line could not be written. The file is unchanged.
    """
    view = memoryview(line)
    try:
        while view:  # usually one write; a short write means that the disk is almost full
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    except BaseException:
        # If truncating fails too, the truncated line is removed when the file is next opened.
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


def decode_record(
    data: bytes, kind: type[Parsed], location: str, *, expected: str, remedy: str, update: Update = lambda _record: None
) -> Parsed:
    """Parse a JSON record of type `kind`.

    `location`, `expected` (such as `an annotation`) and `remedy` are used in the error message. `update` is applied to
    records of the former schema.

    Raises:
        RunFolderError: the record has another schema version or is malformed.
    """
    try:
        record = loads(data)
        schema = record.get("schema", SCHEMA_VERSION) if isinstance(record, dict) else SCHEMA_VERSION
        if schema == FORMER_SCHEMA:
            update(record)
        elif schema != SCHEMA_VERSION:
            raise RunFolderError(f"{location}: has schema {schema}, but this program reads schema {SCHEMA_VERSION}")
        return kind.model_validate(record)
    except ValueError as error:
        raise RunFolderError(f"{location}: is not {expected} ({describe_error(error)}). {remedy}") from None


def number_lines(file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    """Iterate over the lines of a file, including newlines, with line numbers starting at 1.

    Raises:
        RunFolderError: a line is too long.
    """
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            raise RunFolderError(f"{path}:{number}: the line is longer than {LONGEST_LINE >> 20} MB")
        yield number, line


def read_document(
    path: Path, kind: type[Parsed], *, expected: str, remedy: str, update: Update = lambda _record: None
) -> Parsed:
    """Read a file that contains one JSON record. See `decode_record` for the parameters.

    Raises:
        RunFolderError: the file is missing, cannot be read or is malformed.
    """
    with reading(path), open_regular(path) as file:
        data = file.read(LONGEST_LINE)
    return decode_record(data, kind, str(path), expected=expected, remedy=remedy, update=update)


def write_document(path: Path, document: BaseModel) -> None:
    """Write a record as a JSON file, atomically.

    Raises:
        StorageError: the file cannot be written. An earlier file is unchanged.
    """
    with replacing(path) as draft:
        draft.write_bytes(dumps(document.model_dump(mode="json", by_alias=True), indent=True) + b"\n")


def open_run_file(path: Path, flags: int = 0) -> int:
    """Open or create a file for reading and writing, and return its descriptor.

    Raises:
        RunFolderError: the path is a link or not a regular file.
        StorageError: the file cannot be opened for writing.
    """
    required = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with writing(path):
        try:
            return check_regular(os.open(path, required | flags, 0o644))
        except OSError as error:
            if error.errno in _IRREGULAR:
                raise RunFolderError(f"{path}: {_REFUSED}") from None
            raise


def check_run_file(path: Path) -> None:
    """Check that a path either does not exist or is a regular file, before SQLite opens it.

    Raises:
        RunFolderError: the path is a link or not a regular file.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise RunFolderError(f"{path}: {_REFUSED}")


def lock_folder(folder: Path) -> int:
    """Lock a folder and return the lock file's descriptor.

    Closing the descriptor or exiting the process releases the lock.

    Raises:
        RunFolderError: another process holds the lock (the message names it), the file system does not support locks,
            or the lock file is a link.
        StorageError: the lock file cannot be written.
    """
    path = folder / LOCK
    descriptor = open_run_file(path)
    try:
        lock_file(folder, descriptor)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        with writing(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock_file(folder: Path, descriptor: int) -> None:
    """Lock an open file in a folder until its descriptor is closed. See `lock_folder`."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            record = loads(os.pread(descriptor, 4096, 0))
            holder = f"process {record['pid']} on {record['host']} since {record['since']}"
        except (ValueError, TypeError, KeyError):
            holder = "another process"  # the holder has not written its id yet
        raise RunFolderError(
            f"{folder}: is in use by {holder}. Wait until it exits, or choose another folder."
        ) from None
    except OSError as error:
        raise RunFolderError(
            f"{folder}: the file system does not support file locks ({error.strerror}). "
            "Choose a folder on a local disk."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a draft. When the block ends, sync the draft to disk and replace `path` with it atomically.

    Raises:
        StorageError: the file cannot be written. `path` is unchanged.
    """
    with open_draft(path) as draft:
        if path.is_file() and not path.is_symlink():
            draft.chmod(path.stat().st_mode & 0o777)
        yield draft
        sync_to_disk(draft, os.O_RDWR)
        draft.replace(path)
        sync_to_disk(path.parent)


@contextmanager
def open_draft(path: Path, *, is_folder: bool = False) -> Iterator[Path]:
    """Yield the path of an empty file or folder next to `path`. Removes it after the block, unless it was renamed.

    Also removes earlier drafts of `path` whose writers were killed. A lock protects the drafts of running writers.

    Raises:
        StorageError: the draft cannot be written.
    """
    # The name is hidden, and short enough for file systems that limit the length of names.
    prefix = f".{path.name[:_MAX_NAME_LENGTH]}."
    with writing(path):
        for entry in path.parent.iterdir():
            if entry.name.startswith(prefix) and _DRAFT_END.fullmatch(entry.name, len(prefix)):
                _remove_if_abandoned(entry)
        draft = path.with_name(f"{prefix}{secrets.token_hex(8)}.tmp")
        lock = None
        try:  # Ctrl-C may arrive as soon as the draft exists
            lock = _create_locked(draft, is_folder=is_folder)
            yield draft
        finally:
            remove(draft)
            if lock is not None:
                os.close(lock)


def _create_locked(draft: Path, *, is_folder: bool) -> int:
    if is_folder:
        draft.mkdir()
    flags = os.O_RDONLY if is_folder else os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(draft, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with suppress(OSError):  # without file locks, no draft is ever regarded as abandoned
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _remove_if_abandoned(draft: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(draft)
        finally:
            os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync_to_disk(path: Path, flags: int = os.O_RDONLY) -> None:
    """Sync a file or a directory to disk."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
