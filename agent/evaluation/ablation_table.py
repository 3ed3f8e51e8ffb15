"""The ablation table (CoSQA+ paper, Table VI): scores and costs of each variant, and paired significance tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from agent.evaluation.ablation import VariantRun
from agent.evaluation.measures import Confusion, compute_measures, confusion_cell, wilson_intervals
from agent.evaluation.statistics import MIN_DISCORDANT, adjust_holm, mcnemar_exact
from agent.evaluation.tally import Observation, Tally, iterate_annotated_pairs, merge_rounds
from agent.pipeline.history import ModelCall
from agent.runs.store.annotations import Label
from agent.runs.store.run_view import load_run
from agent.text import plural
from agent.types import Frozen, Pair, Usage


class ProportionWithInterval(Frozen):
    """A proportion of pairs with its Wilson 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class McNemar(Frozen):
    """An exact McNemar test that compares two variants on the pairs with a gold label. Null labels count as wrong.

    `p_holm` is the p-value adjusted for all tests in the table. `note` is a warning if there are too few discordant
    pairs to reach p < .05, and None otherwise.
    """

    against: str
    only_this_right: int
    only_other_right: int
    p: float
    p_holm: float
    note: str | None


class AblationRow(Frozen):
    """The row for one variant.

    The fields from `accuracy` to `alpha` are the measures that `agent score` computes from the majority labels.
    Undefined measures are None. `agreement` is the mean pairwise agreement between rounds, and `rounds_alpha` is
    Krippendorff's alpha between rounds.

    `executed_share` is the proportion of generated programs that ran (CoSQA+ paper, Table II). It is None if the
    variant generated no programs or does not execute them. `cases_per_program` is the mean number of test cases in
    programs that reached a sandbox. `repairs_per_pair` is the mean number of repairs for a pair in one round.

    The fields from `calls_per_pair` to `seconds_per_pair` are the standalone costs of a pair (see `VariantResults`),
    summed over the rounds of the pair. Token counts include input and output.
    """

    variant: str
    title: str
    paper: str | None
    run: str
    accuracy: ProportionWithInterval | None
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
    repairs_per_pair: float
    calls_per_pair: float
    tokens_per_pair: float
    cost_per_pair: float | None
    seconds_per_pair: float
    errors: int
    mcnemar: McNemar | None


