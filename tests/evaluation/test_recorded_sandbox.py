"""Tests for reading recorded sandboxes from the segments of a manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest

from agent import ScriptedSandbox
from agent.config import Config
from agent.errors import NotReplayable
from agent.evaluation.recorded import RecordedSandbox, group_by_sandbox

DESCRIBED = {"backend": "bwrap", "bubblewrap": "0.8.0", "python": "3.11.2", "platform": "linux/x86_64"}
LIMITS = {"memory_mb": 512, "processes": 64, "cpus": 0.5, "files_mb": 32, "output_kb": 16, "inodes": 1000}


def make_manifest(
    described: Mapping[str, Any] | None = None, *, settings: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the manifest of a run with one segment."""
    environment = {"versions": {"test-driven-annotator": "0.0.1"}, "sandbox": described or DESCRIBED, "limits": LIMITS}
    identity = {"pipeline": {"test_timeout": 7.0, "command_timeout": 3.0, "max_repairs": 3}, "sandbox": settings or {}}
    return {"identity": identity, "segments": [{"environment": environment}], "changes": [], **more}


class DescribedSandbox(ScriptedSandbox):
    """A backend with a given description."""

    def __init__(self, described: Mapping[str, str]) -> None:
        super().__init__()
        self._described = described

    def describe(self) -> Mapping[str, str]:
        return self._described


def test_settings_are_read_from_the_run() -> None:
    settings = {"exclude_newer": "2024-12-31", "requirements": ["six"]}
    recorded = RecordedSandbox.of(make_manifest(settings=settings), 1)
    sandbox = recorded.config.sandbox
    assert {name: getattr(sandbox, name) for name in LIMITS} == LIMITS
    assert (sandbox.backend, sandbox.python) == ("bwrap", "3.11")
    assert sandbox.exclude_newer == "2024-12-31"
    assert sandbox.requirements is None  # locks list the packages
    assert (recorded.config.pipeline.test_timeout, recorded.config.pipeline.command_timeout) == (7.0, 3.0)


def test_a_removed_setting_is_rejected() -> None:
    with pytest.raises(NotReplayable, match="era"):
        RecordedSandbox.of(make_manifest(settings={"era": "pair"}), 1)


def with_sandbox(config: Config, **sandbox: Any) -> Config:
    """Return the configuration with sandbox settings changed."""
    return Config.model_validate({**config.model_dump(), "sandbox": {**config.sandbox.model_dump(), **sandbox}})


def test_images_are_never_taken_from_a_run_folder() -> None:
    docker = {**DESCRIBED, "backend": "docker", "image": "evil:1"}
    recorded = RecordedSandbox.of(make_manifest(docker, settings={"image": "evil:1"}), 1)
    assert recorded.config.sandbox.image is None
    for backend in ("docker", "auto"):
        with pytest.raises(NotReplayable, match=r"'evil:1'.* sandbox.image=NAME"):
            recorded.check(with_sandbox(recorded.config, backend=backend))
    recorded.check(with_sandbox(recorded.config, backend="bwrap"))
    again = with_sandbox(recorded.config, image="evil:1")
    recorded.check(again)
    assert recorded.list_notes(again, DescribedSandbox(docker))[0].startswith("image: evil:1 ")
    ours = RecordedSandbox.of(make_manifest({**docker, "image": "ours:1"}), 1)
    ours.check(ours.config)
    assert not any("your settings" in note for note in ours.list_notes(ours.config, DescribedSandbox(docker)))


def test_mounts_are_never_taken_from_a_run_folder() -> None:
    recorded = RecordedSandbox.of(make_manifest(settings={"mount_ro": ["/root/.ssh:/data"]}), 1)
    assert recorded.config.sandbox.mount_ro == ()
    with pytest.raises(NotReplayable, match=r"'/root/.ssh:/data'.* sandbox.mount_ro=HOST:BOX"):
        recorded.check(recorded.config)
    other = with_sandbox(recorded.config, mount_ro=("/srv/words:/data",))
    recorded.check(other)
    first, *_, last = recorded.list_notes(other, DescribedSandbox(DESCRIBED))
    assert first.startswith("mounted read-only: /srv/words:/data ")
    assert re.search(r"^mount_ro: .*'/root/.ssh:/data'.*'/srv/words:/data'", last)


