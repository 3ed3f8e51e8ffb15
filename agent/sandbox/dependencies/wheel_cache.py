"""Remembers on disk which wheels answered which requirements, and keeps the wheels."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agent.sandbox.dependencies.wheels import Wheel, locked
from agent.sandbox.places import replacing, user_cache

_SCHEMA = 2

SPARED = 1800.0
"""Seconds for which a wheel that was used is left alone: somebody may be about to install it."""


def default_cache() -> Path:
    """Return the user's folder for wheels and answers; it may not exist."""
    return user_cache() / "wheels"


@dataclass(frozen=True)
class Answer:
    """The wheels that requirements led to at `time` (seconds since the epoch), by file name and SHA-256.

    `admitted` says that a rule had let the requirements in.
    """

    files: tuple[tuple[str, str], ...]
    time: float
    admitted: bool = False

    @property
    def locked(self) -> tuple[str, ...]:
        """The lock these wheels make: `name==version`, sorted."""
        return locked(name for name, _sha256 in self.files)


class WheelCache:
    """A folder of answers and wheels. Losing any of it, or not being able to write, only costs another download.

    Answers as of the moment `newest` are others than those of today.
    """

    def __init__(self, folder: Path, *, newest: datetime | None = None) -> None:
        self._folder = folder
        self._scope = [] if newest is None else [f"before {newest.isoformat()}"]

    def recall(self, request: Sequence[str], asked: Sequence[str]) -> Answer | None:
        """Return what these requirements led to when last asked for, or None.

        `asked` is whatever else an answer depends on: the interpreter, the indexes.
        """
        try:
            record = json.loads(self._record(request, asked).read_bytes())
            if [record["schema"], record["request"], record["asked"]] != [_SCHEMA, list(request), list(asked)]:
                return None
            files = tuple((str(name), str(sha256)) for name, sha256 in record["files"])
            answer = Answer(files, float(record["time"]), record["admitted"] is True)
            return answer if answer.locked else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None  # absent, torn, or of another version

    def keep(
        self, request: Sequence[str], asked: Sequence[str], wheels: Sequence[Wheel], *, now: float, admitted: bool
    ) -> Answer:
        """Store the wheels and the answer they are; a cache that cannot be written is left as it is."""
        answer = Answer(tuple((wheel.path.name, wheel.sha256) for wheel in wheels), now, admitted)
        record = {"schema": _SCHEMA, "request": list(request), "asked": list(asked), "admitted": admitted}
        text = json.dumps({**record, "files": answer.files, "time": answer.time})
        with suppress(OSError):
            for wheel in wheels:
                with replacing(self._wheel(wheel.path.name, wheel.sha256)) as new:
                    shutil.copyfile(wheel.path, new)
            with replacing(self._record(request, asked)) as new:
                new.write_text(text, encoding="utf-8")
        return answer

    def wheels(self, answer: Answer) -> list[Path] | None:
        """Return the files of an answer, or None when one of them is absent or changed."""
        paths = []
        for name, sha256 in answer.files:
            path = self._wheel(name, sha256)
            try:
                with path.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                return None
            if found != sha256:
                return None
            with suppress(OSError):
                path.touch()
            paths.append(path)
        return paths

    def size(self) -> int:
        """Return how many bytes all of it takes."""
        return sum(size for _used, size, _path in self._kept())

    def shrink(self, limit: int, *, spared: float = SPARED, pretend: bool = False) -> int:
        """Remove what was unused longest until the rest takes no more than `limit` bytes; return how many that frees.

        What was used within the last `spared` seconds stays. With `pretend` nothing is removed.
        """
        kept = sorted(self._kept())
        excess = sum(size for _used, size, _path in kept) - limit
        before = time.time() - spared
        freed = 0
        for used, size, path in kept:
            if freed >= excess or used > before:
                break
            freed += size
            if not pretend:
                with suppress(OSError):  # another process was faster, or the cache cannot be written
                    path.unlink()
                    path.parent.rmdir()
        return freed

    def _kept(self) -> Iterator[tuple[float, int, Path]]:
        """Yield when each file was used last, its size, and the file."""
        for folder in ("files", "answers"):
            for parent, _folders, names in os.walk(self._folder / folder):
                for path in (Path(parent, name) for name in names):
                    with suppress(OSError):
                        status = path.lstat()
                        yield status.st_mtime, status.st_size, path

    def _wheel(self, name: str, sha256: str) -> Path:
        return self._folder / "files" / sha256 / name

    def _record(self, request: Sequence[str], asked: Sequence[str]) -> Path:
        described = json.dumps([self._scope, list(asked), list(request)])
        return self._folder / "answers" / f"{hashlib.sha256(described.encode()).hexdigest()}.json"