class AblationTable(Frozen):
    """Results of all variants on the same pairs.

    `gold` counts the gold labels by class. `unlabelled` is the number of pairs without a gold label. `against` is the
    reference variant for the paired tests, or None. `paid` is the usage that was actually paid for.

    `calls` contains the number of calls of each kind:

    - `requested`: all requested calls
    - `executed`: requested calls that were sent to a model
    - `shared`: requested calls that reused the reply to a call that was sent to a model
    - `cached_before`: requested calls that reused a reply cached by an earlier run
    - `if_run_alone`: calls that would be made if each variant ran separately with an empty cache

    `executions` contains the number of requested executions (`requested`) and of executions in a sandbox (`executed`).
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
        """Number of failed annotations across all variants."""
        return sum(row.errors for row in self.rows)


@dataclass
class VariantResults:
    """The majority labels and the standalone cost of a variant.

    The standalone cost is the cost of a separate run with an empty cache. `calls`, `usage` and `seconds` therefore
    include replies and executions that another variant or an earlier run paid for, at their original cost and duration.
    A reply that several snippets of the same query share is counted once. A shared execution is counted each time it is
    used. Executions include sentinel runs. `seconds` excludes waiting times.

    `model_calls` and `cached_calls` count calls by cache key. `paid` is the usage that was actually paid for.
    """

    tally: Tally = field(default_factory=Tally)
    labels: dict[str, Label] = field(default_factory=dict)
    model_calls: Counter[str] = field(default_factory=Counter)
    cached_calls: Counter[str] = field(default_factory=Counter)
    paid: Usage = Usage()
    executions: int = 0
    executions_run: int = 0
    _seconds: float = 0.0
    _cached_costs: dict[str, tuple[Usage, float]] = field(default_factory=dict)

    @property
    def distinct_calls(self) -> int:
        """Number of calls that a separate run with an empty cache would make."""
        return len(self.model_calls.keys() | self.cached_calls.keys())

    @property
    def calls(self) -> int:
        """Number of model calls that the variant requested. Calls that share a cached reply are counted once."""
        return self.model_calls.total() + len(self._list_cached_costs())

    @property
    def usage(self) -> Usage:
        """Tokens and cost of the calls that `calls` counts."""
        return sum((usage for usage, _ in self._list_cached_costs()), self.paid)

    @property
    def seconds(self) -> float:
        """Total duration of all executions and of the calls that `calls` counts."""
        return sum((seconds for _, seconds in self._list_cached_costs()), self._seconds)

    def add(self, *rounds: Observation) -> None:
        """Add the results of a pair. `rounds` contains all rounds of the pair."""
        self.tally.add(*rounds)
        merged = merge_rounds(rounds).annotation
        self.labels[merged.id] = merged.label
        for history in (observation.history for observation in rounds if observation.history is not None):
            for model_call in history.model_calls:
                self._add_call(model_call)
            for execution in history.executions:
                self.executions += 1
                self.executions_run += not execution.shared
                self._seconds += execution.seconds

    def _add_call(self, model_call: ModelCall) -> None:
        # failed calls have no duration
        seconds = model_call.seconds or 0.0
        if model_call.cached:
            self.cached_calls[model_call.key] += 1
            self._cached_costs.setdefault(model_call.key, (model_call.saved, seconds))
        else:
            self.model_calls[model_call.key] += 1
            self.paid += model_call.usage
            self._seconds += seconds

    def _list_cached_costs(self) -> list[tuple[Usage, float]]:
        """Return the original usage and duration of each call for which the variant used only cached replies."""
        return [cost for key, cost in self._cached_costs.items() if key not in self.model_calls]


def read_results(folder: Path, ids: Collection[str], rounds: int) -> VariantResults:
    """Read the results for the pairs in `ids` from a variant's run folder, using only the first `rounds` rounds.

    Raises:
        RunFolderError: the run folder is damaged.
    """
    result = VariantResults()
    with load_run(folder) as view:
        for _pair, all_rounds in iterate_annotated_pairs(view, ids=frozenset(ids), with_history=True):
            if observations := [observation for observation in all_rounds if observation.annotation.round < rounds]:
                result.add(*observations)
    return result


def make_table(
    runs: Sequence[VariantRun],
    results: Sequence[VariantResults],
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
    """Build the table from finished runs. The paths of run folders are stored relative to `base`.

    Raises:
        ExtraMissing: NumPy or SciPy is not installed.
    """
    ids = {pair.id for pair in pairs}
    gold = {pair_id: label for pair_id, label in gold.items() if pair_id in ids}
    labels = {run.variant.name: result.labels for run, result in zip(runs, results, strict=True)}
    tests = {} if against is None else _compare_variants(labels, gold, against)
    return AblationTable(
        pairs=len(ids),
        rounds=rounds,
        gold={str(label): list(gold.values()).count(label) for label in (1, 0)},
        unlabelled=len(ids) - len(gold),
        criterion=criterion,
        model=model,
        note=note,
        against=against,
        calls=_count_calls(results),
        executions={
            "requested": sum(result.executions for result in results),
            "executed": sum(result.executions_run for result in results),
        },
        paid=sum((result.paid for result in results), Usage()),
        rows=tuple(
            AblationRow(
                variant=run.variant.name,
                title=run.variant.title,
                paper=run.variant.paper,
                run=str(run.folder.relative_to(base)),
                **_measure_labels(labels[run.variant.name], gold),
                **_measure_results(result, len(ids), executes=run.executes),
                mcnemar=tests.get(run.variant.name),
            )
            for run, result in zip(runs, results, strict=True)
        ),
    )


def _count_calls(results: Sequence[VariantResults]) -> dict[str, int]:
    model_calls = sum((result.model_calls for result in results), Counter[str]())
    cached_calls = sum((result.cached_calls for result in results), Counter[str]())
    shared = sum(count for key, count in cached_calls.items() if key in model_calls)
    return {
        "requested": model_calls.total() + cached_calls.total(),
        "executed": model_calls.total(),
        "shared": shared,
        "cached_before": cached_calls.total() - shared,
        "if_run_alone": sum(result.distinct_calls for result in results),
    }


def _measure_labels(labels: Mapping[str, Label], gold: Mapping[str, int]) -> dict[str, Any]:
    confusion = Confusion(**Counter(confusion_cell(labels.get(pair_id), label) for pair_id, label in gold.items()))
    values: dict[str, Any] = dict(compute_measures(confusion))
    if values["accuracy"] is not None:
        interval = wilson_intervals(confusion)["accuracy"]
        values["accuracy"] = ProportionWithInterval(value=values["accuracy"], **asdict(interval))
    return values


def _measure_results(result: VariantResults, pairs: int, *, executes: bool) -> dict[str, Any]:
    tally, usage = result.tally, result.usage
    generated, executed = tally.stages["programs"]["written"], tally.stages["executed"]["ran"]
    return {
        "agreement": tally.agreement,
        "rounds_alpha": tally.rounds_alpha,
        "executed_share": executed / generated if executes and generated else None,
        "cases_per_program": tally.cases_per_program,
        "repairs_per_pair": tally.repairs / max(tally.annotations, 1),
        "calls_per_pair": result.calls / pairs,
        "tokens_per_pair": (usage.input_tokens + usage.output_tokens) / pairs,
        "cost_per_pair": None if usage.cost_usd is None else usage.cost_usd / pairs,
        "seconds_per_pair": result.seconds / pairs,
        "errors": tally.errors.total(),
    }


def _compare_variants(
    labels: Mapping[str, Mapping[str, Label]], gold: Mapping[str, int], against: str
) -> dict[str, McNemar]:
    correct = {
        name: {pair_id for pair_id, label in gold.items() if predicted.get(pair_id) == label}
        for name, predicted in labels.items()
    }
    reference = correct.pop(against)
    counts = {name: (len(pairs - reference), len(reference - pairs)) for name, pairs in correct.items()}
    p_values = [mcnemar_exact(*discordant) for discordant in counts.values()]
    adjusted = adjust_holm(p_values)
    return {
        name: McNemar(
            against=against,
            only_this_right=only_this,
            only_other_right=only_other,
            p=p,
            p_holm=p_holm,
            note=_warn_few_pairs(only_this + only_other),
        )
        for (name, (only_this, only_other)), p, p_holm in zip(counts.items(), p_values, adjusted, strict=True)
    }


def _warn_few_pairs(discordant: int) -> str | None:
    if discordant >= MIN_DISCORDANT:
        return None
    return f"{plural(discordant, 'discordant pair')}; p < .05 requires at least {MIN_DISCORDANT}"
