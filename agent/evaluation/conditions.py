"""Under which conditions a run's programs ran, by its manifest, and what is otherwise now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from typing import Any

from pydantic import ValidationError

from agent.config import LIMITS, Config, SandboxConfig
from agent.errors import NotReplayable
from agent.evaluation.recorded import Key
from agent.sandbox.base import SandboxBackend
from agent.sandbox.registry import REGISTRY
from agent.store.manifest import shown
from agent.store.run_view import RunView
from agent.wording import counted, what_is_wrong

_GIVEN = ("image", "mount_ro", "exclude_newer", "python", "era")
_TIMES = ("test_timeout", "command_timeout")
_PACKAGE = "test-driven-annotator"
_OF_THE_IMAGE = ("image", "image_id")


@dataclass(frozen=True)
class Conditions:
    """What a manifest says of the sandboxes of a run, in one of its segments.

    `config` holds what decides outcomes: backend, interpreter, limits, times. A requirements file is not among it: a
    lock names all that it led to. Nor are the run's `image` and `mounts`, which reach for this machine: whoever replays
    has to give them again. `described` is what the backend said of itself, `notes` are for the user.
    """

    config: Config
    image: str | None = None
    mounts: tuple[str, ...] = ()
    described: Mapping[str, str] = field(default_factory=dict)
    package: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        manifest: Mapping[str, Any],
        backend: str | None = None,
        segment: int | None = None,
    ) -> Conditions:
        """Read a manifest; `backend` takes the place of the recorded one.

        `segment` (from 1) is the one in which programs ran; where that is not known, the last with a sandbox is taken.

        Raises:
            NotReplayable: the run, or this segment, executed nothing, or by a backend of its own.
        """
        environment = _environment(manifest, segment)
        described = {str(name): str(value) for name, value in _mapping(environment.get("sandbox")).items()}
        if not described:
            where = "the run" if segment is None else f"segment {segment} of the run's manifest"
            raise NotReplayable(f"{where} had no sandbox: it executed nothing")
        recorded = described.get("backend")
        if backend is None and recorded not in REGISTRY:
            raise NotReplayable(f"the run's sandbox was {shown(recorded)}, which is none of ours: name one (--sandbox)")
        limits = _mapping(environment.get("limits"))
        identity = _mapping(manifest.get("identity"))
        given = {name: value for name, value in _mapping(identity.get("sandbox")).items() if name in _GIVEN}
        sandbox = {**given, **{name: limits[name] for name in LIMITS if name in limits}}
        sandbox["backend"] = backend or recorded
        if not _runs_images(sandbox["backend"]):
            # its interpreter is one of the machine's, and that of this process may be another
            minor = ".".join(described.get("python", "").split(".")[:2])
            sandbox |= {"python": minor} if recorded == sandbox["backend"] and minor else {}
            sandbox.pop("image", None)
        pipeline = {name: value for name, value in _mapping(identity.get("pipeline")).items() if name in _TIMES}
        config = _config(sandbox, pipeline)
        again = config.sandbox
        config = config.model_copy(update={"sandbox": again.model_copy(update={"image": None, "mount_ro": ()})})
        package = _mapping(environment.get("versions")).get(_PACKAGE)
        notes = tuple(_notes({} if segment else manifest, bool(limits)))
        return cls(config, again.image, again.mount_ro, described, None if package is None else str(package), notes)

    def check(self, config: Config) -> None:
        """Refuse settings that lack what is not taken from a manifest, which anybody may have written.

        Raises:
            NotReplayable: the run had an image, or was shown files of its machine, and they are not given again.
        """
        sandbox = config.sandbox
        if self.image is not None and sandbox.image is None and _runs_images(sandbox.backend):
            raise NotReplayable(
                f"the run's programs ran in the image {shown(self.image)}, which no folder can ask for: if you trust "
                f"it, give it again (--image NAME), or run them elsewhere (--sandbox bwrap)"
            )
        if self.mounts and not sandbox.mount_ro:
            raise NotReplayable(
                f"the run's programs were shown {shown(' '.join(self.mounts))}, which no folder can ask for: if they "
                f"may read this here, give it again (--mount-ro HOST:BOX)"
            )

    def changes(self, config: Config, backend: SandboxBackend) -> list[str]:
        """Return a line for everything that is otherwise now, as in `python: '3.11.2' then, '3.12.1' now`.

        Of another backend only what both say of themselves is compared.
        """
        then = {"package": self.package, **self.described, **_settings(self.config), "mount_ro": self.mounts}
        now = {"package": version(_PACKAGE), **backend.describe(), **_settings(config)}
        other = then.get("backend") != now.get("backend")
        names = [name for name in dict.fromkeys((*then, *now)) if not other or (name in then and name in now)]
        return [
            f"{name}: {shown(then.get(name))} then, {shown(now.get(name))} now"
            for name in names
            if then.get(name) != now.get(name)
        ]

    def same_interpreter(self, backend: SandboxBackend) -> bool:
        """Tell whether an environment that was built for the run suits the backend's interpreter."""
        now = backend.describe()
        names = ("backend", "platform", *_OF_THE_IMAGE)
        return self.described.get("python") == now.get("python") and all(
            self.described.get(name) == now.get(name) for name in names
        )


