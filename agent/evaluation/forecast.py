"""Forecasts the calls, tokens, time and cost of a run.

The first prompt of an annotation (the screener's prompt, if there is a screener) is rendered exactly for a sample of
pairs. The cost per character of this prompt and the cost of all later calls are taken from a sample of annotations from
an earlier run. Without an earlier run, these costs are assumed. Prediction intervals come from a cluster bootstrap over
the queries in the sample of annotations, or from simulations in which the assumptions vary.
"""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from agent.config import Config
from agent.datasets import group_by_query
from agent.errors import UsageError
from agent.evaluation.costs import (
    ASSUMED_OUTCOMES,
    MIN_ANNOTATIONS,
    MIN_CACHED_TOKENS,
    SAMPLE_SIZE,
    AnnotationCost,
    Cost,
    Plan,
    RunSample,
    find_model_name,
    iterate_assumed_costs,
    iterate_recorded_costs,
    sample_run,
)
from agent.llm.base import Reply
from agent.llm.models import Models
from agent.pipeline.graph import Variant, collect_known_roles
from agent.pipeline.prompts import Prompts
from agent.runs.batches import check_batch_support
from agent.runs.job import PairRound
from agent.runs.store import files
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.run_view import RunView, load_run
from agent.types import Pair

# assumed if no replies from the model are available to measure this ratio, with a relative error of up to `_SPREAD`
CHARACTERS_PER_TOKEN = 4.0
_SPREAD = 0.2
# assumed proportion of pairs that the screener finds unclear
UNCLEAR = sum(ASSUMED_OUTCOMES) / len(ASSUMED_OUTCOMES)
_RESAMPLES = 1000
_TAIL = 0.05
TokenSource = Literal["earlier run", "reply cache", "assumption"]


class PredictionInterval(NamedTuple):
    """A predicted value and its 90% prediction interval."""

    value: float
    low: float
    high: float


class RoleForecast(NamedTuple):
    """The forecast for one role.

    `equal` is the number of input tokens in cacheable prefixes that prompts share with the previous prompt.
    """

    calls: float
    input_tokens: float
    output_tokens: float
    equal: float


@dataclass(frozen=True)
class Forecast:
    """A forecast for all annotations that a run plans. `cost_usd` is None if a price is unknown.

    `seconds` is the wall-clock time at the maximum concurrency that the settings allow. The upper bound of `seconds`
    assumes that the run keeps its initial concurrency. `seconds` is None if the run uses batches, because a batch may
    take up to a day.

    `rendered` is the number of rendered prompts. `sampled` is the number of annotations sampled from an earlier run, or
    0 if costs are assumed. `went_on` is the proportion of annotations that make calls after the first one, or None if
    the variant has no later roles. `in_cache` is the proportion of first calls whose replies are cached. These calls
    are free, but the forecast includes what they would cost without the cache. `equal_share` is the proportion of input
    tokens in shared prefixes. A server that caches all these prefixes saves `saved_usd`.
    """

    annotations: int
    calls: PredictionInterval
    input_tokens: PredictionInterval
    output_tokens: PredictionInterval
    seconds: PredictionInterval | None
    cost_usd: PredictionInterval | None
    roles: Mapping[str, RoleForecast]
    rendered: int
    sampled: int
    went_on: float | None
    tokens_from: TokenSource
    characters_per_token: float | None
    in_cache: float
    equal_share: float
    saved_usd: float | None


class _Prompt(NamedTuple):
    """The first prompt for a pair. `equal` is the length of the prefix that it shares with the previous prompt."""

    characters: int
    equal: int
    reply: Reply | None


class _Sums(NamedTuple):
    """The total costs of a set of annotations.

    `first_in` and `first_usd` are the number and the cost of the input tokens in first calls. `tokens_in` and `usd`
    exclude these tokens.
    """

    annotations: float
    characters: float
    first_in: float
    first_usd: float
    calls: float
    tokens_in: float
    tokens_out: float
    call_seconds: float
    other_seconds: float
    usd: float

    def scale_tokens(self, factor: float) -> _Sums:
        return self._replace(
            first_in=self.first_in * factor,
            first_usd=self.first_usd * factor,
            tokens_in=self.tokens_in * factor,
            tokens_out=self.tokens_out * factor,
            usd=self.usd * factor,
        )


