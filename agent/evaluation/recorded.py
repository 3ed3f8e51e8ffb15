"""What a run recorded of its executions and of the conditions they ran under, and how outcomes differ."""

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
from agent.history import Command, Execution, History, Program
from agent.languages.canonical import canonicalise
from agent.sandbox.base import SandboxBackend
from agent.sandbox.commands import RunCommand, plan
from agent.sandbox.registry import REGISTRY
from agent.store.annotations import Key
from agent.store.manifest import format_value
from agent.store.run_view import RunView
from agent.types import CaseResult, Cause, Pair, Status, TestReport
from agent.wording import describe_error, plural

_ENVIRONMENT = re.compile(r"/envs/[0-9a-f]{8,64}\b")


@dataclass(frozen=True)
class RecordedExecution:
    """One execution of a run: the `number`th test (from 1) of a pair in a round.

    `commands` are the words of those that had run in its sandbox by then. `flaky`: the run itself saw the program end
    in different ways. `segment` is that of the manifest in which it ran; 0 is none.
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
    """Return an execution of a pair, by default the last one, which the label rests on.

    Raises:
        NotReplayable: nothing was executed, or not so often.
        RunFolderError: the run's evidence is damaged.
    """
    history = view.evidence(pair_id, round)
    if history is None:
        raise NotReplayable(f"pair {pair_id!r}: the run kept no evidence of it")
    tests = history.tests
    if not tests:
        raise NotReplayable(f"pair {pair_id!r}: nothing was executed for it")
    number = len(tests) if number is None else number
    if not 1 <= number <= len(tests):
        raise NotReplayable(f"pair {pair_id!r}: there is no execution {number}; it has 1 to {len(tests)}")
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
        commands=tuple(_commands(history, execution)),
        flaky=test is not None and test.cause is Cause.FLAKY,
    )


def _commands(history: History, execution: Execution) -> Iterator[tuple[str, ...]]:
    for event in history.events:
        if event is execution:
            return
        if (
            isinstance(event, Command)
            and event.outcome == "ran"
            and isinstance(step := plan(event.command), RunCommand)
        ):
            yield step.argv


def keys_with_tests(view: RunView) -> list[Key]:
    """Return every pair and round with a test report, in the order of their ids. Not all of them were executed.

    Raises:
        RunFolderError: the run is damaged.
    """
    return sorted((annotation.id, annotation.round) for annotation in view.annotations() if annotation.test)


def find_segment(view: RunView, key: Key) -> int | None:
    """Return the segment of the manifest in which a pair and round was executed, None where it was not.

    Raises:
        RunFolderError: the run is damaged.
    """
    history = view.evidence(*key)
    return None if history is None or not history.tests else history.segment or 0


def sample_keys(
    keys: Sequence[Key], size: int | None, seed: int, segment_of: Callable[[Key], int | None]
) -> dict[Key, int]:
    """Return the keys of a random sample of so many pairs that were executed, in their order, with their segments.

    Those of all pairs where no more were executed, or `size` is None. Only the keys of pairs that are drawn are looked
    up.
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
    """Something that ended otherwise: of the case `case`, or of the whole program (empty).

    A `message` is compared in its canonical form: without times, addresses and temporary paths, and without the
    places of packages. Of a program that took all its time both times it is not compared where it stood, and so whom it
    is blamed on.
    """

    kind: Literal["status", "cause", "outcome", "message"]
    case: str
    then: str
    now: str

    @property
    def subject(self) -> str:
        """Name it for a reader."""
        if not self.case:
            return self.kind
        return self.case if self.kind == "outcome" else f"{self.kind} of {self.case}"


def compare_reports(then: TestReport, now: TestReport) -> tuple[Difference, ...]:
    """Return what differs: status and cause first, then case by case."""
    # where a program stood when its time was up is the clock's doing
    silent = then.status is Status.TIMEOUT is now.status
    before = {case.name: case for case in _cases(then, silent)}
    after = {case.name: case for case in _cases(now, silent)}
    compared = [Difference("status", "", then.status.value, now.status.value)]
    if not silent:
        compared.append(Difference("cause", "", _cause(then), _cause(now)))
        compared.append(Difference("message", "", _comparable(then.message), _comparable(now.message)))
    for name in dict.fromkeys((*before, *after)):
        compared += _of_case(name, before.get(name), after.get(name))
    return tuple(difference for difference in compared if difference.then != difference.now)