def test_each_segment_has_its_own_limits() -> None:
    several = make_manifest()
    later = {"environment": {"sandbox": DESCRIBED, "limits": {**LIMITS, "memory_mb": 256}}}
    several["segments"] += [later, {"environment": {"sandbox": None}}]
    for segment, memory in ((1, 512), (2, 256)):
        recorded = RecordedSandbox.of(several, segment)
        assert recorded.config.sandbox.memory_mb == memory
    for segment in (0, 3, 4):
        with pytest.raises(NotReplayable, match=f"segment {segment} "):
            RecordedSandbox.of(several, segment)


def test_notes_name_the_settings_that_differ() -> None:
    recorded = RecordedSandbox.of(make_manifest(), 1)
    here = {**DESCRIBED, "python": "3.12.1"}
    config = Config.model_validate({**recorded.config.model_dump(), "pipeline": {"test_timeout": 9.0}})
    changes = {
        "package": ("'0.0.1'", repr(version("test-driven-annotator"))),
        "python": ("'3.11.2'", "'3.12.1'"),
        "test_timeout": ("7.0", "9.0"),
        "command_timeout": ("3.0", "30.0"),
    }
    for note, (name, values) in zip(recorded.list_notes(config, DescribedSandbox(here)), changes.items(), strict=True):
        assert re.match(rf"{name}: .*{re.escape(values[0])}.*{re.escape(values[1])}", note)
    docker = DescribedSandbox({"backend": "docker", "engine": "Docker 27", "python": "3.11.2"})
    (note,) = recorded.list_notes(recorded.config, docker)[1:]
    assert re.match("backend: .*'bwrap'.*'docker'", note)
    same = replace(recorded, package=version("test-driven-annotator"))
    assert same.list_notes(recorded.config, DescribedSandbox(DESCRIBED)) == []


@pytest.mark.parametrize("name", ["backend", "python", "platform", "image_id"])
def test_environments_of_another_interpreter_are_not_used(name: str) -> None:
    recorded = RecordedSandbox.of(make_manifest(), 1)
    assert recorded.has_same_interpreter(DescribedSandbox(DESCRIBED))
    assert not recorded.has_same_interpreter(DescribedSandbox({**DESCRIBED, name: "another"}))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"segments": []}, "segment 1 "),
        ({"segments": [{"environment": {"sandbox": None}}]}, "segment 1 "),
        ({"segments": [{"environment": {"sandbox": {"backend": "chroot"}}}]}, "'chroot'"),
        ({"segments": [{"environment": {"sandbox": "bwrap"}}]}, "segment 1 "),
        ({"identity": {"pipeline": {"test_timeout": -1}}}, "test_timeout"),
        ({"identity": {"sandbox": {"mount_ro": 7}}}, "mount_ro"),
        ({"identity": {"pipeline": {"test_timeout": "forever"}}}, "test_timeout"),
    ],
)
def test_an_unusable_manifest_is_rejected(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(NotReplayable, match=message):
        RecordedSandbox.of({**make_manifest(), **broken}, 1)


def make_segmented_manifest(*limits: dict[str, Any], sandbox: Mapping[str, str] = DESCRIBED) -> dict[str, Any]:
    """Return a manifest with one segment per limits. The last segment uses `sandbox`."""
    document = make_manifest()
    document["segments"] = [
        {"environment": {"sandbox": DESCRIBED, "limits": {**LIMITS, **changed}}} for changed in limits
    ]
    document["segments"][-1]["environment"]["sandbox"] = sandbox
    return document


def test_programs_are_grouped_by_the_limits_of_their_segment() -> None:
    several = make_segmented_manifest({"memory_mb": 1024}, {"memory_mb": 256}, {"memory_mb": 1024}, {"memory_mb": 300})
    groups = group_by_sandbox(several, {("0", 0): 1, ("1", 0): 2, ("2", 0): 3})
    memory = [(sandbox.config.sandbox.memory_mb, [pair for pair, _ in keys]) for sandbox, keys in groups]
    assert memory == [(1024, ["0", "2"]), (256, ["1"])]


def test_a_segment_with_an_unknown_backend_affects_only_its_programs() -> None:
    several = make_segmented_manifest({}, {}, sandbox={"backend": "chroot"})
    assert len(group_by_sandbox(several, {("0", 0): 1})) == 1
    with pytest.raises(NotReplayable, match="'chroot'"):
        group_by_sandbox(several, {("0", 0): 1, ("1", 0): 2})
