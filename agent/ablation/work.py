"""What a variant took: what it would have cost run by itself, and what was really paid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.evidence import Evidence, Exchange
from agent.store.majority import Label, Votes, mean_agreement, rounds_alpha
from agent.store.run_view import RunView, load_run
from agent.types import Annotation, Usage, added


@dataclass
class Asked:
    """What a variant takes for one question by itself: the calls it made, or else its reply from the cache, once."""

    made: list[Exchange] = field(default_factory=list)
    cached: Exchange | None = None

    def add(self, exchange: Exchange) -> None:
        """Take in another time that the question was put."""
        # a prompt and a reply for each of many thousand questions would not stay in memory
        exchange = exchange.model_copy(update={"messages": (), "reply": None})
        if not exchange.cached:
            self.made.append(exchange)
        elif self.cached is None:
            self.cached = exchange

    def exchanges(self) -> Iterator[Exchange]:
        """Yield what counts."""
        if self.made or self.cached is None:
            yield from self.made
        else:
            yield self.cached


@dataclass
class Work:
    """A variant's work on all pairs and rounds.

    `calls`, `usage` and `seconds` are what the variant takes by itself: a reply that another variant or an earlier run
    paid for counts with what it cost and how long it took then, once for all candidates of a query that share it; a
    shared execution likewise, each time. `seconds` adds up models and executions, without waiting for a turn; None when
    a cached reply or a folder of an older version does not tell. `asked` are the different questions: what a run with a
    cache of its own would have asked. `made` counts by question what went to a model, `answered` what the cache
    answered, `paid` is what was really paid. Executions are all runs of programs, those on wrong code and repeats
    among them.
    """

    annotations: int = 0
    errors: int = 0
    programs: int = 0
    executed: int = 0
    programs_with_cases: int = 0
    cases: int = 0
    strengths: list[float] = field(default_factory=list)
    vacuous: int = 0
    repairs: int = 0
    asked: dict[str, Asked] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    paid: Usage = field(default_factory=Usage)
    running: float | None = 0.0
    executions: int = 0
    executions_made: int = 0
    labels: dict[str, Label] = field(default_factory=dict)
    agreement: float | None = None
    rounds_alpha: float | None = None

    @property
    def calls(self) -> int:
        """How many calls the variant takes."""
        return sum(1 for _exchange in self._exchanges())

    @property
    def usage(self) -> Usage:
        """Return the tokens and the cost of these calls."""
        return sum((exchange.usage + exchange.saved for exchange in self._exchanges()), Usage())

    @property
    def seconds(self) -> float | None:
        """How long these calls and all runs of programs took, None where that is not known."""
        # a call that failed was not measured; a reply from the cache of an older version neither, and that is told
        times = [0.0 if each.seconds is None and not each.cached else each.seconds for each in self._exchanges()]
        return added((self.running, *times))

    def add(self, annotation: Annotation, evidence: Evidence | None) -> None:
        """Count a pair in one round."""
        self.annotations += 1
        self.errors += annotation.error is not None
        self.repairs += annotation.repairs
        test = annotation.test
        if test is not None and test.cases:
            self.programs_with_cases += 1
            self.cases += len(test.cases)
        if annotation.strength is not None:
            self.strengths.append(annotation.strength)
            self.vacuous += test is not None and test.vacuous
        if evidence is None:
            return
        if evidence.template is not None:
            self.programs += 1
            self.executed += test is not None and test.executed
        for exchange in evidence.exchanges:
            self._add_call(exchange)
        # an older version kept neither runs on wrong code nor repeats: what it all took is then not known
        known = evidence.runs is not None
        for run in evidence.executions if evidence.runs is None else evidence.runs:
            self.executions += 1
            self.executions_made += not run.shared
            self.running = added((self.running, run.seconds if known else None))

    def _add_call(self, exchange: Exchange) -> None:
        self.asked.setdefault(exchange.key, Asked()).add(exchange)
        (self.answered if exchange.cached else self.made)[exchange.key] += 1
        self.paid += exchange.usage

    def _exchanges(self) -> Iterator[Exchange]:
        for asked in self.asked.values():
            yield from asked.exchanges()


def work_of(folder: Path, ids: Collection[str], rounds: int) -> Work:
    """Return what a run holds of these pairs in its first rounds.

    Raises:
        RunFolderError: the folder is damaged.
    """
    with load_run(folder) as view:
        return _work(view, frozenset(ids), rounds)


def _work(view: RunView, ids: frozenset[str], rounds: int) -> Work:
    work, votes = Work(), Votes()
    wanted = [each for each in view.annotations() if each.id in ids and each.round < rounds]
    # in one order, whichever pair was finished first: sums of the same numbers are then the same
    for annotation in sorted(wanted, key=lambda each: (each.id, each.round)):
        work.add(annotation, view.evidence(annotation.id, annotation.round))
        votes.add_annotation(annotation)
    labels = votes.labels()
    work.labels = {each.id: each.label for each in labels}
    work.agreement, work.rounds_alpha = mean_agreement(labels), rounds_alpha(labels)
    return work
