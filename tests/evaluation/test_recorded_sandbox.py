"""What a manifest says of its sandboxes is what a replay goes by, start by start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest

from agent import ScriptedSandbox
from agent.config import Config
from agent.errors import NotReplayable
from agent.evaluation.recorded import RecordedSandbox, ReplayGroup, group_by_sandbox, merge_notes

DESCRIBED = {"backend": "bwrap", "bubblewrap": "0.8.0", "python": "3.11.2", "platform": "linux/x86_64"}
LIMITS = {"memory_mb": 512, "processes": 64, "cpus": 0.5, "files_mb": 32, "output_kb": 16, "inodes": 1000}


def manifest(
    described: Mapping[str, Any] | None = None, *, given: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the manifest of a run in one go."""
    environment = {"versions": {"test-driven-annotator": "0.0.1"}, "sandbox": described or DESCRIBED, "limits": LIMITS}
    identity = {"pipeline": {"test_timeout": 7.0, "command_timeout": 3.0, "max_try_time": 3}, "sandbox": given or {}}
    return {"identity": identity, "segments": [{"environment": environment}], "changes": [], **more}


class Here(ScriptedSandbox):
    """A backend that describes itself as it is told to."""

    def __init__(self, described: Mapping[str, str]) -> None:
        super().__init__()
        self._described = described

    def describe(self) -> Mapping[str, str]:
        return self._described


def test_settings_are_those_of_the_run() -> None:
    given = {"exclude_newer": "2024-12-31", "requirements": ["six"]}
    found = RecordedSandbox.of(manifest(given=given), 1)
    sandbox = found.config.sandbox
    assert {name: getattr(sandbox, name) for name in LIMITS} == LIMITS
    assert (sandbox.backend, sandbox.python) == ("bwrap", "3.11")
    assert sandbox.exclude_newer == "2024-12-31"
    assert sandbox.requirements is None  # the locks hold what the file led to
    assert (found.config.pipeline.test_timeout, found.config.pipeline.command_timeout) == (7.0, 3.0)


def test_a_setting_that_does_not_exist_any_more_is_refused() -> None:
    with pytest.raises(NotReplayable, match="era"):
        RecordedSandbox.of(manifest(given={"era": "pair"}), 1)


def asked(config: Config, **sandbox: Any) -> Config:
    """Return a configuration with settings of the user's."""
    return Config.model_validate({**config.model_dump(), "sandbox": {**config.sandbox.model_dump(), **sandbox}})


def test_an_image_is_never_taken_from_a_folder() -> None:
    docker = {**DESCRIBED, "backend": "docker", "image": "evil:1"}
    found = RecordedSandbox.of(manifest(docker, given={"image": "evil:1"}), 1)
    assert found.config.sandbox.image is None
    for backend in ("docker", "auto"):
        with pytest.raises(NotReplayable, match=r"ran in the image 'evil:1', .*\(--image NAME\)"):
            found.check(asked(found.config, backend=backend))
    found.check(asked(found.config, backend="bwrap"))
    again = asked(found.config, image="evil:1")
    found.check(again)
    assert found.notes(again, Here(docker))[0] == ["programs run in the image evil:1, as you say"][0]
    ours = RecordedSandbox.of(manifest({**docker, "image": "ours:1"}), 1)
    ours.check(ours.config)
    assert not any("as you say" in note for note in ours.notes(ours.config, Here(docker)))


def test_files_of_this_machine_are_never_shown_at_the_word_of_a_folder() -> None:
    found = RecordedSandbox.of(manifest(given={"mount_ro": ["/root/.ssh:/data"]}), 1)
    assert found.config.sandbox.mount_ro == ()
    with pytest.raises(NotReplayable, match=r"were shown '/root/.ssh:/data', .*\(--mount-ro HOST:BOX\)"):
        found.check(found.config)
    other = asked(found.config, mount_ro=("/srv/words:/data",))
    found.check(other)
    assert found.notes(other, Here(DESCRIBED))[0] == ["programs are shown /srv/words:/data, as you say"][0]
    assert found.notes(other, Here(DESCRIBED))[-1] == (
        "mount_ro: ('/root/.ssh:/data',) then, ('/srv/words:/data',) now"
    )


def test_another_backend_may_take_the_place_of_the_recorded_one() -> None:
    docker = {**DESCRIBED, "backend": "docker", "image": "ours:1"}
    found = RecordedSandbox.of(manifest(docker, given={"image": "ours:1"}), 1, "bwrap").config.sandbox
    assert (found.backend, found.image, found.python) == ("bwrap", None, None)
    assert RecordedSandbox.of(manifest(given={"python": "3.9"}), 1, "docker").config.sandbox.python == "3.9"


