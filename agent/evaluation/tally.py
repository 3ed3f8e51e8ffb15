"""Counts what annotations say, once for all who show it: summary, ablation, report and score."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat

from agent.evaluation.statistics import bin_of, krippendorff_alpha
from agent.history import Command, Exchange, Execution, History, Visit
from agent.store.annotations import LabelStatus, PairLabel, Vote, combine_votes, find_majority_round, get_status
from agent.store.run_view import RunView
from agent.types import PROVES_NOTHING, Annotation, Cause, Pair, Status, TestReport, Usage

# a label, and gold
LabelAndGold = tuple[int | None, int]
# the ways in which pairs with gold are grouped
GROUPINGS = ("decided_by", "tests", "stand_ins", "overrides")
_MOST_NAMES = 20_000
_OURS = (Cause.PROGRAM, Cause.DEPENDENCY)
Table = defaultdict[str, Counter[str]]


@dataclass(frozen=True)
class Observation:
    """One annotation, what led to it (None: not kept), and its gold label (None: not known)."""

    annotation: Annotation
    history: History | None = None
    gold: int | None = None

    @property
    def label(self) -> LabelStatus:
        """`1`, `0`, `undecided` or `error`."""
        return get_status(self.annotation.label, failed=self.annotation.error is not None)

    @property
    def generated(self) -> bool:
        """Whether a test program was written."""
        if self.history is not None:
            return bool(self.history.programs)
        return self.annotation.test is not None and bool(self.annotation.test.cases)


def merge_rounds(rounds: Sequence[Observation]) -> Observation:
    """Return a pair, seen in one or more rounds, as one annotation that has the label and confidence of their majority.

    The rest is that of the first round that ended so. A tie is undecided, on what the first round without error found.
    """
    if len(rounds) == 1:
        return rounds[0]
    label = combine_votes(rounds[0].annotation.id, [Vote.of(seen.annotation) for seen in rounds])
    place = find_majority_round([seen.label for seen in rounds])
    changes: dict[str, object] = {"confidence": label.confidence}
    if place is None:
        place = next(number for number, seen in enumerate(rounds) if seen.annotation.error is None)
        changes |= {"label": None, "decided_by": None}
    return replace(rounds[place], annotation=rounds[place].annotation.model_copy(update=changes))


def iterate_annotated_pairs(
    run: RunView,
    *,
    ids: Collection[str] | None = None,
    gold: Mapping[str, int] | None = None,
    with_history: bool = False,
) -> Iterator[tuple[Pair, list[Observation]]]:
    """Yield each annotated pair of a run (only those of `ids`, where given) with its rounds, in the order of the input.

    Raises:
        RunFolderError: the folder is damaged.
        InputError: its input is damaged.
    """
    for pair in run.pairs():
        if ids is not None and pair.id not in ids:
            continue
        rounds = []
        for number in run.index.list_rounds(pair.id):
            annotation = run.annotation(pair.id, number)
            if annotation is not None:
                history = run.evidence(pair.id, number) if with_history else None
                rounds.append(Observation(annotation, history, (gold or {}).get(pair.id)))
        if rounds:
            yield pair, rounds


@dataclass
class RoleCost:
    """What a role took: `usage` paid, replies from the cache, questions asked again for a usable reply."""

    usage: Usage = Usage()
    cached: int = 0
    again: int = 0


@dataclass
class NodeTime:
    """The seconds of a node's visits, and what of all of them went to the model and to programs."""

    visits: array[float] = field(default_factory=lambda: array("d"))
    model: float = 0.0
    programs: float = 0.0

    @property
    def rest(self) -> float:
        """The seconds for everything else; sums of rounded times may differ by a little."""
        return max(0.0, sum(self.visits) - self.model - self.programs)


def _table() -> Table:
    return defaultdict(Counter)


