"""Counts annotations for the summary, the ablation table, the report and the scores."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat

from agent.evaluation.statistics import krippendorff_alpha
from agent.pipeline.history import Command, Execution, History, ModelCall, NodeRun
from agent.runs.store.annotations import LabelStatus, PairLabel, combine_rounds, find_majority_round, get_status
from agent.runs.store.run_view import RunView
from agent.types import Annotation, Cause, ModuleContext, Pair, TestReport, Usage, Verdict

# the label and the gold label of a pair
LabelAndGold = tuple[int | None, int]
# ways to group the pairs that have a gold label
GROUPINGS = ("decided_by", "evidence", "tests", "stand_ins", "overrides")
_MAX_REASONS = 30
_MAX_NAMES = 20_000
_REPAIRABLE = (Cause.PROGRAM, Cause.DEPENDENCY)
Table = defaultdict[str, Counter[str]]


@dataclass(frozen=True)
class Observation:
    """An annotation with its history and a gold label. `history` and `gold` are None if they are not available."""

    annotation: Annotation
    history: History | None = None
    gold: int | None = None

    @property
    def label(self) -> LabelStatus:
        """The outcome of the annotation: `1`, `0`, `undecided`, `no_intent` or `error`."""
        return get_status(self.annotation)

    @property
    def has_program(self) -> bool:
        """Whether a test program was generated."""
        if self.history is not None:
            return len(self.history.programs) > len(self.history.probes)
        return self.annotation.test is not None and bool(self.annotation.test.cases)


def merge_rounds(rounds: Sequence[Observation]) -> Observation:
    """Merge the rounds of a pair into one annotation with the majority label.

    The other fields are copied from the first round with the majority outcome. If there is a tie, the merged annotation
    is undecided, and the other fields are copied from the first round without an error.
    """
    if len(rounds) == 1:
        return rounds[0]
    index = find_majority_round([observation.label for observation in rounds])
    if index is not None:
        return rounds[index]
    first = next(observation for observation in rounds if observation.annotation.error is None)
    undecided = first.annotation.model_copy(update={"label": None, "decided_by": None})
    return replace(first, annotation=undecided)


def iterate_annotated_pairs(
    run: RunView,
    *,
    ids: Collection[str] | None = None,
    gold: Mapping[str, int] | None = None,
    with_history: bool = False,
) -> Iterator[tuple[Pair, list[Observation]]]:
    """Iterate over the annotated pairs of a run and their rounds, in input order.

    If `ids` is given, all other pairs are skipped.

    Raises:
        RunFolderError: the run folder is damaged.
        InputError: the run's input is damaged.
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
    """The cost of a role.

    `usage` is the usage that was paid for. `cached` is the number of cached replies. `reasks` is the number of calls
    that were repeated after an invalid reply.
    """

    usage: Usage = Usage()
    cached: int = 0
    reasks: int = 0


@dataclass
class NodeTime:
    """Time spent in a node, in seconds.

    `node_runs` contains the duration of each run. `model` and `programs` are the total durations of model calls and of
    program executions in all runs.
    """

    node_runs: array[float] = field(default_factory=lambda: array("d"))
    model: float = 0.0
    programs: float = 0.0

    @property
    def rest(self) -> float:
        """Seconds spent outside model calls and programs, or 0 if rounding would make the value negative."""
        return max(0.0, sum(self.node_runs) - self.model - self.programs)


def _make_table() -> Table:
    return defaultdict(Counter)


