"""`manifest.json`: the identity of a run, and one segment for each session, which records the session's environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agent.datasets.encoding import dumps, loads
from agent.llm.base import Reply
from agent.runs.store.files import read_document, replacing
from agent.runs.store.former import update_manifest
from agent.types import SCHEMA_VERSION, Count, Pair

_INPUT = "input_sha256"
# If the process is killed, the recorded time of the last call is outdated by at most this many seconds.
_SAVE_SECONDS = 60.0
# Maximum number of served models recorded per session: some servers change the fingerprint with every reply.
_MAX_SERVED = 100
_NOT_SET = object()

Clock = Callable[[], datetime]


class _Part(BaseModel):
    """Base class for parts of the manifest. Unknown fields are preserved."""

    model_config = ConfigDict(extra="allow")


_Time = Annotated[str, AfterValidator(lambda text: datetime.fromisoformat(text).astimezone(UTC).isoformat())]


class _Served(_Part):
    role: str
    model: str
    fingerprint: str | None
    last_call: _Time


class _Segment(_Part):
    started: _Time
    ended: _Time | None
    environment: dict[str, Any]
    served: list[_Served]
    replies: dict[str, Count]


class _Document(_Part):
    schema_version: int = Field(alias="schema")
    identity: dict[str, Any]
    segments: list[_Segment]
    changes: list[dict[str, Any]]


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class Manifest:
    """The manifest of a run, written by this process.

    `document` holds the contents of the file. `notes` are messages for the user about changes to the environment since
    the run began.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any] | None = None, clock: Clock = utc_now) -> None:
        """Read a manifest, or create one in memory if `identity` is passed.

        Raises:
            RunFolderError: the manifest is damaged or was written by a newer version.
        """
        self.path = path
        self.document: dict[str, Any] = (
            read_manifest(path)
            if identity is None
            else {"schema": SCHEMA_VERSION, "identity": as_json(identity), "segments": [], "changes": []}
        )
        self.notes: list[str] = []
        self._clock = clock
        self._saved_at = clock()

    def compare_identity(self, identity: Mapping[str, Any]) -> list[str]:
        """Return lines for the user that list how an identity differs from the recorded identity.

        Ignores differences in the pairs.
        """
        return list_differences({**self.document["identity"], _INPUT: None}, {**as_json(identity), _INPUT: None})

    @property
    def input_sha256(self) -> Any:
        """The hash of the run's input."""
        return self.document["identity"].get(_INPUT)

    def replace_input(self, input_sha256: str, before: int, now: int) -> None:
        """Record a new input hash and, if the number of pairs has changed, that change. `open_segment` saves both."""
        self.document["identity"][_INPUT] = input_sha256
        if before != now:
            self._record_change("number of pairs", before, now)

    def open_segment(self, environment: Mapping[str, Any]) -> None:
        """Start a segment for this process, record how the environment has changed, and save the manifest."""
        before: dict[str, Any] = {}
        for segment in self.document["segments"]:
            before.update(flatten(segment["environment"]))
        new = as_json(environment)
        for name, value in flatten(new).items():
            if before.get(name) not in (None, value):
                self._record_change(name, before[name], value)
        self.document["segments"].append(
            {"started": self._now(), "ended": None, "environment": new, "served": [], "replies": {}}
        )
        self.save()

    @property
    def segment(self) -> int:
        """The number of the current segment, counting from 1."""
        return len(self.document["segments"])

    def record_reply(self, role: str, reply: Reply) -> None:
        """Record the server address of a reply and, unless it comes from the cache, the model that served the role.

        Also records a change of the served model. At most 100 served models are recorded per session. The file is saved
        when a new model is served, and otherwise at most once a minute.
        """
        current = self.document["segments"][-1]
        if reply.address:
            current["replies"][reply.address] = current["replies"].get(reply.address, 0) + 1
        served = {"role": role, "model": reply.model, "fingerprint": reply.fingerprint}
        matches = [entry for entry in current["served"] if served.items() <= entry.items()]
        if matches and not reply.cached:
            matches[0]["last_call"] = self._now()
        elif not reply.cached and len(current["served"]) < _MAX_SERVED:
            before = [
                _format_served(entry)
                for segment in self.document["segments"]
                for entry in segment["served"]
                if entry["role"] == role
            ]
            if before and _format_served(served) not in before:
                self._record_change(
                    f"served model of {role}" if role else "served model", before[-1], _format_served(served)
                )
            current["served"].append({**served, "first_call": self._now(), "last_call": self._now()})
            self.save()
        if (self._clock() - self._saved_at).total_seconds() > _SAVE_SECONDS:
            self.save()

    def close(self) -> None:
        """Record the end of the segment and save the manifest."""
        self.document["segments"][-1]["ended"] = self._now()
        self.save()

    def save(self) -> None:
        """Replace the file atomically.

        Raises:
            StorageError: the file cannot be written. The old file is unchanged.
        """
        self._saved_at = self._clock()
        with replacing(self.path) as draft:
            draft.write_bytes(dumps(self.document, indent=True) + b"\n")

    def _record_change(self, name: str, before: Any, now: Any) -> None:
        self.document["changes"].append({"at": self._now(), "what": name, "before": before, "now": now})
        self.notes.append(f"{name} has changed since the run began, from {format_value(before)} to {format_value(now)}")

    def _now(self) -> str:
        return self._clock().isoformat(timespec="seconds")