def forecast(plan: Plan, earlier: RunSample | None = None, *, seed: int = 0, sample: int = SAMPLE_SIZE) -> Forecast:
    """Forecast the cost of a plan from an earlier run of the same variant, or from assumptions.

    Raises:
        PromptError: a prompt cannot be rendered.
        RunFolderError: the reply cache is damaged.
    """
    rng, total = random.Random(seed), len(plan.turns)
    indices = sorted(rng.sample(range(total), min(sample, total)))
    prompts = [_render_first_prompt(plan, index) for index in indices]
    cached_ratio = _characters_per_token(
        (prompt.characters, prompt.reply.usage.input_tokens) for prompt in prompts if prompt.reply is not None
    )
    if earlier is None:
        pairs = (plan.turns[index].pair for index in indices)
        costs = list(iterate_assumed_costs(plan, pairs, cached_ratio or CHARACTERS_PER_TOKEN))
        sums, width = [_sum_annotation(plan, cost) for cost in costs], 1.0
        resamples = _resample_assumed(plan, costs, sums, rng, draws=len(prompts))
    else:
        costs = list(iterate_recorded_costs(plan, earlier, cached_ratio or CHARACTERS_PER_TOKEN))
        sums, width = _sum_by_query(plan, costs), math.sqrt(1 + len(costs) / total)
        resamples = (_add_sums(rng.choices(sums, k=len(sums))) for _ in range(_RESAMPLES))
    source: TokenSource = "reply cache" if cached_ratio else "assumption"
    if any(cost.reported for cost in costs):
        source = "earlier run"
    if source == "assumption":
        resamples = (resample.scale_tokens(1 + rng.triangular(-_SPREAD, _SPREAD)) for resample in resamples)
    characters = [prompt.characters for prompt in prompts]
    mean, correction = fmean(characters), math.sqrt(1 - len(prompts) / total)
    resampled_totals = (
        _compute_totals(plan, resample, mean + (fmean(rng.choices(characters, k=len(prompts))) - mean) * correction)
        for resample in resamples
    )
    totals = _compute_totals(plan, _add_sums(sums), mean)
    predictions = [
        _predict(value, values, width)
        for value, values in zip(totals, zip(*resampled_totals, strict=True), strict=True)
    ]
    return _make_forecast(plan, predictions, costs, prompts, source, sampled=0 if earlier is None else len(costs))


def _render_first_prompt(plan: Plan, index: int) -> _Prompt:
    turns = plan.turns[max(index - 1, 0) : index + 1]
    prompts = [plan.render_messages(plan.first_role, turn.pair) for turn in turns]
    texts = ["".join(message.content for message in messages) for messages in prompts]
    equal = len(os.path.commonprefix(texts)) if len(texts) > 1 else 0  # noqa: RUF071 - these are not paths
    return _Prompt(len(texts[-1]), equal, plan.find_cached_reply(turns[-1], prompts[-1]))


def _sum_by_query(plan: Plan, costs: Iterable[AnnotationCost]) -> list[_Sums]:
    """Return the total costs for each query. Queries are the clusters of the bootstrap."""
    groups = defaultdict(list)
    for cost in costs:
        groups[cost.query].append(_sum_annotation(plan, cost))
    return [_add_sums(group) for group in groups.values()]


def _resample_assumed(
    plan: Plan, costs: Sequence[AnnotationCost], sums: Sequence[_Sums], rng: random.Random, *, draws: int
) -> Iterator[_Sums]:
    """Iterate over the totals of resamples with `draws` annotations each.

    The proportion of unclear pairs varies between 0 and `2 * UNCLEAR`.
    """
    unclear = [_has_later_calls(plan, cost) for cost in costs]
    odds = max(unclear.count(False), 1) / max(unclear.count(True), 1)
    for _ in range(_RESAMPLES):
        share = rng.triangular(0, 2 * UNCLEAR)
        weights = [share * odds if is_unclear else 1 - share for is_unclear in unclear]
        yield _add_sums(rng.choices(sums, weights, k=draws))


def _has_later_calls(plan: Plan, cost: AnnotationCost) -> bool:
    return any(name in plan.later_roles for name in cost.by_role)