@dataclass
class Tally:
    """Counts of annotations. Pairs are added one by one and are not stored.

    Unless noted otherwise, the keys of a table are a name and then the outcome of the annotation (`Observation.label`).
    Counts from histories cover only annotations that have a history. `without_history` counts the other annotations.

    - Pairs: `votes` counts pairs by the outcomes of their rounds, ignoring order. `repaired` counts
      pairs with repairs in any round, and `with_stand_ins` counts pairs with stand-ins in any round. `round_count` is
      the number of rounds and is at least 1.
    - Path to a label: `stages` counts annotations by their outcome in each of the stages `screened`, `programs`,
      `executed`, `tests` and `labels`. `audits` counts audited annotations by the screener's verdict. `judgements`
      counts annotations that have a gold label: by grouping, by group, and then by label and gold label.
    - Tests: `outcomes` counts tests by `TestReport.status`. `causes` counts tests by status and then by cause, which
      is empty if there is none. `programs` counts programs with test cases, whereas `stages` counts all programs.
      `run_outcomes` counts programs by how they ran, or by why they did not run.
    - Stand-ins: `stand_in_names` counts programs by the names of their stand-ins, for the first 20,000 names.
      `by_stand_ins` counts programs `with stand-ins` and `without`.
    - Modules: `modules` counts annotations by where their tests ran (`describe_place`). A reason ends at its
      first colon. After 30 reasons, new ones count as `other reasons`.
    - Repairs: `commands` counts repairs by kind and then by outcome.
    """

    annotations: int = 0
    votes: Counter[tuple[LabelStatus, ...]] = field(default_factory=Counter)
    round_count: int = 1
    stages: Table = field(default_factory=_make_table)
    rounds: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    errors: Counter[str] = field(default_factory=Counter)
    deciders: Table = field(default_factory=_make_table)
    outcomes: Table = field(default_factory=_make_table)
    causes: Table = field(default_factory=_make_table)
    audits: Table = field(default_factory=_make_table)
    against_test: int = 0
    programs: int = 0
    executed: int = 0
    cases: int = 0
    repairs: int = 0
    repaired: int = 0
    stand_ins: int = 0
    with_stand_ins: int = 0
    stand_in_names: Counter[str] = field(default_factory=Counter)
    by_stand_ins: Table = field(default_factory=_make_table)
    modules: Table = field(default_factory=_make_table)
    judgements: dict[str, defaultdict[str, Counter[LabelAndGold]]] = field(
        default_factory=lambda: {grouping: defaultdict(Counter) for grouping in GROUPINGS}
    )
    usage: Usage = Usage()
    seconds: float = 0.0
    without_history: int = 0
    run_outcomes: Counter[str] = field(default_factory=Counter)
    commands: Table = field(default_factory=_make_table)
    roles: defaultdict[str, RoleCost] = field(default_factory=lambda: defaultdict(RoleCost))
    nodes: defaultdict[str, NodeTime] = field(default_factory=lambda: defaultdict(NodeTime))

    def add(self, *rounds: Observation) -> None:
        """Add a pair to the counts. `rounds` contains the annotations from all rounds of the pair."""
        self.votes[tuple(sorted(observation.label for observation in rounds))] += 1
        self.repaired += any(observation.annotation.repairs for observation in rounds)
        self.with_stand_ins += any(observation.annotation.stand_ins for observation in rounds)
        for observation in rounds:
            self.round_count = max(self.round_count, observation.annotation.round + 1)
            self._add_round(observation)

    def _add_round(self, observation: Observation) -> None:
        annotation = observation.annotation
        self.annotations += 1
        self.rounds[annotation.round][observation.label] += 1
        self._add_label(observation)
        if annotation.test is not None:
            self._add_test(observation, annotation.test)
        if observation.has_program:
            self._add_program(observation)
        if place := describe_place(annotation.module_context, short=True):
            is_known = place in self.modules or len(self.modules) < _MAX_REASONS
            self.modules[place if is_known else "alone: other reasons"][observation.label] += 1
        self.repairs += annotation.repairs
        self.stand_ins += len(annotation.stand_ins)
        self.usage += annotation.usage
        self.seconds += annotation.seconds
        if observation.history is None:
            self.without_history += 1
        else:
            self._add_history(observation.history)
        if observation.gold is not None:
            for grouping, group in assign_groups(annotation).items():
                self.judgements[grouping][group][annotation.label, observation.gold] += 1

    @property
    def labels(self) -> Counter[str]:
        """Number of annotations by outcome (label, undecided, no intent or error)."""
        return self.stages["labels"]

    @property
    def pair_statuses(self) -> Counter[LabelStatus]:
        """Number of pairs by the majority outcome of their rounds (label, undecided, no intent or error)."""
        counts = Counter[LabelStatus]()
        for pair, count in self._iterate_pair_labels():
            counts[pair.status] += count
        return counts

    @property
    def agreement(self) -> float | None:
        """Mean pairwise agreement between the rounds of a pair, or None if no pair has two rounds."""
        shares = [(pair.agreement, count) for pair, count in self._iterate_pair_labels() if pair.agreement is not None]
        return sum(share * count for share, count in shares) / sum(count for _, count in shares) if shares else None

    @property
    def rounds_alpha(self) -> float | None:
        """Krippendorff's alpha between rounds (CoSQA+ paper, version 1, section 4.2), or None if undefined."""
        pair_labels = self._iterate_pair_labels()
        return krippendorff_alpha(votes for pair, count in pair_labels for votes in repeat(pair.votes, count))

    def _iterate_pair_labels(self) -> Iterator[tuple[PairLabel, int]]:
        """Iterate over the distinct pair labels, each with the number of pairs that have it."""
        return ((combine_rounds("", votes), count) for votes, count in self.votes.items())

    @property
    def statuses(self) -> Counter[str]:
        """Number of tests by status."""
        return Counter({name: labels.total() for name, labels in self.outcomes.items()})

    @property
    def executed_share(self) -> float | None:
        """Proportion of programs that ran as tests (the "Exec. rate" in the CoSQA+ paper)."""
        return self.executed / self.programs if self.programs else None

    @property
    def cases_per_program(self) -> float | None:
        """Mean number of test cases per program, ignoring programs without test cases."""
        return self.cases / self.programs if self.programs else None

    def _add_label(self, observation: Observation) -> None:
        annotation, label = observation.annotation, observation.label
        self.stages["labels"][label] += 1
        if annotation.screen_verdict is not None:
            self.stages["screened"][annotation.screen_verdict.value] += 1
            if annotation.audited:
                self.audits[annotation.screen_verdict.value][label] += 1
        if annotation.error is not None:
            self.errors[annotation.error.type] += 1
        elif annotation.decided_by is not None:
            self.deciders[annotation.decided_by][label] += 1

    def _add_test(self, observation: Observation, test: TestReport) -> None:
        self.outcomes[test.status.value][observation.label] += 1
        self.causes[test.status.value]["" if test.cause is None else test.cause.value] += 1
        self.against_test += observation.annotation.against_test
        if observation.has_program:
            self.stages["executed"]["ran" if test.executed else "did not run"] += 1
            self.stages["tests"][test.status.value] += 1
        else:
            self.stages["programs"]["none: the snippet does not parse"] += 1
        if test.cases:
            self.programs += 1
            self.executed += test.executed
            self.cases += len(test.cases)
            self.run_outcomes[_describe_run(test, observation.history)] += 1

    def _add_program(self, observation: Observation) -> None:
        stand_ins = observation.annotation.stand_ins
        self.stages["programs"]["written"] += 1
        # keep only the name, which may be followed by a colon and a description
        names = {stand_in.partition(":")[0].strip() for stand_in in stand_ins}
        has_room = len(self.stand_in_names) < _MAX_NAMES
        self.stand_in_names.update(names if has_room else names & self.stand_in_names.keys())
        self.by_stand_ins["with stand-ins" if stand_ins else "without"][observation.label] += 1

    def _add_history(self, history: History) -> None:
        for command in history.commands:
            self.commands[_classify_command(command)][command.outcome] += 1
        rewritten = sum(test.program != following.program for test, following in pairwise(history.tests))
        if rewritten:
            self.commands["program rewritten"]["changed"] += rewritten
        for model_call, is_reask in zip(history.model_calls, history.asked_again(), strict=True):
            role = self.roles[model_call.role]
            role.usage += model_call.usage
            role.cached += model_call.cached
            role.reasks += is_reask
        self._add_times(history)

    def _add_times(self, history: History) -> None:
        model = programs = 0.0
        for event in history.events:
            # cached replies and shared executions took no time for this pair
            if isinstance(event, ModelCall) and not event.cached:
                model += event.seconds or 0.0
            elif isinstance(event, Execution) and not event.shared:
                programs += event.seconds
            elif isinstance(event, NodeRun):
                node = self.nodes[event.node]
                node.node_runs.append(event.seconds)
                node.model, node.programs = node.model + model, node.programs + programs
                model = programs = 0.0