@dataclass
class Tally:
    """Counts annotations pair by pair, and holds nothing of any one pair.

    A table counts by name, then by how the annotation ended (`Seen.label`) if nothing else is said here. What a history
    shows is counted of those annotations that come with one: `without_history` is the number of the others.

    - Pairs: `votes` counts them by how their rounds ended, in any order and without confidences. `repaired` and
      `with_stand_ins` count pairs in any of whose rounds that happened. `round_count` is at least 1.
    - The way to a label: `stages` counts annotations at `screened`, `programs`, `executed`, `tests` and `labels`, by
      which way they went. `audits` has those that the screener settled and that were tested all the same, by its
      verdict. `judged` counts those with gold, by each way of grouping, by group, then by label and gold.
    - Tests: `outcomes` is by `TestReport.outcome`; `causes` by outcome, then by cause (empty: none). `programs` are
      those with cases (`stages` has all that were written), `ways` how they came to run, or why they did not. `checked`
      tests passed and were tried on mutants; `mutants` counts by kind how many were killed (True) and survived.
    - Stand-ins: `stand_in_names` counts programs by name, but no names beyond the first 20,000. `by_stand_ins` has
      programs `with stand-ins` and `without`.
    - Confidence: `confidences` is by bin (`bin_of`); `confidences_judged` of these have gold.
    - Work: `commands` has repairs by kind, then by what came of them.
    """

    annotations: int = 0
    votes: Counter[tuple[Vote, ...]] = field(default_factory=Counter)
    round_count: int = 1
    stages: Table = field(default_factory=_table)
    rounds: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    errors: Counter[str] = field(default_factory=Counter)
    deciders: Table = field(default_factory=_table)
    outcomes: Table = field(default_factory=_table)
    causes: Table = field(default_factory=_table)
    audits: Table = field(default_factory=_table)
    against_test: int = 0
    programs: int = 0
    executed: int = 0
    cases: int = 0
    checked_tests: int = 0
    strength: float = 0.0
    vacuous: int = 0
    repairs: int = 0
    repaired: int = 0
    stand_ins: int = 0
    with_stand_ins: int = 0
    stand_in_names: Counter[str] = field(default_factory=Counter)
    by_stand_ins: Table = field(default_factory=_table)
    confidences: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    confidences_with_gold: int = 0
    without_confidence: int = 0
    judgements: dict[str, defaultdict[str, Counter[LabelAndGold]]] = field(
        default_factory=lambda: {way: defaultdict(Counter) for way in GROUPINGS}
    )
    usage: Usage = Usage()
    seconds: float = 0.0
    without_history: int = 0
    run_outcomes: Counter[str] = field(default_factory=Counter)
    mutants: defaultdict[str, Counter[bool]] = field(default_factory=lambda: defaultdict(Counter))
    commands: Table = field(default_factory=_table)
    roles: defaultdict[str, RoleCost] = field(default_factory=lambda: defaultdict(RoleCost))
    nodes: defaultdict[str, NodeTime] = field(default_factory=lambda: defaultdict(NodeTime))

    def add(self, *rounds: Observation) -> None:
        """Count a pair by the annotations of all its rounds."""
        votes = (Vote.of(seen.annotation)._replace(confidence=None) for seen in rounds)
        self.votes[tuple(sorted(votes, key=str))] += 1
        self.repaired += any(seen.annotation.repairs for seen in rounds)
        self.with_stand_ins += any(seen.annotation.stand_ins for seen in rounds)
        for seen in rounds:
            self.round_count = max(self.round_count, seen.annotation.round + 1)
            self._add(seen)

    def _add(self, seen: Observation) -> None:
        annotation = seen.annotation
        self.annotations += 1
        self.rounds[annotation.round][seen.label] += 1
        self._add_label(seen)
        if annotation.test is not None:
            self._add_test(seen, annotation.test)
        if seen.generated:
            self._add_program(seen)
        if annotation.strength is not None:
            self.checked_tests += 1
            self.strength += annotation.strength
        self.repairs += annotation.repairs
        self.stand_ins += len(annotation.stand_ins)
        self.usage += annotation.usage
        self.seconds += annotation.seconds
        if seen.history is None:
            self.without_history += 1
        else:
            self._add_history(seen.history)
        if seen.gold is not None:
            for way, name in _groups(annotation).items():
                self.judgements[way][name][annotation.label, seen.gold] += 1

    @property
    def labels(self) -> Counter[str]:
        """How many annotations ended in a label, undecided or in an error."""
        return self.stages["labels"]

    @property
    def ended(self) -> Counter[LabelStatus]:
        """How many pairs ended in a label by the majority of their rounds, undecided or in an error."""
        counts = Counter[LabelStatus]()
        for pair, count in self._pairs():
            counts[pair.status] += count
        return counts

    @property
    def agreement(self) -> float | None:
        """The mean share of two rounds of a pair that ended alike; None where no pair has two."""
        shares = [(pair.agreement, count) for pair, count in self._pairs() if pair.agreement is not None]
        return sum(share * count for share, count in shares) / sum(count for _, count in shares) if shares else None

    @property
    def rounds_alpha(self) -> float | None:
        """Krippendorff's alpha between the labels of rounds, as in CoSQA+ (version 1, section 4.2); None: undefined."""
        return krippendorff_alpha(votes for pair, count in self._pairs() for votes in repeat(pair.votes, count))

    def _pairs(self) -> Iterator[tuple[PairLabel, int]]:
        """Yield what pairs come to whose rounds ended so, and how many they are."""
        return ((combine_votes("", votes), count) for votes, count in self.votes.items())

    @property
    def statuses(self) -> Counter[str]:
        """Tests by status, whether they prove something or not."""
        counts = Counter({name: labels.total() for name, labels in self.outcomes.items()})
        if self.vacuous:
            del counts[PROVES_NOTHING]
            counts[Status.PASSED.value] += self.vacuous
        return counts

    @property
    def executed_share(self) -> float | None:
        """The share of programs that ran as tests (the paper's "Exec. rate")."""
        return self.executed / self.programs if self.programs else None

    @property
    def cases_per_program(self) -> float | None:
        """The mean number of cases of programs that have any."""
        return self.cases / self.programs if self.programs else None

    @property
    def mean_strength(self) -> float | None:
        """The mean share of mutants that a checked test killed."""
        return self.strength / self.checked_tests if self.checked_tests else None

    def _add_label(self, seen: Observation) -> None:
        annotation, label = seen.annotation, seen.label
        self.stages["labels"][label] += 1
        if annotation.screen_verdict is not None:
            self.stages["screened"][annotation.screen_verdict.value] += 1
            if annotation.audited:
                self.audits[annotation.screen_verdict.value]["undecided" if annotation.abstained else label] += 1
        if annotation.error is not None:
            self.errors[annotation.error.type] += 1
        elif annotation.decided_by is not None:
            self.deciders[annotation.decided_by][label] += 1
        if annotation.confidence is not None:
            self.confidences[bin_of(annotation.confidence)][label] += 1
            self.confidences_with_gold += seen.gold is not None
        else:
            self.without_confidence += label in ("0", "1")

    def _add_test(self, seen: Observation, test: TestReport) -> None:
        self.outcomes[test.outcome][seen.label] += 1
        self.causes[test.outcome]["" if test.cause is None else test.cause.value] += 1
        self.against_test += seen.annotation.against_test
        self.vacuous += test.vacuous
        if seen.generated:
            self.stages["executed"]["ran" if test.executed else "did not run"] += 1
            self.stages["tests"][test.outcome] += 1
        else:
            self.stages["programs"]["none, for the snippet does not parse"] += 1
        if test.cases:
            self.programs += 1
            self.executed += test.executed
            self.cases += len(test.cases)
            self.run_outcomes[_way(test, seen.history)] += 1

    def _add_program(self, seen: Observation) -> None:
        stand_ins = seen.annotation.stand_ins
        self.stages["programs"]["written"] += 1
        # the name alone: behind a colon is what it stands for
        names = {each.partition(":")[0].strip() for each in stand_ins}
        more = len(self.stand_in_names) < _MOST_NAMES
        self.stand_in_names.update(names if more else names & self.stand_in_names.keys())
        self.by_stand_ins["with stand-ins" if stand_ins else "without"][seen.label] += 1

    def _add_history(self, history: History) -> None:
        for mutant in history.mutants:
            kind = "" if mutant.mutant is None else mutant.mutant.kind
            self.mutants[kind][mutant.killed] += 1
        for command in history.commands:
            self.commands[_kind(command)][command.outcome] += 1
        rewritten = sum(one.program != other.program for one, other in pairwise(history.tests))
        if rewritten:
            self.commands["program written again"]["changed"] += rewritten
        for exchange, again in zip(history.exchanges, history.asked_again(), strict=True):
            role = self.roles[exchange.role]
            role.usage += exchange.usage
            role.cached += exchange.cached
            role.again += again
        self._add_times(history)

    def _add_times(self, history: History) -> None:
        model = programs = 0.0
        for event in history.events:
            # what the cache answered, or another pair's execution, took its time elsewhere
            if isinstance(event, Exchange) and not event.cached:
                model += event.seconds or 0.0
            elif isinstance(event, Execution) and not event.shared:
                programs += event.seconds
            elif isinstance(event, Visit):
                node = self.nodes[event.node]
                node.visits.append(event.seconds)
                node.model, node.programs = node.model + model, node.programs + programs
                model = programs = 0.0


def _way(test: TestReport, history: History | None) -> str:
    """Return how a program came to run as a test, or why it did not."""
    if history is None or not history.tests:
        return "not known"
    if not test.executed:
        return f"did not run: {'no test' if test.cause is None else test.cause.value}"
    return "ran after repairs" if history.tests[0].report.cause in _OURS else "ran at once"


def _kind(command: Command) -> str:
    words = command.command.split()
    return "packages installed" if "install" in words and "pip" in " ".join(words[:4]) else "other commands"


def _groups(annotation: Annotation) -> dict[str, str]:
    """Return the group of an annotation by each of `WAYS`; no override where label or test say nothing."""
    test = annotation.test
    error = None if annotation.error is None else f"error: {annotation.error.type}"
    groups = {"decided_by": error or annotation.decided_by or "nobody", "tests": "no test", "stand_ins": "no test"}
    if test is not None:
        groups["tests"] = test.outcome if test.cause is None else f"{test.outcome}: {test.cause.value}"
        groups["stand_ins"] = "stand-ins" if annotation.stand_ins else "no stand-ins"
        if annotation.label is not None and test.says is not None:
            against = f"{test.outcome}, but {annotation.label}"
            groups["overrides"] = against if annotation.against_test else "followed"
    return groups