def _characters_per_token(counts: Iterable[tuple[float, float]]) -> float | None:
    """Return the mean number of characters per token, or None if there are no tokens.

    Each tuple in `counts` contains a number of characters and a number of tokens.
    """
    characters, tokens = map(sum, zip((0.0, 0.0), *counts, strict=True))
    return characters / tokens if tokens else None


def _add_sums(values: Iterable[_Sums]) -> _Sums:
    return _Sums(*map(sum, zip(*values, strict=True)))


def _sum_annotation(plan: Plan, cost: AnnotationCost) -> _Sums:
    total = Cost.sum(cost.by_role.values())
    first = cost.by_role.get(plan.first_role.name, Cost())
    return _Sums(
        annotations=1.0,
        characters=cost.characters,
        first_in=first.input,
        first_usd=first.input_usd,
        calls=total.calls,
        tokens_in=total.input - first.input,
        tokens_out=total.output,
        call_seconds=total.seconds,
        other_seconds=cost.seconds,
        usd=total.input_usd + total.output_usd - first.input_usd,
    )


def _compute_totals(plan: Plan, sums: _Sums, characters: float) -> tuple[float, ...]:
    """Extrapolate the total costs of sampled annotations to all annotations that the run plans.

    `characters` is the mean length of the first prompts. Return the number of calls, input tokens and output tokens;
    the duration in seconds, at maximum and at minimum concurrency; and the cost in dollars.
    """
    total = len(plan.turns)
    scale, first_scale = total / sums.annotations, total * characters / sums.characters
    other_seconds = scale * sums.other_seconds
    fewest, most = plan.concurrency_range
    fast, slow = (
        max((scale * sums.call_seconds + other_seconds) / number, other_seconds / plan.config.runner.sandboxes)
        for number in (most, fewest)
    )
    tokens_in = scale * sums.tokens_in + first_scale * sums.first_in
    dollars = scale * sums.usd + first_scale * sums.first_usd
    return scale * sums.calls, tokens_in, scale * sums.tokens_out, fast, slow, dollars


def _predict(value: float, resampled: Iterable[float], width: float) -> PredictionInterval:
    values = sorted(resampled)
    low, high = values[round(_TAIL * len(values))], values[round((1 - _TAIL) * len(values)) - 1]
    return PredictionInterval(value, max(0.0, value + (low - value) * width), value + (high - value) * width)


def _make_forecast(
    plan: Plan,
    predictions: Sequence[PredictionInterval],
    costs: Sequence[AnnotationCost],
    prompts: Sequence[_Prompt],
    source: TokenSource,
    sampled: int,
) -> Forecast:
    first = plan.first_role.name
    ratio = _characters_per_token(
        (cost.characters, cost.by_role[first].input) for cost in costs if first in cost.by_role
    )
    by_role = _forecast_roles(plan, costs, prompts, ratio)
    equal = sum(role.equal for role in by_role.values())
    input_tokens = sum(role.input_tokens for role in by_role.values())
    saved = 0.0
    for name, role in by_role.items():
        tokens = round(role.equal)
        cached_price = plan.price_tokens(name, input_tokens=tokens, cached_input_tokens=tokens)
        saved += plan.price_tokens(name, input_tokens=tokens) - cached_price
    calls, tokens_in, tokens_out, fast, slow, dollars = predictions
    return Forecast(
        annotations=len(plan.turns),
        calls=calls,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        seconds=None if plan.config.runner.batch else fast._replace(high=slow.high),
        cost_usd=None if math.isnan(dollars.value) else dollars,
        roles=by_role,
        rendered=len(prompts),
        sampled=sampled,
        went_on=fmean(_has_later_calls(plan, cost) for cost in costs) if plan.later_roles else None,
        tokens_from=source,
        characters_per_token=ratio,
        in_cache=fmean(prompt.reply is not None for prompt in prompts),
        equal_share=equal / input_tokens if input_tokens else 0.0,
        saved_usd=None if math.isnan(saved) else saved,
    )


