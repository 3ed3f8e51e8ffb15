"""Reads the recorded executions and sandboxes of a run, and compares test reports."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from typing import Any, Literal

from pydantic import ValidationError

from agent.config import LIMITS, Config, SandboxConfig
from agent.errors import NotReplayable
from agent.languages.canonical import canonicalise
from agent.pipeline.history import Command, Execution, History, Program
from agent.runs.store.annotations import Key
from agent.runs.store.manifest import format_value
from agent.runs.store.run_view import RunView
from agent.sandbox.base import SandboxBackend
from agent.sandbox.commands import RunCommand, plan
from agent.sandbox.registry import REGISTRY
from agent.text import describe_error, plural
from agent.types import CaseResult, Cause, Pair, Status, TestReport

_ENVIRONMENT = re.compile(r"/envs/[0-9a-f]{8,64}\b")


@dataclass(frozen=True)
class RecordedExecution:
    """A recorded execution of a test program.

    `number` counts the executions for a pair in a round, starting from 1. `commands` ran in the sandbox before the
    program. `segment` is the number of the manifest's segment, or 0 if it is unknown. `flaky` is true if the run found
    that the outcome of the program varies.
    """

    pair: Pair
    round: int
    number: int
    execution: Execution
    program: Program
    segment: int = 0
    commands: tuple[tuple[str, ...], ...] = ()
    flaky: bool = False


def read_execution(view: RunView, pair_id: str, round: int = 0, number: int | None = None) -> RecordedExecution:
    """Read an execution for a pair. The default is the last execution, on which the label is based.

    Raises:
        NotReplayable: the execution does not exist, or its program was not recorded.
        RunFolderError: the run's evidence is damaged.
    """
    history = view.evidence(pair_id, round)
    if history is None:
        raise NotReplayable(f"pair {pair_id!r}: the run has no evidence for this pair")
    tests = history.tests
    if not tests:
        raise NotReplayable(f"pair {pair_id!r}: no program was executed")
    number = len(tests) if number is None else number
    if not 1 <= number <= len(tests):
        raise NotReplayable(f"pair {pair_id!r}: execution {number} does not exist. Choose 1 to {len(tests)}.")
    execution = tests[number - 1]
    if execution.program >= len(history.programs):
        raise NotReplayable(f"pair {pair_id!r}: the program of execution {number} was not recorded")
    annotation = view.annotation(pair_id, round)
    test = None if annotation is None else annotation.test
    return RecordedExecution(
        pair=history.pair,
        round=round,
        number=number,
        execution=execution,
        program=history.programs[execution.program],
        segment=history.segment or 0,
        commands=tuple(_iterate_commands(history, execution)),
        flaky=test is not None and test.cause is Cause.FLAKY,
    )


def _iterate_commands(history: History, execution: Execution) -> Iterator[tuple[str, ...]]:
    for event in history.events:
        if event is execution:
            return
        if (
            isinstance(event, Command)
            and event.outcome == "ran"
            and isinstance(step := plan(event.command), RunCommand)
        ):
            yield step.argv


def list_keys_with_tests(view: RunView) -> list[Key]:
    """Return the sorted keys of annotations with a test report, including those whose program was never executed.

    Raises:
        RunFolderError: the run is damaged.
    """
    return sorted((annotation.id, annotation.round) for annotation in view.annotations() if annotation.test)


def find_segment(view: RunView, key: Key) -> int | None:
    """Return the number of the manifest segment in which the programs for a pair and round were executed.

    The number is 0 if the segment is unknown, and None if no program was executed.

    Raises:
        RunFolderError: the run is damaged.
    """
    history = view.evidence(*key)
    return None if history is None or not history.tests else history.segment or 0


def sample_keys(
    keys: Sequence[Key], size: int | None, seed: int, segment_of: Callable[[Key], int | None]
) -> dict[Key, int]:
    """Sample `size` pairs with executed programs. If `size` is None, select all pairs with executed programs.

    Return the segment of each sampled key, in the order of `keys`. `segment_of` is called only for pairs that were
    drawn.
    """
    rounds: dict[str, list[Key]] = {}
    for key in keys:
        rounds.setdefault(key[0], []).append(key)
    segments: dict[Key, int] = {}
    drawn = 0
    for pair_id in random.Random(seed).sample(list(rounds), len(rounds)):
        if drawn == size:
            break
        executed = {key: segment for key in rounds[pair_id] if (segment := segment_of(key)) is not None}
        segments |= executed
        drawn += bool(executed)
    return {key: segments[key] for key in keys if key in segments}


@dataclass(frozen=True)
class Difference:
    """A difference between two test reports. `case` names a test case or, if empty, the whole program.

    The comparison ignores times, addresses, temporary paths and package paths in messages. If the program timed out
    both times, the comparison also ignores the position and the cause of the timeout.
    """

    kind: Literal["status", "cause", "outcome", "message"]
    case: str
    then: str
    now: str

    @property
    def subject(self) -> str:
        """What differs, as text for display."""
        if not self.case:
            return self.kind
        return self.case if self.kind == "outcome" else f"{self.kind} of {self.case}"


def compare_reports(then: TestReport, now: TestReport) -> tuple[Difference, ...]:
    """Compare two test reports. Return differences in the whole program, followed by differences in each test case."""
    # the position of a timeout depends on timing
    timed_out = then.status is Status.TIMEOUT is now.status
    before = {case.name: case for case in _iterate_comparable_cases(then, timed_out)}
    after = {case.name: case for case in _iterate_comparable_cases(now, timed_out)}
    compared = [Difference("status", "", then.status.value, now.status.value)]
    if not timed_out:
        compared.append(Difference("cause", "", _format_cause(then), _format_cause(now)))
        compared.append(Difference("message", "", _normalise(then.message), _normalise(now.message)))
    for name in dict.fromkeys((*before, *after)):
        compared += _compare_case(name, before.get(name), after.get(name))
    return tuple(difference for difference in compared if difference.then != difference.now)


def _iterate_comparable_cases(report: TestReport, timed_out: bool) -> Iterator[CaseResult]:
    for case in report.cases:
        if timed_out and case.message == report.message:
            yield case.model_copy(update={"message": "", "cause": None})
        else:
            yield case.model_copy(update={"message": _normalise(case.message)})


def _compare_case(name: str, then: CaseResult | None, now: CaseResult | None) -> list[Difference]:
    if then is None or now is None:
        before, after = ("absent" if case is None else case.outcome.value for case in (then, now))
        return [Difference("outcome", name, before, after)]
    return [
        Difference("outcome", name, then.outcome.value, now.outcome.value),
        Difference("cause", name, _format_cause(then), _format_cause(now)),
        Difference("message", name, then.message, now.message),
    ]


def _format_cause(result: TestReport | CaseResult) -> str:
    return "none" if result.cause is None else result.cause.value


def _normalise(message: str) -> str:
    # environments with the same package versions have different paths if their files differ
    return _ENVIRONMENT.sub("/envs/<environment>", canonicalise(message))


# `era` is no longer a setting. Runs that use it are rejected, because their programs ran on other Python versions.
_IDENTITY_SETTINGS = ("image", "mount_ro", "exclude_newer", "python", "era")
_TIMEOUTS = ("test_timeout", "command_timeout")
_PACKAGE = "test-driven-annotator"
_INTERPRETER_KEYS = ("python", "backend", "platform", "image", "image_id")


@dataclass(frozen=True)
class RecordedSandbox:
    """The sandbox of a run as recorded in one segment of the manifest.

    `config` contains the settings that affect outcomes: backend, interpreter, limits and timeouts. It omits the
    requirements file, because the recorded locks list the packages. `image` and `mounts` are specific to a host and
    must be passed again for a replay. `described` is the backend's description of itself.
    """

    config: Config
    image: str | None = None
    mounts: tuple[str, ...] = ()
    described: Mapping[str, str] = field(default_factory=dict)
    package: str | None = None

    @classmethod
    def of(cls, manifest: Mapping[str, Any], segment: int, backend: str | None = None) -> RecordedSandbox:
        """Read the sandbox from a segment of a manifest.

        `segment` counts from 1. `backend` replaces the recorded backend.

        Raises:
            NotReplayable: no program was executed in the segment, its backend is unknown, or its settings are invalid.
        """
        segments = manifest["segments"]
        environment = segments[segment - 1]["environment"] if 1 <= segment <= len(segments) else {}
        described = {str(name): str(value) for name, value in _as_mapping(environment.get("sandbox")).items()}
        if not described:
            raise NotReplayable(
                f"segment {segment} of the run's manifest has no sandbox, because no program was executed"
            )
        recorded = described.get("backend")
        if backend is None and recorded not in REGISTRY:
            raise NotReplayable(
                f"the run's backend {format_value(recorded)} is not built in. Choose another backend with --sandbox."
            )
        identity = manifest["identity"]
        sandbox = {
            **_select(_IDENTITY_SETTINGS, identity.get("sandbox")),
            **_select(LIMITS, environment.get("limits")),
            "backend": backend or recorded,
        }
        if not _runs_images(sandbox["backend"]):
            # the backend uses an interpreter on the host, which may differ from the interpreter of this process
            minor = ".".join(described.get("python", "").split(".")[:2])
            sandbox |= {"python": minor} if recorded == sandbox["backend"] and minor else {}
            sandbox.pop("image", None)
        try:
            config = Config.model_validate(
                {"sandbox": sandbox, "pipeline": _select(_TIMEOUTS, identity.get("pipeline"))}
            )
        except ValidationError as error:
            raise NotReplayable(f"the run's settings are invalid: {describe_error(error)}") from error
        portable = config.sandbox.model_copy(update={"image": None, "mount_ro": ()})
        package = _as_mapping(environment.get("versions")).get(_PACKAGE)
        return cls(
            config.model_copy(update={"sandbox": portable}),
            config.sandbox.image,
            config.sandbox.mount_ro,
            described,
            None if package is None else str(package),
        )

    def check(self, config: Config) -> None:
        """Check that `config` provides an image and mounts if the run used them.

        The image and mounts are not taken from the manifest, because it is untrusted.

        Raises:
            NotReplayable: the run used an image or mounts, but `config` does not provide them.
        """
        sandbox = config.sandbox
        if self.image is not None and sandbox.image is None and _runs_images(sandbox.backend):
            raise NotReplayable(
                f"the run used the image {format_value(self.image)}. A replay does not trust images that are named "
                "in a run folder. If you trust the image, pass --image NAME. Otherwise, choose another sandbox "
                "(--sandbox bwrap)."
            )
        if self.mounts and not sandbox.mount_ro:
            raise NotReplayable(
                f"the run mounted {format_value(' '.join(self.mounts))}. A replay does not trust mounts that are "
                "listed in a run folder. If programs may read these files, pass --mount-ro HOST:BOX."
            )

    def list_notes(self, config: Config, backend: SandboxBackend) -> list[str]:
        """Return notes on the image, on each mount, and on each setting that differs from the recorded setting.

        Example: `python: recorded '3.11.2', now '3.12.1'`. If the backends differ, only the properties that both
        backends describe are compared.
        """
        sandbox = config.sandbox
        lines = [] if sandbox.image is None else [f"image: {sandbox.image} (from your settings)"]
        lines += [f"mounted read-only: {mount} (from your settings)" for mount in sandbox.mount_ro]
        then = {"package": self.package, **self.described, **_list_settings(self.config), "mount_ro": self.mounts}
        now = {"package": version(_PACKAGE), **backend.describe(), **_list_settings(config)}
        same_backend = then.get("backend") == now.get("backend")
        for name in dict.fromkeys((*then, *now)):
            if then.get(name) != now.get(name) and (same_backend or (name in then and name in now)):
                lines.append(f"{name}: recorded {format_value(then.get(name))}, now {format_value(now.get(name))}")
        return lines

    def has_same_interpreter(self, backend: SandboxBackend) -> bool:
        """Return whether the backend's interpreter can use environments that were built for the run."""
        now = backend.describe()
        return all(self.described.get(name) == now.get(name) for name in _INTERPRETER_KEYS)