def _cases(report: TestReport, silent: bool) -> Iterator[CaseResult]:
    for case in report.cases:
        if silent and case.message == report.message:
            yield case.model_copy(update={"message": "", "cause": None})
        else:
            yield case.model_copy(update={"message": _comparable(case.message)})


def _of_case(name: str, then: CaseResult | None, now: CaseResult | None) -> list[Difference]:
    if then is None or now is None:
        before, after = ("absent" if each is None else each.outcome.value for each in (then, now))
        return [Difference("outcome", name, before, after)]
    return [
        Difference("outcome", name, then.outcome.value, now.outcome.value),
        Difference("cause", name, _cause(then), _cause(now)),
        Difference("message", name, then.message, now.message),
    ]


def _cause(of: TestReport | CaseResult) -> str:
    return "none" if of.cause is None else of.cause.value


def _comparable(message: str) -> str:
    # equal packages may be of other files, and then they lie elsewhere
    return _ENVIRONMENT.sub("/envs/<environment>", canonicalise(message))


# `era` is no setting any more: a run that had it is refused, since its programs ran on other Pythons
_GIVEN = ("image", "mount_ro", "exclude_newer", "python", "era")
_TIMES = ("test_timeout", "command_timeout")
_PACKAGE = "test-driven-annotator"
_OF_AN_INTERPRETER = ("python", "backend", "platform", "image", "image_id")


@dataclass(frozen=True)
class RecordedSandbox:
    """What a manifest says of the sandboxes of a run, in one of its segments.

    `config` holds what decides outcomes: backend, interpreter, limits, times. A requirements file is not among it: a
    lock names all that it led to. Nor are the run's `image` and `mounts`, which reach for this machine: whoever replays
    has to give them again. `described` is what the backend said of itself.
    """

    config: Config
    image: str | None = None
    mounts: tuple[str, ...] = ()
    described: Mapping[str, str] = field(default_factory=dict)
    package: str | None = None

    @classmethod
    def of(cls, manifest: Mapping[str, Any], segment: int, backend: str | None = None) -> RecordedSandbox:
        """Read what held in a segment (from 1) of a manifest; `backend` takes the place of the recorded one.

        Raises:
            NotReplayable: the segment executed nothing, or by a backend of its own.
        """
        segments = manifest["segments"]
        environment = segments[segment - 1]["environment"] if 1 <= segment <= len(segments) else {}
        described = {str(name): str(value) for name, value in _mapping(environment.get("sandbox")).items()}
        if not described:
            raise NotReplayable(f"segment {segment} of the run's manifest had no sandbox: it executed nothing")
        recorded = described.get("backend")
        if backend is None and recorded not in REGISTRY:
            raise NotReplayable(
                f"the run's sandbox was {format_value(recorded)}, which is none of ours: name one (--sandbox)"
            )
        identity = manifest["identity"]
        sandbox = {
            **_only(_GIVEN, identity.get("sandbox")),
            **_only(LIMITS, environment.get("limits")),
            "backend": backend or recorded,
        }
        if not _runs_images(sandbox["backend"]):
            # its interpreter is one of the machine's, and that of this process may be another
            minor = ".".join(described.get("python", "").split(".")[:2])
            sandbox |= {"python": minor} if recorded == sandbox["backend"] and minor else {}
            sandbox.pop("image", None)
        try:
            config = Config.model_validate({"sandbox": sandbox, "pipeline": _only(_TIMES, identity.get("pipeline"))})
        except ValidationError as error:
            raise NotReplayable(f"the run's settings cannot be used: {describe_error(error)}") from error
        ours = config.sandbox.model_copy(update={"image": None, "mount_ro": ()})
        package = _mapping(environment.get("versions")).get(_PACKAGE)
        return cls(
            config.model_copy(update={"sandbox": ours}),
            config.sandbox.image,
            config.sandbox.mount_ro,
            described,
            None if package is None else str(package),
        )

    def check(self, config: Config) -> None:
        """Refuse settings that lack what is not taken from a manifest, which anybody may have written.

        Raises:
            NotReplayable: the run had an image, or was shown files of its machine, and they are not given again.
        """
        sandbox = config.sandbox
        if self.image is not None and sandbox.image is None and _runs_images(sandbox.backend):
            raise NotReplayable(
                f"the run's programs ran in the image {format_value(self.image)}, which no folder can ask for: if you "
                f"trust it, give it again (--image NAME), or run them elsewhere (--sandbox bwrap)"
            )
        if self.mounts and not sandbox.mount_ro:
            raise NotReplayable(
                f"the run's programs were shown {format_value(' '.join(self.mounts))}, which no folder can ask for: if "
                f"they may read this here, give it again (--mount-ro HOST:BOX)"
            )

    def notes(self, config: Config, backend: SandboxBackend) -> list[str]:
        """Return a line for all that programs have of this machine at the user's word, and for what is otherwise now.

        As in `python: '3.11.2' then, '3.12.1' now`. Of another backend only what both say of themselves is compared.
        """
        sandbox = config.sandbox
        lines = [] if sandbox.image is None else [f"programs run in the image {sandbox.image}, as you say"]
        lines += [f"programs are shown {mount}, as you say" for mount in sandbox.mount_ro]
        then = {"package": self.package, **self.described, **_settings(self.config), "mount_ro": self.mounts}
        now = {"package": version(_PACKAGE), **backend.describe(), **_settings(config)}
        other = then.get("backend") != now.get("backend")
        for name in dict.fromkeys((*then, *now)):
            if then.get(name) != now.get(name) and not (other and not (name in then and name in now)):
                lines.append(f"{name}: {format_value(then.get(name))} then, {format_value(now.get(name))} now")
        return lines

    def has_same_interpreter(self, backend: SandboxBackend) -> bool:
        """Say whether an environment that was built for the run suits the backend's interpreter."""
        now = backend.describe()
        return all(self.described.get(name) == now.get(name) for name in _OF_AN_INTERPRETER)


