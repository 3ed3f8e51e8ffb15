"""manifest.json: the identity of a run and its environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.errors import RunFolderError
from agent.llm.base import Reply
from agent.runs.store.manifest import Manifest, WallTime, compute_wall_time, count_replies_elsewhere, read_manifest


class Clock:
    """A clock that only `wait` advances."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


SEGMENT = {"started": "2026-01-01T00:00:00+00:00", "ended": None, "environment": {}, "served": [], "replies": {}}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "manifest.json"
    assert not list(tmp_path.glob("*.tmp"))


def open_manifest(path: Path, clock: Clock, **environment: object) -> Manifest:
    manifest = Manifest(path, None if path.exists() else {"model": "m"}, clock)
    manifest.open_segment(environment)
    return manifest


def test_a_changed_environment_is_noted_and_recorded(path: Path, clock: Clock) -> None:
    open_manifest(path, clock, sandbox={"name": "docker", "image_digest": "sha256:a"}).close()
    manifest = open_manifest(path, clock, sandbox={"name": "docker", "image_digest": "sha256:b"})
    (note,) = manifest.notes
    assert re.search(r"sandbox\.image_digest .*'sha256:a' .*'sha256:b'", note)
    (change,) = read_manifest(path)["changes"]
    assert (change["what"], change["before"], change["now"]) == ("sandbox.image_digest", "sha256:a", "sha256:b")


def test_first_and_last_calls_of_served_models_are_saved_once_a_minute(path: Path, clock: Clock) -> None:
    manifest = open_manifest(path, clock)
    for last_saved, seconds in (("00:00:00", 0), ("00:00:00", 30), ("00:01:10", 40)):
        clock.wait(seconds)
        manifest.record_reply("", Reply("", model="m-1", fingerprint="fp"))
        (entry,) = read_manifest(path)["segments"][0]["served"]
        assert (entry["model"], entry["fingerprint"]) == ("m-1", "fp")
        assert entry["first_call"] == "2026-01-01T00:00:00+00:00"
        assert last_saved in entry["last_call"]


def test_a_change_of_the_served_model_is_recorded_once(path: Path, clock: Clock) -> None:
    manifest = open_manifest(path, clock)
    for fingerprint in ("fp-1", "fp-2", "fp-1", "fp-2"):
        manifest.record_reply("", Reply("", model="m-1", fingerprint=fingerprint))
    (note,) = manifest.notes
    assert re.search(r"model .*'m-1 \(fp-1\)' .*'m-1 \(fp-2\)'", note)
    manifest.close()
    reopened = open_manifest(path, clock)
    reopened.record_reply("", Reply("", model="m-1", fingerprint="fp-2"))
    reopened.record_reply("", Reply("", model="m-0", cached=True))
    assert reopened.notes == []
    reopened.record_reply("", Reply("", model="m-2"))
    assert len(read_manifest(path)["changes"]) == 2


def test_at_most_a_hundred_served_models_are_recorded(path: Path, clock: Clock) -> None:
    manifest = open_manifest(path, clock)
    for number in range(120):
        manifest.record_reply("", Reply("", model="m-1", fingerprint=f"fp-{number}"))
    manifest.close()
    document = read_manifest(path)
    assert (len(document["segments"][0]["served"]), len(document["changes"])) == (100, 99)


def test_different_models_for_different_roles_are_not_a_change(path: Path, clock: Clock) -> None:
    manifest = open_manifest(path, clock)
    for role, model in (("screen", "small"), ("arbitrate", "large"), ("screen", "large")):
        assert manifest.notes == []
        manifest.record_reply(role, Reply("", model=model))
    (change,) = manifest.document["changes"]
    assert (change["before"], change["now"], "screen" in change["what"]) == ("small", "large", True)


def test_each_difference_in_identity_has_a_line(path: Path, clock: Clock) -> None:
    manifest = Manifest(path, {"model": {"name": "a"}, "old": 1, "input_sha256": "x", "same": [1]}, clock)
    lines = manifest.compare_identity({"model": {"name": "b" * 500 + "\x1b"}, "new": 2, "same": [1]})
    assert [line.partition(":")[0] for line in lines] == ["model.name", "old", "new"]
    assert re.search(r"'a' .*'bbbb", lines[0])
    assert len(lines[0]) < 150


def test_replies_from_servers_that_the_last_start_does_not_use_are_counted(path: Path, clock: Clock) -> None:
    for servers, replies in ((["a"], "aa"), (["a", "b"], "abc"), (["b"], "b")):
        manifest = open_manifest(path, clock, servers=servers)
        for address in replies:
            manifest.record_reply("", Reply("", address=address, cached=True))
        manifest.close()
    assert count_replies_elsewhere(read_manifest(path)) == {"a": 3, "c": 1}


@pytest.mark.parametrize("content", [b"", b'{"schema": 1', b"[]", b"{}"])
def test_a_malformed_manifest_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"manifest\.json: "):
        Manifest(path)


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"segments": [1, None]}, "segments.0"),
        ({"segments": [{**SEGMENT, "started": "yesterday"}]}, "segments.0.started"),
        ({"segments": [SEGMENT, {**SEGMENT, "environment": 5}]}, "segments.1.environment"),
        ({"segments": [{**SEGMENT, "replies": {"a": -1}}]}, "segments.0.replies.a"),
        ({"segments": [{**SEGMENT, "served": [{"role": ""}]}]}, "segments.0.served.0.model"),
        ({"schema": 9}, "schema 9"),
    ],
)
def test_damage_in_a_manifest_is_located(path: Path, part: dict[str, object], place: str) -> None:
    document = {"schema": 1, "identity": {}, "segments": [], "changes": [], **part}
    path.write_text(json.dumps(document))
    with pytest.raises(RunFolderError, match=place):
        Manifest(path)


def test_wall_time_is_the_sum_over_starts_and_a_killed_start_ends_at_its_last_call(path: Path, clock: Clock) -> None:
    assert compute_wall_time(Manifest(path, {}, clock).document) is None
    manifest = open_manifest(path, clock)
    clock.wait(30)
    manifest.close()
    assert compute_wall_time(read_manifest(path)) == WallTime(30.0, 1, True)
    clock.wait(3600)
    killed = open_manifest(path, clock)
    assert compute_wall_time(read_manifest(path)) == WallTime(30.0, 2, False)
    clock.wait(5)
    killed.record_reply("screen", Reply(text="", model="m"))
    assert compute_wall_time(read_manifest(path)) == WallTime(35.0, 2, False)