@dataclass(frozen=True)
class WallTime:
    """The duration of a run, summed over its sessions. `known` is False if the end of a session is not recorded."""

    seconds: float
    starts: int
    known: bool


def compute_wall_time(document: Mapping[str, Any]) -> WallTime | None:
    """Return the duration of a run, or None if the run has no segments.

    If a session was killed or is still running, its duration is measured up to its last recorded call.
    """
    seconds, starts = 0.0, document["segments"]
    for segment in starts:
        last = max((entry["last_call"] for entry in segment["served"]), default=segment["started"])
        start, end = (datetime.fromisoformat(time) for time in (segment["started"], segment["ended"] or last))
        seconds += max(0.0, (end - start).total_seconds())
    return WallTime(seconds, len(starts), all(segment["ended"] for segment in starts)) if starts else None


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the contents of a manifest.

    Raises:
        RunFolderError: the manifest is missing, is damaged or was written by a newer version.
    """
    document = read_document(
        path,
        _Document,
        expected="the manifest of a run",
        remedy="Choose another folder (-o).",
        update=update_manifest,
    )
    return document.model_dump(by_alias=True)


def count_replies_elsewhere(document: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of replies for each server address that the last session did not use."""
    replies, servers = Counter[str](), None
    for segment in document["segments"]:
        replies.update(segment["replies"])
        servers = segment["environment"].get("servers")
    current = servers if isinstance(servers, list) else []
    return {address: count for address, count in replies.items() if address not in current}


def _format_served(entry: Mapping[str, Any]) -> str:
    return entry["model"] if entry["fingerprint"] is None else f"{entry['model']} ({entry['fingerprint']})"


def as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a mapping to JSON and back, so that tuples become lists and keys become strings.

    Raises:
        TypeError: JSON cannot represent a value.
    """
    result: dict[str, Any] = loads(dumps(dict(value)))
    return result


def add_languages(identity: Mapping[str, Any], other: Mapping[str, Any], pairs: Iterable[Pair]) -> dict[str, Any]:
    """Return an identity with the languages of another identity, except those of the run's own pairs.

    Pairs in a new language do not affect the labels of the run's pairs, which are read only if a language is new.
    """
    recorded, others = identity.get("languages", {}), other.get("languages", {})
    if not isinstance(recorded, Mapping) or not isinstance(others, Mapping) or others.keys() <= recorded.keys():
        return dict(identity)
    used = {pair.language for pair in pairs}
    return {**identity, "languages": {**{name: others[name] for name in others if name not in used}, **recorded}}


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings, joining nested keys with dots."""
    leaves: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            leaves.update(flatten(inner, f"{prefix}{name}."))
        else:
            leaves[f"{prefix}{name}"] = inner
    return leaves


def list_differences(
    before: Mapping[str, Any], now: Mapping[str, Any], old_place: str = "in the folder", new_place: str = "now"
) -> list[str]:
    """Return one line for each value that differs, such as `model: 'a' in the folder, 'b' now`."""
    old, new = flatten(before), flatten(now)
    lines = []
    for name in dict.fromkeys((*old, *new)):
        first, second = old.get(name, _NOT_SET), new.get(name, _NOT_SET)
        if first != second:
            lines.append(f"{name}: {format_value(first)} {old_place}, {format_value(second)} {new_place}")
    return lines


def format_value(value: Any) -> str:
    """Format a value for a message, escaped and shortened."""
    text = "not set" if value is _NOT_SET else repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
