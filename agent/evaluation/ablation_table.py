"""The ablation table (paper, Table VI): what each variant took, and what separates a difference from noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from agent.evaluation.ablation import VariantRun
from agent.evaluation.agreement import mean_agreement, rounds_alpha
from agent.evaluation.measures import Confusion, cell, measures, wilson_intervals
from agent.evaluation.statistics import holm, least_discordant, mcnemar_exact
from agent.history import Exchange, History
from agent.store.majority import Label, Votes
from agent.store.run_view import RunView, load_run
from agent.types import Annotation, Frozen, Pair, Usage, added
from agent.wording import counted


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
    running: float = 0.0
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

    def add(self, annotation: Annotation, evidence: History | None) -> None:
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
        if evidence.programs:
            self.programs += 1
            self.executed += test is not None and test.executed
        for exchange in evidence.exchanges:
            self._add_call(exchange)
        for run in evidence.executions:
            self.executions += 1
            self.executions_made += not run.shared
            self.running += run.seconds

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
        votes.add(annotation)
    labels = votes.labels()
    work.labels = {each.id: each.label for each in labels}
    work.agreement, work.rounds_alpha = mean_agreement(labels), rounds_alpha(labels)
    return work


SCHEMA = 1


class Share(Frozen):
    """A share of pairs, with its Wilson 95% interval."""

    value: float
    low: float
    high: float


class McNemar(Frozen):
    """The exact McNemar test of a variant against another on the pairs that have gold; null is wrong.

    `p_holm` is adjusted over all rows of the table. `note` says when there are too few discordant pairs for any result.
    """

    against: str
    only_this_right: int
    only_other_right: int
    p: float
    p_holm: float
    note: str | None


class Row(Frozen):
    """One variant.

    Measures are those of `agent score` by the majority label, None where undefined. `agreement` is the mean share
    of two rounds of a pair that ended alike, `rounds_alpha` Krippendorff's alpha between rounds. `executed_share` is
    of the programs generated (paper, Table II), None where the variant runs none; `cases_per_program` is over
    programs that were given to a sandbox; `repairs_per_pair` is the mean over rounds. Of the tests that passed,
    `tests_checked` were tried on wrong code, with a mean strength, and `tests_vacuous` of them prove nothing.
    `calls_per_pair` to `seconds_per_pair` are what the variant takes by itself (`Work`), all rounds of a pair
    together; tokens are input and output.
    """

    variant: str
    title: str
    paper: str | None
    run: str
    accuracy: Share | None
    coverage: float | None
    selective_accuracy: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    kappa: float | None
    alpha: float | None
    agreement: float | None
    rounds_alpha: float | None
    executed_share: float | None
    cases_per_program: float | None
    tests_checked: int
    tests_vacuous: int
    mean_strength: float | None
    repairs_per_pair: float
    calls_per_pair: float
    tokens_per_pair: float
    cost_per_pair: float | None
    seconds_per_pair: float | None
    errors: int
    mcnemar: McNemar | None


class AblationTable(Frozen):
    """All variants on the same pairs. `gold` counts labels by class, `unlabelled` pairs have none.

    `against` is the variant that the others are tested against, None when it is not among them. `calls`: `asked`
    questions in all, `made` to a model, `shared` answered by one of those replies, `earlier` by what the cache had
    from before, and the calls that `separate` runs, each with a cache of its own, would have made. `executions`:
    `asked` runs of programs in all, `made` in a sandbox. `paid` is what was really paid.
    """

    pairs: int
    rounds: int
    gold: dict[str, int]
    unlabelled: int
    criterion: str
    model: str
    note: str | None
    against: str | None
    calls: dict[str, int]
    executions: dict[str, int]
    paid: Usage
    rows: tuple[Row, ...]

    @property
    def errors(self) -> int:
        """Number of annotations that ended in an error, over all variants."""
        return sum(row.errors for row in self.rows)


@dataclass(frozen=True)
class Setting:
    """What holds for all rows."""

    criterion: str
    model: str
    rounds: int
    note: str | None
    against: str | None


def make_table(
    runs: Sequence[VariantRun],
    works: Sequence[Work],
    pairs: Sequence[Pair],
    gold: Mapping[str, int],
    setting: Setting,
    *,
    beside: Path,
) -> AblationTable:
    """Return the table of finished runs; folders are named relative to `beside`.

    Raises:
        ExtraMissing: NumPy or SciPy is not installed.
    """
    ids = {pair.id for pair in pairs}
    known = {pair_id: label for pair_id, label in gold.items() if pair_id in ids}
    tests = _tests(runs, works, known, setting.against)
    return AblationTable(
        pairs=len(ids),
        rounds=setting.rounds,
        gold={str(label): sum(each == label for each in known.values()) for label in (1, 0)},
        unlabelled=len(ids) - len(known),
        criterion=setting.criterion,
        model=setting.model,
        note=setting.note,
        against=setting.against,
        calls=_calls(works),
        executions={
            "asked": sum(work.executions for work in works),
            "made": sum(work.executions_made for work in works),
        },
        paid=sum((work.paid for work in works), Usage()),
        rows=tuple(
            _row(run, work, known, len(ids), tests.get(run.variant.name), beside)
            for run, work in zip(runs, works, strict=True)
        ),
    )


def _calls(works: Sequence[Work]) -> dict[str, int]:
    made = sum((work.made for work in works), Counter[str]())
    answered = sum((work.answered for work in works), Counter[str]())
    shared = sum(count for key, count in answered.items() if key in made)
    return {
        "asked": made.total() + answered.total(),
        "made": made.total(),
        "shared": shared,
        "earlier": answered.total() - shared,
        "separate": sum(len(work.asked) for work in works),
    }


def _row(
    run: VariantRun,
    work: Work,
    gold: Mapping[str, int],
    pairs: int,
    test: McNemar | None,
    beside: Path,
) -> Row:
    confusion = Confusion(**Counter(cell(work.labels.get(pair_id), label) for pair_id, label in gold.items()))
    found, usage = measures(confusion), work.usage
    accuracy, interval = found.pop("accuracy"), wilson_intervals(confusion).get("accuracy")
    return Row(
        variant=run.variant.name,
        title=run.variant.title,
        paper=run.variant.paper,
        run=str(run.folder.relative_to(beside)),
        accuracy=None
        if accuracy is None or interval is None
        else Share(value=accuracy, low=interval.low, high=interval.high),
        **found,
        agreement=work.agreement,
        rounds_alpha=work.rounds_alpha,
        executed_share=work.executed / work.programs if run.executes and work.programs else None,
        cases_per_program=work.cases / work.programs_with_cases if work.programs_with_cases else None,
        tests_checked=len(work.strengths),
        tests_vacuous=work.vacuous,
        mean_strength=fmean(work.strengths) if work.strengths else None,
        repairs_per_pair=work.repairs / max(work.annotations, 1),
        calls_per_pair=work.calls / pairs,
        tokens_per_pair=(usage.input_tokens + usage.output_tokens) / pairs,
        cost_per_pair=None if usage.cost_usd is None else usage.cost_usd / pairs,
        seconds_per_pair=None if work.seconds is None else work.seconds / pairs,
        errors=work.errors,
        mcnemar=test,
    )


def _tests(
    runs: Sequence[VariantRun], works: Sequence[Work], gold: Mapping[str, int], against: str | None
) -> dict[str, McNemar]:
    """Return each other variant's test against this one, none where there is no such variant."""
    if against is None:
        return {}
    right = {run.variant.name: _right(work.labels, gold) for run, work in zip(runs, works, strict=True)}
    reference = right.pop(against)
    counts = {name: (len(ours - reference), len(reference - ours)) for name, ours in right.items()}
    p_values = [mcnemar_exact(*each) for each in counts.values()]
    return {
        name: McNemar(
            against=against,
            only_this_right=each[0],
            only_other_right=each[1],
            p=p,
            p_holm=adjusted,
            note=_too_few(sum(each)),
        )
        for (name, each), p, adjusted in zip(counts.items(), p_values, holm(p_values), strict=True)
    }


def _right(labels: Mapping[str, Label], gold: Mapping[str, int]) -> frozenset[str]:
    return frozenset(pair_id for pair_id, label in gold.items() if labels.get(pair_id) == label)


def _too_few(discordant: int) -> str | None:
    needed = least_discordant()
    if discordant >= needed:
        return None
    return f"{counted(discordant, 'discordant pair')}: fewer than {needed} cannot reach p < .05"
