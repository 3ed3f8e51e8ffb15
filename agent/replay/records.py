"""What a run recorded of one execution, and the program it ran."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from agent.errors import NotReplayable, SnippetTooLarge
from agent.evidence import Evidence, Execution
from agent.languages.base import Language, MalformedProgram, Program
from agent.sandbox.commands import Run, plan
from agent.store.run_view import RunView
from agent.types import Cause, Pair

Key = tuple[str, int]
"""A pair's id and its round."""


@dataclass(frozen=True)
class Recorded:
    """One execution of a run: the `number`th (from 1) of a pair in a round.

    `template` is that of the pair's last program, `commands` are the words of those that had run in its sandbox by
    then. `flaky`: the run itself saw the program end in different ways. `segment` is that of its evidence.
    """

    pair: Pair
    round: int
    number: int
    execution: Execution
    template: str | None = None
    commands: tuple[tuple[str, ...], ...] = ()
    flaky: bool = False
    segment: int | None = None

    def program(self, language: Language) -> Program:
        """Return the program as it ran.

        Runs of versions that did not keep its layout have it put together anew; it must come out as it was.

        Raises:
            NotReplayable: it cannot be put together, or comes out otherwise.
        """
        source, layout = self.execution.source, self.execution.layout
        if layout is not None:
            return Program(
                template=self.template or source,
                source=source,
                first_line=layout.first_line,
                last_line=layout.last_line,
                cases=layout.cases,
                imports=layout.imports,
                options=layout.options,
            )
        program = None if self.template is None else self._inserted(self.template, language)
        if program is None or program.source != source:
            raise NotReplayable(f"pair {self.pair.id!r}: where the snippet stands in its program was not recorded")
        return program

    def _inserted(self, template: str, language: Language) -> Program:
        try:
            return language.insert(template, language.inspect(self.pair.code))
        except (MalformedProgram, SnippetTooLarge) as error:
            raise NotReplayable(f"pair {self.pair.id!r}: its program cannot be put together: {error}") from error


def recorded(view: RunView, pair_id: str, round: int = 0, number: int | None = None) -> Recorded:
    """Return an execution of a pair, by default the last one, which the label rests on.

    Raises:
        NotReplayable: nothing was executed, or not so often.
        RunFolderError: the run's evidence is damaged.
    """
    evidence = view.evidence(pair_id, round)
    if evidence is None:
        raise NotReplayable(f"pair {pair_id!r}: the run kept no evidence of it")
    count = len(evidence.executions)
    if not count:
        raise NotReplayable(f"pair {pair_id!r}: nothing was executed for it")
    if number is None:
        number = count
    if not 1 <= number <= count:
        raise NotReplayable(f"pair {pair_id!r}: there is no execution {number}; it has 1 to {count}")
    execution = evidence.executions[number - 1]
    annotation = view.annotation(pair_id, round)
    test = None if annotation is None else annotation.test
    return Recorded(
        pair=evidence.pair,
        round=round,
        number=number,
        execution=execution,
        template=evidence.template,
        commands=tuple(_commands(evidence, execution)),
        flaky=test is not None and test.cause is Cause.FLAKY,
        segment=evidence.segment,
    )


def tested(view: RunView) -> list[Key]:
    """Return every pair and round with a test report, in the order of their ids. Not all of them were executed.

    Raises:
        RunFolderError: the run is damaged.
    """
    return sorted((annotation.id, annotation.round) for annotation in view.annotations() if annotation.test)


def was_executed(view: RunView, key: Key) -> bool:
    """Tell whether a pair and round has an execution; reads its evidence.

    Raises:
        RunFolderError: the run is damaged.
    """
    evidence = view.evidence(*key)
    return evidence is not None and bool(evidence.executions)


def executed(view: RunView) -> list[Key]:
    """Return every pair and round with an execution, in the order of their ids. Reads all of the evidence.

    Raises:
        RunFolderError: the run is damaged.
    """
    return [key for key in tested(view) if was_executed(view, key)]


def sampled(keys: Sequence[Key], size: int, seed: int, counts: Callable[[Key], bool] = lambda _key: True) -> list[Key]:
    """Return the keys that count of a random sample of so many pairs which have any, in their order; all if no more do.

    Only those are asked about that are drawn.
    """
    rounds: dict[str, list[Key]] = {}
    for key in keys:
        rounds.setdefault(key[0], []).append(key)
    order = random.Random(seed).sample(list(rounds), len(rounds))
    drawn = islice(filter(None, ([key for key in rounds[each] if counts(key)] for each in order)), size)
    chosen = {key for of_pair in drawn for key in of_pair}
    return [key for key in keys if key in chosen]


def _commands(evidence: Evidence, execution: Execution) -> Iterator[tuple[str, ...]]:
    # without a count: a command that ran is followed by an execution, so all came before the last one
    for command in evidence.commands[: execution.commands_before]:
        step = plan(command.command)
        if command.outcome == "ran" and isinstance(step, Run):
            yield step.argv
