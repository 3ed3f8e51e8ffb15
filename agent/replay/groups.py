"""Which executions of a run ran under the same conditions: a run may be resumed with other limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from agent.config import SandboxConfig
from agent.errors import NotReplayable
from agent.replay.conditions import Conditions
from agent.replay.records import Key
from agent.store.documents import shown
from agent.store.run_view import RunView
from agent.wording import counted

Backend = Literal["auto", "docker", "bwrap"]


@dataclass(frozen=True)
class Group:
    """Pairs and rounds whose programs ran with the same backend, interpreter and limits."""

    conditions: Conditions
    keys: list[Key] = field(default_factory=list)


def grouped(view: RunView, keys: Sequence[Key], backend: Backend | None = None) -> list[Group]:
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


def _alike(manifest: Mapping[str, Any], backend: Backend | None) -> bool:
    """Tell whether it makes no difference in which of a run's segments a program ran."""
    segments = enumerate(manifest["segments"], start=1)
    held = [_held(manifest, backend, number) for number, each in segments if each["environment"].get("sandbox")]
    return all(each is not None and held[0] is not None and _same(each, held[0]) for each in held)


def _held(manifest: Mapping[str, Any], backend: Backend | None, segment: int | None) -> Conditions | None:
    try:
        return Conditions.of(manifest, backend, segment)
    except NotReplayable:
        return None


def _same(one: Conditions, other: Conditions) -> bool:
    return (one.config, one.notes) == (other.config, other.notes)