def _settings(config: Config) -> dict[str, Any]:
    sandbox = config.sandbox.model_dump(include={*LIMITS, "mount_ro", "exclude_newer"})
    return {**sandbox, **config.pipeline.model_dump(include=set(_TIMES))}


def _only(names: Collection[str], values: Any) -> dict[str, Any]:
    return {name: value for name, value in _mapping(values).items() if name in names}


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a part of a manifest, which anybody may have written."""
    return value if isinstance(value, Mapping) else {}


def _runs_images(backend: str) -> bool:
    return backend not in REGISTRY or REGISTRY[backend].runs_images


@dataclass(frozen=True)
class ReplayGroup:
    """Pairs and rounds whose programs ran under the same conditions."""

    sandbox: RecordedSandbox
    keys: Sequence[Key] = ()


def group_by_sandbox(
    manifest: Mapping[str, Any], segments: Mapping[Key, int], backend: str | None = None
) -> list[ReplayGroup]:
    """Part pairs and rounds by what held in the segments in which they ran: a run may be resumed with other limits.

    `backend` takes the place of the recorded ones.

    Raises:
        NotReplayable: the run or a segment executed nothing, or by a backend of its own.
    """
    if not any(each["environment"].get("sandbox") for each in manifest["segments"]):
        raise NotReplayable("the run had no sandbox: it executed nothing")
    held = {number: RecordedSandbox.of(manifest, number, backend) for number in sorted(set(segments.values()))}
    groups: list[ReplayGroup] = []
    for conditions in held.values():
        if all(conditions != group.sandbox for group in groups):
            keys = [key for key, number in segments.items() if held[number] == conditions]
            groups.append(ReplayGroup(conditions, keys))
    return groups


def merge_notes(groups: Sequence[ReplayGroup], notes: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the notes of groups that were replayed one after another, and how these differ where there are several.

    `notes` holds those of each group, of fewer groups when replaying was interrupted.
    """
    labels = _labels(groups)
    if any(labels):
        parts = [f"{label} ({plural(len(group.keys), 'program')})" for label, group in zip(labels, groups, strict=True)]
        own = "each runs again with its own, unless another note says otherwise"
        yield f"the run's programs ran with {' and '.join(parts)}; {own}"
    for note in dict.fromkeys(chain.from_iterable(notes)):
        having = [label for label, of_group in zip(labels, notes, strict=False) if note in of_group]
        where = "" if len(having) == len(notes) else ", or ".join(filter(None, having))
        yield f"of programs that ran with {where}: {note}" if where else note


def _labels(groups: Sequence[ReplayGroup]) -> list[str]:
    """Return for each group which of its settings differ from those of others, as in `memory_mb 1024`."""
    settings = [group.sandbox.config.sandbox.model_dump() for group in groups]
    names = [name for name in SandboxConfig.model_fields if len({repr(each[name]) for each in settings}) > 1]
    return [", ".join(f"{name} {format_value(each[name])}" for name in names) for each in settings]
