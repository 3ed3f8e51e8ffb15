"""Remembers on disk what package indexes said of projects."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from packaging.utils import NormalizedName

from agent.sandbox.dependencies.index_rule import Project
from agent.sandbox.places import replacing

LIFE = 7 * 24 * 3600.0
"""Seconds for which an index's answer is used again."""

_SCHEMA = 1


class ProjectCache:
    """A folder of answers. Losing any of it, or not being able to write, only costs another question."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, index: str, name: NormalizedName, *, now: float) -> Project | Literal["unasked"] | None:
        """Return what an index said within the last seven days: a project, None for no such project, or `unasked`."""
        try:
            record = json.loads(self._path(index, name).read_bytes())
            if record["schema"] != _SCHEMA or record["name"] != name or not 0 <= now - record["time"] < LIFE:
                return "unasked"
            if record["project"] is None:
                return None
            first, releases = record["project"]
            return Project(None if first is None else datetime.fromisoformat(first), int(releases))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return "unasked"  # absent, torn, or of another version

    def keep(self, index: str, name: NormalizedName, project: Project | None, *, now: float) -> None:
        """Store an answer; a cache that cannot be written is left as it is."""
        first = None if project is None or project.first_upload is None else project.first_upload.isoformat()
        facts = None if project is None else [first, project.releases]
        path = self._path(index, name)
        with suppress(OSError), replacing(path) as new:
            new.write_text(json.dumps({"schema": _SCHEMA, "name": name, "time": now, "project": facts}))

    def _path(self, index: str, name: NormalizedName) -> Path:
        asked = json.dumps([index, name])
        return self._folder / f"{hashlib.sha256(asked.encode()).hexdigest()}.json"