def _forecast_roles(
    plan: Plan, costs: Sequence[AnnotationCost], prompts: Sequence[_Prompt], ratio: float | None
) -> dict[str, RoleForecast]:
    scale = len(plan.turns) / len(costs)
    characters = fmean(prompt.characters for prompt in prompts)
    by_role = {}
    for name in plan.roles:
        role_costs = [cost.by_role[name] for cost in costs if name in cost.by_role]
        if not role_costs:
            continue
        total = Cost.sum(role_costs)
        tokens_in, equal = scale * total.input, scale * total.equal
        if name == plan.first_role.name:
            tokens_in *= characters / fmean(cost.characters for cost in costs)
            if ratio:
                cacheable = sum(prompt.equal for prompt in prompts if prompt.equal / ratio >= MIN_CACHED_TOKENS)
                equal = tokens_in * cacheable / (characters * len(prompts))
        by_role[name] = RoleForecast(scale * total.calls, tokens_in, scale * total.output, equal)
    return by_role


@dataclass(frozen=True)
class RunForecast:
    """A forecast, the plan for the run, the run that the forecast is based on (`like`), and warnings (`notes`)."""

    plan: Plan
    forecast: Forecast
    like: Path | None
    notes: tuple[str, ...]


def forecast_run(
    pairs: Sequence[Pair],
    variant: Variant,
    models: Models,
    config: Config,
    *,
    out: Path,
    cache: Path,
    prompts: Path | None = None,
    like: Path | None = None,
    retry_errors: bool = False,
) -> RunForecast | None:
    """Forecast the cost of the remaining annotations of the run in `out`, or return None if no annotations remain.

    The forecast is based on the run `like`. Without `like`, it is based on the finished annotations in `out`, or, if
    there are too few of these, on assumptions.

    Raises:
        UsageError: the run in `out` or `like` has another variant, the run in `out` has another model, `like` has too
            few annotations, or a model does not support batches although the settings request them.
    """
    if config.runner.batch:
        check_batch_support(config.runner, models, out, cache)
    with ExitStack() as stack:
        current = stack.enter_context(load_run(out)) if (out / files.MANIFEST).is_file() else None
        if current is not None:
            _check_variant(current, variant, "Choose another folder (-o).")
            if current.manifest["identity"].get("model") != models.identity():
                raise UsageError(
                    f"{out}: the run's model or its parameters differ from {models.join_names()}. "
                    f"Choose another folder (-o). To base the forecast on this run, pass --like {out}."
                )
        all_turns = (
            PairRound(pair, number) for pair in group_by_query(pairs) for number in range(config.runner.rounds)
        )
        turns = [
            turn
            for turn in all_turns
            if current is None or not current.index.is_finished(turn.key, retry_errors=retry_errors)
        ]
        if not turns:
            return None
        replies = stack.enter_context(SqliteReplyCache(cache, read_only=True)) if cache.is_file() else None
        plan = Plan(turns, variant, models, Prompts(prompts, collect_known_roles()), config, replies)
        if like is not None:
            earlier: RunSample | None = _sample_like(like, variant)
        else:
            earlier = None if current is None else sample_run(current)
        source = like or (None if earlier is None else out)
        notes = () if earlier is None or like is None else tuple(_warn_other_models(plan, earlier, like))
        return RunForecast(plan, forecast(plan, earlier), source, notes)


def _sample_like(like: Path, variant: Variant) -> RunSample:
    with load_run(like) as view:
        _check_variant(view, variant, f"Pass a run of the {variant.name} variant, or omit --like.")
        sample = sample_run(view)
    if sample is None:
        raise UsageError(
            f"{like}: --like requires a run with at least {MIN_ANNOTATIONS} annotations and a {files.EVIDENCE} file."
        )
    return sample


def _check_variant(view: RunView, variant: Variant, remedy: str) -> None:
    recorded = view.manifest["identity"].get("variant")
    if not isinstance(recorded, dict) or (recorded.get("start"), recorded.get("nodes")) != (
        variant.start,
        variant.nodes,
    ):
        name = recorded.get("name") if isinstance(recorded, dict) else None
        raise UsageError(f"{view.path}: the run's variant is {name}, not {variant.name}. {remedy}")


def _warn_other_models(plan: Plan, sample: RunSample, like: Path) -> Iterator[str]:
    """Yield a warning if the earlier run used another model for any role."""
    identity = plan.models.identity()
    differing = [role for role in plan.roles if find_model_name(sample.model, role) != find_model_name(identity, role)]
    if differing:
        names = dict.fromkeys(f"{find_model_name(sample.model, role)}" for role in differing)
        yield (
            f"{like} used {', '.join(names)}, not {plan.models.join_names()}. The intervals do not account for "
            "differences in the length of replies or in the proportion of unclear pairs."
        )
