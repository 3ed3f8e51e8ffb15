"""The ablation table (paper, Table VI): what each variant took, and what separates a difference from noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from agent.evaluation.ablation import VariantRun
from agent.evaluation.measures import Confusion, compute_measures, confusion_cell, wilson_intervals
from agent.evaluation.statistics import LEAST_DISCORDANT, adjust_holm, mcnemar_exact
from agent.evaluation.tally import Observation, Tally, iterate_annotated_pairs, merge_rounds
from agent.history import Exchange
from agent.store.annotations import Label
from agent.store.run_view import load_run
from agent.types import Frozen, Pair, Usage
from agent.wording import plural

_TOO_FEW = f"fewer than {LEAST_DISCORDANT} cannot reach p < .05"


class ShareWithInterval(Frozen):
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


class AblationRow(Frozen):
    """One variant.

    Measures are those of `agent score` by the majority label, None where undefined. `agreement` is the mean share
    of two rounds of a pair that ended alike, `rounds_alpha` Krippendorff's alpha between rounds. `executed_share` is
    of the programs generated (paper, Table II), None where the variant runs none; `cases_per_program` is over
    programs that were given to a sandbox; `repairs_per_pair` is the mean over rounds. Of the tests that passed,
    `tests_checked` were tried on mutants, with a mean strength, and `tests_vacuous` of them prove nothing.
    `calls_per_pair` to `seconds_per_pair` are what the variant takes by itself (`Work`), all rounds of a pair
    together; tokens are input and output.
    """

    variant: str
    title: str
    paper: str | None
    run: str
    accuracy: ShareWithInterval | None
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
    seconds_per_pair: float
    errors: int
    mcnemar: McNemar | None


class AblationTable(Frozen):
    """All variants on the same pairs. `gold` counts labels by class, `unlabelled` pairs have none.

    `against` is the variant that the others are tested against, None when it is not among them. `calls`: `asked`
    questions in all, `made` to a model, `shared` answered by one of those replies, `earlier` by what the cache had
    from before, and the calls that `separate` runs, each with a cache of its own, would have made. `executions`:
    `asked` runs of programs in all, `made` in a sandbox. `paid` is what was really paid.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

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
    rows: tuple[AblationRow, ...]

    @property
    def errors(self) -> int:
        """Number of annotations that ended in an error, over all variants."""
        return sum(row.errors for row in self.rows)


@dataclass
class Work:
    """A variant's work on all pairs and rounds, and the label of each pair: the majority of its rounds.

    `calls`, `usage` and `seconds` are what the variant takes by itself: a reply that another variant or an earlier run
    paid for counts with what it cost and how long it took then, once for all candidates of a query that share it; a
    shared execution likewise, each time. `seconds` adds up models and executions, without waiting for a turn. `made`
    counts by question what went to a model, `answered` what the cache answered, `paid` is what was really paid.
    Executions are all runs of programs, those on mutants and repeats among them.
    """

    tally: Tally = field(default_factory=Tally)
    labels: dict[str, Label] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    paid: Usage = Usage()
    executions: int = 0
    executions_run: int = 0
    _seconds: float = 0.0
    _first_answers: dict[str, tuple[Usage, float]] = field(default_factory=dict)

    @property
    def asked(self) -> int:
        """How many different questions there were: what a run with a cache of its own would have asked."""
        return len(self.made.keys() | self.answered.keys())

    @property
    def calls(self) -> int:
        """How many calls the variant takes."""
        return self.made.total() + len(self._saved())

    @property
    def usage(self) -> Usage:
        """The tokens and the cost of these calls."""
        return sum((usage for usage, _ in self._saved()), self.paid)

    @property
    def seconds(self) -> float:
        """How long these calls and all runs of programs took."""
        return sum((seconds for _, seconds in self._saved()), self._seconds)

    def add(self, *rounds: Observation) -> None:
        """Count a pair, seen in these rounds."""
        self.tally.add(*rounds)
        whole = merge_rounds(rounds).annotation
        self.labels[whole.id] = whole.label
        for history in (seen.history for seen in rounds if seen.history is not None):
            for exchange in history.exchanges:
                self._add_call(exchange)
            for execution in history.executions:
                self.executions += 1
                self.executions_run += not execution.shared
                self._seconds += execution.seconds

    def _add_call(self, exchange: Exchange) -> None:
        # a call that failed was not measured
        seconds = exchange.seconds or 0.0
        if exchange.cached:
            self.answered[exchange.key] += 1
            self._first_answers.setdefault(exchange.key, (exchange.saved, seconds))
        else:
            self.made[exchange.key] += 1
            self.paid += exchange.usage
            self._seconds += seconds

    def _saved(self) -> list[tuple[Usage, float]]:
        """Return the usage and seconds of questions that the cache alone answered."""
        return [answer for key, answer in self._first_answers.items() if key not in self.made]