def test_what_held_in_a_segment_is_taken() -> None:
    several = manifest()
    later = {"environment": {"sandbox": DESCRIBED, "limits": {**LIMITS, "memory_mb": 256}}}
    several["segments"] += [later, {"environment": {"sandbox": None}}]
    for segment, memory in ((1, 512), (2, 256)):
        found = RecordedSandbox.of(several, segment)
        assert found.config.sandbox.memory_mb == memory
    for segment in (0, 3, 4):
        with pytest.raises(NotReplayable, match=f"segment {segment} of the run's manifest had no sandbox"):
            RecordedSandbox.of(several, segment)


def test_what_is_otherwise_now_is_named() -> None:
    found = RecordedSandbox.of(manifest(), 1)
    here = {**DESCRIBED, "python": "3.12.1"}
    config = Config.model_validate({**found.config.model_dump(), "pipeline": {"test_timeout": 9.0}})
    assert found.notes(config, Here(here)) == [
        f"package: '0.0.1' then, {version('test-driven-annotator')!r} now",
        "python: '3.11.2' then, '3.12.1' now",
        "test_timeout: 7.0 then, 9.0 now",
        "command_timeout: 3.0 then, 30.0 now",
    ]
    docker = Here({"backend": "docker", "engine": "Docker 27", "python": "3.11.2"})
    assert found.notes(found.config, docker)[1:] == ["backend: 'bwrap' then, 'docker' now"]
    same = replace(found, package=version("test-driven-annotator"))
    assert same.notes(found.config, Here(DESCRIBED)) == []


@pytest.mark.parametrize("name", ["backend", "python", "platform", "image_id"])
def test_environments_of_another_interpreter_are_not_taken(name: str) -> None:
    found = RecordedSandbox.of(manifest(), 1)
    assert found.has_same_interpreter(Here(DESCRIBED))
    assert not found.has_same_interpreter(Here({**DESCRIBED, name: "another"}))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"segments": []}, "executed nothing"),
        ({"segments": [{"environment": {"sandbox": None}}]}, "executed nothing"),
        ({"segments": [{"environment": {"sandbox": {"backend": "chroot"}}}]}, "none of ours"),
        ({"segments": [{"environment": {"sandbox": "bwrap"}}]}, "executed nothing"),
        ({"identity": {"pipeline": {"test_timeout": -1}}}, "cannot be used"),
        ({"identity": {"sandbox": {"mount_ro": 7}}}, "cannot be used"),
        ({"identity": {"pipeline": {"test_timeout": "forever"}}}, "cannot be used"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_in_words(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(NotReplayable, match=message):
        RecordedSandbox.of({**manifest(), **broken}, 1)


def starts(*limits: dict[str, Any], sandbox: Mapping[str, str] = DESCRIBED) -> dict[str, Any]:
    """Return the manifest of a run in several goes, the last of them in this sandbox."""
    found = manifest()
    found["segments"] = [{"environment": {"sandbox": DESCRIBED, "limits": {**LIMITS, **each}}} for each in limits]
    found["segments"][-1]["environment"]["sandbox"] = sandbox
    return found


def test_programs_are_parted_by_the_conditions_of_the_start_that_ran_them() -> None:
    several = starts({"memory_mb": 1024}, {"memory_mb": 256}, {"memory_mb": 1024}, {"memory_mb": 300})
    groups = group_by_sandbox(several, {("0", 0): 1, ("1", 0): 2, ("2", 0): 3})
    found = [(group.sandbox.config.sandbox.memory_mb, [pair for pair, _ in group.keys]) for group in groups]
    assert found == [(1024, ["0", "2"]), (256, ["1"])]


def test_a_start_by_a_sandbox_of_its_own_refuses_only_what_it_ran() -> None:
    several = starts({}, {}, sandbox={"backend": "chroot"})
    assert len(group_by_sandbox(several, {("0", 0): 1})) == 1
    with pytest.raises(NotReplayable, match="none of ours"):
        group_by_sandbox(several, {("0", 0): 1, ("1", 0): 2})


def test_notes_say_of_which_programs_they_are() -> None:
    several = starts({"memory_mb": 1024}, {"memory_mb": 256, "cpus": 2.0})
    groups = group_by_sandbox(several, {("0", 0): 1, ("1", 0): 2, ("2", 0): 2})
    first, second = "memory_mb 1024, cpus 0.5", "memory_mb 256, cpus 2.0"
    own = "each runs again with its own, unless another note says otherwise"
    assert list(merge_notes(groups, [["kernel", "memory"], ["kernel"]])) == [
        f"the run's programs ran with {first} (1 program) and {second} (2 programs); {own}",
        "kernel",
        f"of programs that ran with {first}: memory",
    ]
    assert list(merge_notes([ReplayGroup(groups[0].sandbox)], [["kernel"]])) == ["kernel"]