def given(config: Config) -> list[str]:
    """Return a line for all that programs have of this machine at the user's word."""
    sandbox = config.sandbox
    image = [] if sandbox.image is None else [f"programs run in the image {sandbox.image}, as you say"]
    return [*image, *(f"programs are shown {mount}, as you say" for mount in sandbox.mount_ro)]


def _settings(config: Config) -> dict[str, Any]:
    sandbox = config.sandbox.model_dump(include={*LIMITS, "mount_ro", "exclude_newer", "era"})
    return {**sandbox, **config.pipeline.model_dump(include=set(_TIMES))}


def _environment(manifest: Mapping[str, Any], segment: int | None) -> Mapping[str, Any]:
    """Return what a segment recorded, by default the last one with a sandbox."""
    found = [_mapping(each).get("environment") for each in manifest.get("segments", ())]
    if segment is not None:
        return _mapping(found[segment - 1]) if 1 <= segment <= len(found) else {}
    return next((each for each in reversed(found) if isinstance(each, Mapping) and each.get("sandbox")), {})


def _notes(manifest: Mapping[str, Any], limits: bool) -> Iterator[str]:
    for change in manifest.get("changes", ()):
        change = _mapping(change)
        name = str(change.get("what", ""))
        if name.startswith(("sandbox.", "limits.")):
            before, now = shown(change.get("before")), shown(change.get("now"))
            yield f"{name} changed while the run was made, from {before} to {now}; it is taken for {now}"
    if not limits:
        yield "the run did not record its limits: today's defaults hold"


def _config(sandbox: Mapping[str, Any], pipeline: Mapping[str, Any]) -> Config:
    try:
        return Config.model_validate({"sandbox": sandbox, "pipeline": pipeline})
    except ValidationError as error:
        raise NotReplayable(f"the run's settings cannot be used: {what_is_wrong(error)}") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True)
class Group:
    """Pairs and rounds whose programs ran with the same backend, interpreter and limits."""

    conditions: Conditions
    keys: list[Key] = field(default_factory=list)


def grouped(view: RunView, keys: Sequence[Key], backend: str | None = None) -> list[Group]:
    """Part pairs and rounds by what held when they were annotated; `backend` takes the place of the recorded ones.

    Evidence is read only of runs whose segments differ. What names a segment that says nothing of a sandbox goes with
    what names none; it is for the replayer to refuse.

    Raises:
        NotReplayable: the run executed nothing, or by a backend of its own.
        RunFolderError: the run's evidence is damaged.
    """
    if _alike(view.manifest, backend):
        return [Group(Conditions.of(view.manifest, backend), list(keys))]
    of_segment: dict[int | None, Group] = {}
    for key in keys:
        evidence = view.evidence(*key)
        segment = None if evidence is None else evidence.segment
        if segment not in of_segment:
            held = _held(view.manifest, backend, segment) or Conditions.of(view.manifest, backend)
            same = (group for group in of_segment.values() if _same(group.conditions, held))
            of_segment[segment] = next(same, None) or Group(held)
        of_segment[segment].keys.append(key)
    return list({id(group): group for group in of_segment.values()}.values())


def told(groups: Sequence[Group], notes: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the notes of groups that were replayed one after another, and what tells these apart where there are more.

    `notes` holds those of each group, of fewer groups when replaying was interrupted.
    """
    labels = _labels(groups)
    if any(labels):
        parts = [
            f"{label} ({counted(len(group.keys), 'program')})" for label, group in zip(labels, groups, strict=True)
        ]
        own = "each runs again with its own, unless another note says otherwise"
        yield f"the run's programs ran with {' and '.join(parts)}; {own}"
    for note in dict.fromkeys(chain.from_iterable(notes)):
        having = [label for label, of_group in zip(labels, notes, strict=False) if note in of_group]
        where = "" if len(having) == len(notes) else ", or ".join(filter(None, having))
        yield f"of programs that ran with {where}: {note}" if where else note


def _labels(groups: Sequence[Group]) -> list[str]:
    """Return for each group which of its settings tell it from others, as in `memory_mb 1024`."""
    settings = [group.conditions.config.sandbox.model_dump() for group in groups]
    names = [name for name in SandboxConfig.model_fields if len({repr(each[name]) for each in settings}) > 1]
    return [", ".join(f"{name} {shown(each[name])}" for name in names) for each in settings]


def _alike(manifest: Mapping[str, Any], backend: str | None) -> bool:
    """Tell whether it makes no difference in which of a run's segments a program ran."""
    segments = enumerate(manifest["segments"], start=1)
    held = [_held(manifest, backend, number) for number, each in segments if each["environment"].get("sandbox")]
    return all(each is not None and held[0] is not None and _same(each, held[0]) for each in held)


def _held(manifest: Mapping[str, Any], backend: str | None, segment: int | None) -> Conditions | None:
    try:
        return Conditions.of(manifest, backend, segment)
    except NotReplayable:
        return None


def _same(one: Conditions, other: Conditions) -> bool:
    return (one.config, one.notes) == (other.config, other.notes)


def _runs_images(backend: str) -> bool:
    return backend not in REGISTRY or REGISTRY[backend].runs_images
