"""What a variant took: what it would have cost run by itself, and what was really paid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from agent.store.majority import Label, Votes, mean_agreement
from agent.store.run_view import RunView, load_run
from agent.types import Annotation, Evidence, Exchange, Usage


@dataclass
class Work:
    """A variant's work on all pairs and rounds.

    `calls`, `usage` and `seconds` are what the variant takes by itself: a reply from the cache counts with what it cost
    and how long it took when it was paid for, a shared execution likewise. `seconds` adds up models and executions,
    without waiting for a turn; None when a cached reply or a folder of an older version does not tell. `asked` are the
    different questions: what a run with a cache of its own would have asked. `made` are those that went to a model,
    `answered` counts by question what the cache answered, `paid` is what was really paid. Executions are all runs of
    programs, those on wrong code and repeats among them.
    """

    annotations: int = 0
    errors: int = 0
    programs: int = 0
    executed: int = 0
    programs_with_cases: int = 0
    cases: int = 0
    repairs: int = 0
    calls: int = 0
    asked: set[str] = field(default_factory=set)
    made: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)
    paid: Usage = field(default_factory=Usage)
    seconds: float | None = 0.0
    executions: int = 0
    executions_made: int = 0
    labels: dict[str, Label] = field(default_factory=dict)
    agreement: float | None = None

    def add(self, annotation: Annotation, evidence: Evidence | None) -> None:
        """Count a pair in one round."""
        self.annotations += 1
        self.errors += annotation.error is not None
        self.repairs += annotation.repairs
        test = annotation.test
        if test is not None and test.cases:
            self.programs_with_cases += 1
            self.cases += len(test.cases)
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
            self._add_seconds(run.seconds if known else None)

    def _add_call(self, exchange: Exchange) -> None:
        self.calls += 1
        self.asked.add(exchange.key)
        (self.answered if exchange.cached else self.made)[exchange.key] += 1
        self.usage += exchange.usage + exchange.saved
        self.paid += exchange.usage
        # a call that failed was not measured; a reply from the cache of an older version neither, and that is told
        self._add_seconds(exchange.seconds if exchange.seconds is not None or exchange.cached else 0.0)

    def _add_seconds(self, seconds: float | None) -> None:
        self.seconds = None if self.seconds is None or seconds is None else self.seconds + seconds


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
    work.agreement = mean_agreement(labels)
    return work
