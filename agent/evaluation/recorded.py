"""What a run recorded of one execution, the program it ran, and how two outcomes of it differ."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.errors import NotReplayable
from agent.history import Command, Execution, History, Program
from agent.languages.canonical import canonical
from agent.sandbox.commands import RunCommand, plan
from agent.store.annotations import Key
from agent.store.run_view import RunView
from agent.types import CaseResult, Cause, Pair, Status, TestReport

_ENVIRONMENT = re.compile(r"/envs/[0-9a-f]{8,64}\b")


@dataclass(frozen=True)
class Recorded:
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


def recorded(view: RunView, pair_id: str, round: int = 0, number: int | None = None) -> Recorded:
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
    return Recorded(
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


def executed_in(view: RunView, key: Key) -> int | None:
    """Return the segment of the manifest in which a pair and round was executed, None where it was not.

    Raises:
        RunFolderError: the run is damaged.
    """
    history = view.evidence(*key)
    return None if history is None or not history.tests else history.segment or 0


def sampled(
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
        found = {key: segment for key in rounds[pair_id] if (segment := segment_of(key)) is not None}
        segments |= found
        drawn += bool(found)
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
    def what(self) -> str:
        """Name it for a reader."""
        if not self.case:
            return self.kind
        return self.case if self.kind == "outcome" else f"{self.kind} of {self.case}"


def differences(then: TestReport, now: TestReport) -> tuple[Difference, ...]:
    """Return what differs: status and cause first, then case by case."""
    # where a program stood when its time was up is the clock's doing
    silent = then.status is Status.TIMEOUT is now.status
    before = {case.name: case for case in _cases(then, silent)}
    after = {case.name: case for case in _cases(now, silent)}
    found = [Difference("status", "", then.status.value, now.status.value)]
    if not silent:
        found.append(Difference("cause", "", _cause(then), _cause(now)))
        found.append(Difference("message", "", _comparable(then.message), _comparable(now.message)))
    for name in dict.fromkeys((*before, *after)):
        found += _of_case(name, before.get(name), after.get(name))
    return tuple(difference for difference in found if difference.then != difference.now)


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
    return _ENVIRONMENT.sub("/envs/<environment>", canonical(message))