def describe_place(context: ModuleContext | None, *, short: bool = False) -> str:
    """Return where a test ran: in its module, or alone for a reason. If `short`, omit the import path and details."""
    if context is None:
        return ""
    if context.module is not None:
        return "in its module" if short else f"in its module ({context.module})"
    return "alone: " + (context.reason.partition(":")[0].strip() if short else context.reason)


def _describe_run(test: TestReport, history: History | None) -> str:
    """Describe the outcome of a test program, or why the program did not run."""
    if history is None or not history.tests:
        return "unknown"
    if not test.executed:
        return f"did not run: {'no test' if test.cause is None else test.cause.value}"
    return "ran after repairs" if history.tests[0].report.cause in _REPAIRABLE else "ran without repairs"


def _classify_command(command: Command) -> str:
    words = command.command.split()
    return "packages installed" if "install" in words and "pip" in " ".join(words[:4]) else "other commands"


def assign_groups(annotation: Annotation) -> dict[str, str]:
    """Return the group of an annotation in each of `GROUPINGS`.

    `overrides` is omitted if the annotation has no label, or if its test implies no label.
    """
    test, verdict = annotation.test, annotation.screen_verdict
    outcome = "no test"
    if test is not None:
        outcome = test.status.value if test.cause is None else f"{test.status.value}: {test.cause.value}"
    if annotation.error is not None:
        decider = evidence = f"error: {annotation.error.type}"
    else:
        decider = annotation.decided_by or "nobody"
        is_clear = verdict in (Verdict.MATCH, Verdict.NON_MATCH)
        evidence = f"{decider}: {verdict.value if verdict and is_clear and test is None else outcome}"
    groups = {"decided_by": decider, "evidence": evidence, "tests": outcome, "stand_ins": "no test"}
    if test is not None:
        groups["stand_ins"] = "stand-ins" if annotation.stand_ins else "no stand-ins"
        if annotation.label is not None and test.says is not None:
            against = f"{test.status.value}, but {annotation.label}"
            groups["overrides"] = against if annotation.against_test else "followed"
    return groups
