"""Reads the recorded executions and sandboxes of a run, and compares test reports."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from pydantic import ValidationError

from agent.config import LIMITS, Config
from agent.errors import ConfigError, NotReplayable, SandboxUnavailable
from agent.languages.canonical import canonicalise
from agent.languages.registry import Languages
from agent.pipeline.history import Command, Execution, History, Program
from agent.runs.store.annotations import Key
from agent.runs.store.manifest import format_value
from agent.runs.store.run_view import RunView
from agent.sandbox.base import SandboxBackend
from agent.sandbox.commands import RunCommand, plan
from agent.sandbox.registry import REGISTRY
from agent.text import describe_error
from agent.types import CaseResult, Pair, Status, TestReport

_ENVIRONMENT = re.compile(r"/envs/[0-9a-f]{8,64}\b")


@dataclass(frozen=True)
class RecordedExecution:
    """The last execution that tested the snippet of a pair in a round.

    `commands` ran in the sandbox before the program.
    """

    pair: Pair
    round: int
    execution: Execution
    program: Program
    commands: tuple[tuple[str, ...], ...]


def read_execution(view: RunView, pair_id: str, round: int = 0) -> RecordedExecution | None:
    """Read the last execution for a pair in a round, or return None if no program was executed.

    Raises:
        NotReplayable: the program was not recorded.
        RunFolderError: the run's evidence is damaged.
    """
    history = view.evidence(pair_id, round)
    if history is None or not history.tests:
        return None
    execution = history.tests[-1]
    if execution.program >= len(history.programs):
        raise NotReplayable(f"pair {pair_id!r}: the executed program was not recorded")
    return RecordedExecution(
        pair=history.pair,
        round=round,
        execution=execution,
        program=history.programs[execution.program],
        commands=tuple(_iterate_commands(history, execution)),
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
    def of(cls, manifest: Mapping[str, Any], segment: int) -> RecordedSandbox:
        """Read the sandbox from a segment of a manifest. `segment` counts from 1.

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
        backend = described.get("backend", "")
        if backend not in REGISTRY:
            raise NotReplayable(f"the run's sandbox backend {format_value(backend)} is not built in")
        identity = manifest["identity"]
        sandbox = {
            **_select(_IDENTITY_SETTINGS, identity.get("sandbox")),
            **_select(LIMITS, environment.get("limits")),
            "backend": backend,
        }
        if not _runs_images(backend):
            # the backend uses an interpreter on the host, which may differ from the interpreter of this process
            minor = ".".join(described.get("python", "").split(".")[:2])
            sandbox |= {"python": minor} if minor else {}
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
                "in a run folder. If you trust the image, pass -c sandbox.image=NAME."
            )
        if self.mounts and not sandbox.mount_ro:
            raise NotReplayable(
                f"the run mounted {format_value(' '.join(self.mounts))}. A replay does not trust mounts that are "
                "listed in a run folder. If programs may read these files, pass -c sandbox.mount_ro=HOST:BOX."
            )

    async def require_toolchains(self, backend: SandboxBackend) -> None:
        """Find the toolchains that the run used, so that `list_notes` can compare their versions.

        A missing or old toolchain is an error only for the pairs that need it.

        Raises:
            SandboxError: no sandbox starts.
        """
        languages = Languages()
        for name in languages:
            # another package's language may not be usable here
            with suppress(ConfigError, SandboxUnavailable):
                toolchain = languages[name].toolchain
                if toolchain is not None and toolchain.command in self.described:
                    await backend.require_toolchain(toolchain)

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


def group_by_sandbox(
    manifest: Mapping[str, Any], segments: Mapping[Key, int]
) -> list[tuple[RecordedSandbox, list[Key]]]:
    """Group pairs and rounds by their recorded sandbox. `segments` maps each of them to its segment of the manifest.

    A run has several sandboxes if it was resumed with other limits.

    Raises:
        NotReplayable: no program was executed in a segment, or a segment's backend or settings are invalid.
    """
    groups: list[tuple[RecordedSandbox, list[Key]]] = []
    for number in sorted(set(segments.values())):
        sandbox = RecordedSandbox.of(manifest, number)
        keys = [key for key, segment in segments.items() if segment == number]
        same = next((group for other, group in groups if other == sandbox), None)
        if same is None:
            groups.append((sandbox, keys))
        else:
            same += keys
    return groups
