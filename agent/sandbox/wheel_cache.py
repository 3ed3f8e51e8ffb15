"""Remembers on disk which wheels answered which requirements, and keeps the wheels."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.places import replacing, user_cache
from agent.sandbox.wheels import InterpreterTag, Wheel, locked

_SCHEMA = 1


def default_cache() -> Path:
    """Return the user's folder for wheels and answers; it may not exist."""
    return user_cache() / "wheels"


@dataclass(frozen=True)
class Answer:
    """The wheels that requirements led to at `time` (seconds since the epoch), by file name and SHA-256."""

    files: tuple[tuple[str, str], ...]
    time: float

    @property
    def locked(self) -> tuple[str, ...]:
        """The lock these wheels make: `name==version`, sorted."""
        return locked(name for name, _sha256 in self.files)


class WheelCache:
    """A folder of answers and wheels. Losing any of it, or not being able to write, only costs another download."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, request: Sequence[str], interpreter: InterpreterTag) -> Answer | None:
        """Return what these requirements led to when last asked for, or None."""
        try:
            record = json.loads(self._record(request, interpreter).read_bytes())
            if record["schema"] != _SCHEMA or record["request"] != list(request):
                return None
            files = tuple((str(name), str(sha256)) for name, sha256 in record["files"])
            answer = Answer(files, float(record["time"]))
            return answer if answer.locked else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None  # absent, torn, or of another version

    def keep(
        self, request: Sequence[str], interpreter: InterpreterTag, wheels: Sequence[Wheel], *, now: float
    ) -> Answer:
        """Store the wheels and the answer they are; a cache that cannot be written is left as it is."""
        answer = Answer(tuple((wheel.path.name, wheel.sha256) for wheel in wheels), now)
        record = {"schema": _SCHEMA, "request": list(request), "interpreter": str(interpreter)}
        text = json.dumps({**record, "files": answer.files, "time": answer.time})
        with suppress(OSError):
            for wheel in wheels:
                with replacing(self._wheel(wheel.path.name, wheel.sha256)) as new:
                    shutil.copyfile(wheel.path, new)
            with replacing(self._record(request, interpreter)) as new:
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
            paths.append(path)
        return paths

    def _wheel(self, name: str, sha256: str) -> Path:
        return self._folder / "files" / sha256 / name

    def _record(self, request: Sequence[str], interpreter: InterpreterTag) -> Path:
        asked = json.dumps([str(interpreter), *request])
        return self._folder / "answers" / f"{hashlib.sha256(asked.encode()).hexdigest()}.json"