def _list_settings(config: Config) -> dict[str, Any]:
    sandbox = config.sandbox.model_dump(include={*LIMITS, "mount_ro", "exclude_newer"})
    return {**sandbox, **config.pipeline.model_dump(include=set(_TIMEOUTS))}


def _select(names: Collection[str], values: Any) -> dict[str, Any]:
    return {name: value for name, value in _as_mapping(values).items() if name in names}


def _as_mapping(value: Any) -> Mapping[str, Any]:
    # manifests are untrusted, so any value may have the wrong type
    return value if isinstance(value, Mapping) else {}


def _runs_images(backend: str) -> bool:
    return backend not in REGISTRY or REGISTRY[backend].runs_images


@dataclass(frozen=True)
class ReplayGroup:
    """Pairs and rounds whose programs ran in sandboxes with the same settings."""

    sandbox: RecordedSandbox
    keys: Sequence[Key] = ()


def group_by_sandbox(
    manifest: Mapping[str, Any], segments: Mapping[Key, int], backend: str | None = None
) -> list[ReplayGroup]:
    """Group pairs and rounds by their recorded sandbox.

    A run has several sandboxes if it was resumed with other limits. `backend` replaces the recorded backends.

    Raises:
        NotReplayable: no program was executed in the run or in a segment, or a segment's backend or settings are
            invalid.
    """
    if not any(segment["environment"].get("sandbox") for segment in manifest["segments"]):
        raise NotReplayable("the run has no sandbox, because no program was executed")
    sandboxes = {number: RecordedSandbox.of(manifest, number, backend) for number in sorted(set(segments.values()))}
    groups: list[ReplayGroup] = []
    for sandbox in sandboxes.values():
        if all(sandbox != group.sandbox for group in groups):
            keys = [key for key, number in segments.items() if sandboxes[number] == sandbox]
            groups.append(ReplayGroup(sandbox, keys))
    return groups