def read_work(folder: Path, ids: Collection[str], rounds: int) -> Work:
    """Return what a run holds of these pairs in its first rounds.

    Raises:
        RunFolderError: the folder is damaged.
    """
    work = Work()
    with load_run(folder) as view:
        for _pair, every in iterate_annotated_pairs(view, ids=frozenset(ids), with_history=True):
            if wanted := [seen for seen in every if seen.annotation.round < rounds]:
                work.add(*wanted)
    return work


def make_table(
    runs: Sequence[VariantRun],
    works: Sequence[Work],
    pairs: Sequence[Pair],
    gold: Mapping[str, int],
    *,
    base: Path,
    criterion: str,
    model: str,
    rounds: int,
    note: str | None,
    against: str | None,
) -> AblationTable:
    """Return the table of finished runs; folders are named relative to `base`. The rest is as in the table.

    Raises:
        ExtraMissing: NumPy or SciPy is not installed.
    """
    ids = {pair.id for pair in pairs}
    known = {pair_id: label for pair_id, label in gold.items() if pair_id in ids}
    labels = {run.variant.name: work.labels for run, work in zip(runs, works, strict=True)}
    tests = {} if against is None else _tests(labels, known, against)
    return AblationTable(
        pairs=len(ids),
        rounds=rounds,
        gold={str(label): sum(each == label for each in known.values()) for label in (1, 0)},
        unlabelled=len(ids) - len(known),
        criterion=criterion,
        model=model,
        note=note,
        against=against,
        calls=_calls(works),
        executions={
            "asked": sum(work.executions for work in works),
            "made": sum(work.executions_run for work in works),
        },
        paid=sum((work.paid for work in works), Usage()),
        rows=tuple(
            AblationRow(
                variant=run.variant.name,
                title=run.variant.title,
                paper=run.variant.paper,
                run=str(run.folder.relative_to(base)),
                **_quality(labels[run.variant.name], known),
                **_effort(work, len(ids), executes=run.executes),
                mcnemar=tests.get(run.variant.name),
            )
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
        "separate": sum(work.asked for work in works),
    }


def _quality(labels: Mapping[str, Label], gold: Mapping[str, int]) -> dict[str, Any]:
    confusion = Confusion(**Counter(confusion_cell(labels.get(pair_id), label) for pair_id, label in gold.items()))
    values: dict[str, Any] = dict(compute_measures(confusion))
    if values["accuracy"] is not None:
        interval = wilson_intervals(confusion)["accuracy"]
        values["accuracy"] = ShareWithInterval(value=values["accuracy"], **asdict(interval))
    return values


def _effort(work: Work, pairs: int, *, executes: bool) -> dict[str, Any]:
    tally, usage = work.tally, work.usage
    written, ran = tally.stages["programs"]["written"], tally.stages["executed"]["ran"]
    return {
        "agreement": tally.agreement,
        "rounds_alpha": tally.rounds_alpha,
        "executed_share": ran / written if executes and written else None,
        "cases_per_program": tally.cases_per_program,
        "tests_checked": tally.checked_tests,
        "tests_vacuous": tally.vacuous,
        "mean_strength": tally.mean_strength,
        "repairs_per_pair": tally.repairs / max(tally.annotations, 1),
        "calls_per_pair": work.calls / pairs,
        "tokens_per_pair": (usage.input_tokens + usage.output_tokens) / pairs,
        "cost_per_pair": None if usage.cost_usd is None else usage.cost_usd / pairs,
        "seconds_per_pair": work.seconds / pairs,
        "errors": tally.errors.total(),
    }


def _tests(labels: Mapping[str, Mapping[str, Label]], gold: Mapping[str, int], against: str) -> dict[str, McNemar]:
    """Return each other variant's test against this one."""
    right = {
        name: {pair_id for pair_id, label in gold.items() if given.get(pair_id) == label}
        for name, given in labels.items()
    }
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
            note=None if sum(each) >= LEAST_DISCORDANT else f"{plural(sum(each), 'discordant pair')}: {_TOO_FEW}",
        )
        for (name, each), p, adjusted in zip(counts.items(), p_values, adjust_holm(p_values), strict=True)
    }