def merge_notes(groups: Sequence[ReplayGroup], notes: Sequence[Sequence[str]]) -> Iterator[str]:
    """Iterate over the distinct notes of replayed groups.

    If the groups differ, the first note describes the differences. `notes` contains the notes of each group. It is
    shorter than `groups` if the replay was interrupted.
    """
    labels = _describe_groups(groups)
    if any(labels):
        parts = [f"{label} ({plural(len(group.keys), 'program')})" for label, group in zip(labels, groups, strict=True)]
        yield (
            f"recorded settings differ within the run: {' and '.join(parts)}. Each "
            "program is replayed with its recorded settings, unless another note says otherwise."
        )
    for note in dict.fromkeys(chain.from_iterable(notes)):
        matching = [label for label, group_notes in zip(labels, notes, strict=False) if note in group_notes]
        where = "" if len(matching) == len(notes) else " or ".join(filter(None, matching))
        yield f"programs with {where}: {note}" if where else note


def _describe_groups(groups: Sequence[ReplayGroup]) -> list[str]:
    """Describe the settings of each group that differ between groups, for example `memory_mb 1024`."""
    settings = [group.sandbox.config.sandbox.model_dump() for group in groups]
    names = [name for name in SandboxConfig.model_fields if len({repr(values[name]) for values in settings}) > 1]
    return [", ".join(f"{name} {format_value(values[name])}" for name in names) for values in settings]
