"""What a run will take, before it is paid for.

The first question of each pair (the screener's, where there is one) is rendered as the run will ask it. What it costs
by character, and all that follows it, is taken from a sample of an earlier run's annotations, or else assumed.
Intervals are a bootstrap over the queries of that sample, widened for what the pairs to come differ by chance.
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

from agent.batches import check_batch_support
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
from agent.graph import Variant, collect_known_roles
from agent.job import Turn
from agent.llm.base import Reply
from agent.llm.models import Models
from agent.prompts import Prompts
from agent.store import files
from agent.store.cache import SqliteReplyCache
from agent.store.run_view import RunView, load_run
from agent.types import Pair

# assumed where no reply of the model said otherwise, give or take `_SPREAD`
CHARACTERS_PER_TOKEN = 4.0
_SPREAD = 0.2
# assumed share of pairs that the screener finds unclear
UNCLEAR = sum(ASSUMED_OUTCOMES) / len(ASSUMED_OUTCOMES)
_RESAMPLES = 1000
_TAIL = 0.05
TokenSource = Literal["earlier run", "reply cache", "assumption"]


class PredictionInterval(NamedTuple):
    """A number, and between what it is in 9 of 10 cases."""

    value: float
    low: float
    high: float


class RoleForecast(NamedTuple):
    """What a role will take; `equal` input tokens are in beginnings that the call before had too, and long enough."""

    calls: float
    input_tokens: float
    output_tokens: float
    equal: float


@dataclass(frozen=True)
class Forecast:
    """What all turns of a plan will take; `cost_usd` is None where a price is unknown.

    `seconds` are by the clock: expected with as many calls in flight as the settings allow, at most with those that a
    run begins with. None by batch, where each question may take up to a day.
    `rendered` prompts were looked at, `sampled` annotations of an earlier run (0: it was assumed what they take).
    `went_on` is the share of those with questions after the first; None where the variant has no such. `in_cache` is
    the share of first questions whose reply is in the cache: it costs nothing, and is counted all the same.
    `equal_share` of the input tokens are in equal beginnings; a server that keeps all of them saves `saved_usd`.
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
    """A first prompt to come: its characters, those that the one before it began with, too, and its cached reply."""

    characters: int
    equal: int
    reply: Reply | None


class _Sums(NamedTuple):
    """What annotations took: their first question (`first_…`), and all that followed it. Times are in seconds."""

    annotations: float
    characters: float
    first_in: float
    first_usd: float
    calls: float
    tokens_in: float
    tokens_out: float
    asking: float
    running: float
    usd: float

    def with_tokens(self, factor: float) -> _Sums:
        """Return what is taken where a text has so many times the tokens."""
        return self._replace(
            first_in=self.first_in * factor,
            first_usd=self.first_usd * factor,
            tokens_in=self.tokens_in * factor,
            tokens_out=self.tokens_out * factor,
            usd=self.usd * factor,
        )


def forecast(plan: Plan, before: RunSample | None = None, *, seed: int = 0, sample: int = SAMPLE_SIZE) -> Forecast:
    """Return what a plan will take: by an earlier run of the same variant, or by assumption.

    Raises:
        PromptError: a prompt does not render.
        RunFolderError: the reply cache is damaged.
    """
    rng, total = random.Random(seed), len(plan.turns)
    places = sorted(rng.sample(range(total), min(sample, total)))
    prompts = [_prompt(plan, place) for place in places]
    by_cache = _ratio((each.characters, each.reply.usage.input_tokens) for each in prompts if each.reply is not None)
    if before is None:
        pairs = (plan.turns[place].pair for place in places)
        taken = list(iterate_assumed_costs(plan, pairs, by_cache or CHARACTERS_PER_TOKEN))
        sums, width = [_summed(plan, each) for each in taken], 1.0
        drawn = _by_assumption(plan, taken, sums, rng, draws=len(prompts))
    else:
        taken = list(iterate_recorded_costs(plan, before, by_cache or CHARACTERS_PER_TOKEN))
        sums, width = _by_query(plan, taken), math.sqrt(1 + len(taken) / total)
        drawn = (_added(rng.choices(sums, k=len(sums))) for _ in range(_RESAMPLES))
    source: TokenSource = "reply cache" if by_cache else "assumption"
    if any(each.reported for each in taken):
        source = "earlier run"
    if source == "assumption":
        drawn = (each.with_tokens(1 + rng.triangular(-_SPREAD, _SPREAD)) for each in drawn)
    characters = [each.characters for each in prompts]
    mean, narrow = fmean(characters), math.sqrt(1 - len(prompts) / total)
    resampled = (
        _totals(plan, each, mean + (fmean(rng.choices(characters, k=len(prompts))) - mean) * narrow) for each in drawn
    )
    expected = [
        _expected(value, values, width)
        for value, values in zip(_totals(plan, _added(sums), mean), zip(*resampled, strict=True), strict=True)
    ]
    return _forecast(plan, expected, taken, prompts, source, sampled=0 if before is None else len(taken))


def _prompt(plan: Plan, place: int) -> _Prompt:
    turns = plan.turns[max(place - 1, 0) : place + 1]
    prompts = [plan.render_messages(plan.first_role, turn.pair) for turn in turns]
    texts = ["".join(message.content for message in messages) for messages in prompts]
    equal = len(os.path.commonprefix(texts)) if len(texts) > 1 else 0  # noqa: RUF071 - they are no paths
    return _Prompt(len(texts[-1]), equal, plan.find_cached_reply(turns[-1], prompts[-1]))


def _by_query(plan: Plan, taken: Iterable[AnnotationCost]) -> list[_Sums]:
    """Return the sums of what stands or falls together: the pairs of a query."""
    groups = defaultdict(list)
    for each in taken:
        groups[each.query].append(_summed(plan, each))
    return [_added(group) for group in groups.values()]


def _by_assumption(
    plan: Plan, taken: Sequence[AnnotationCost], sums: Sequence[_Sums], rng: random.Random, *, draws: int
) -> Iterator[_Sums]:
    """Yield sums over so many annotations. Each time, from none to twice the assumed share of pairs are unclear."""
    went_on = [_went_on(plan, each) for each in taken]
    settled = max(went_on.count(False), 1) / max(went_on.count(True), 1)
    for _ in range(_RESAMPLES):
        share = rng.triangular(0, 2 * UNCLEAR)
        weights = [share * settled if unclear else 1 - share for unclear in went_on]
        yield _added(rng.choices(sums, weights, k=draws))


def _went_on(plan: Plan, taken: AnnotationCost) -> bool:
    return any(name in plan.later_roles for name in taken.by_role)


def _ratio(seen: Iterable[tuple[float, float]]) -> float | None:
    """Return characters per token, None where no tokens are known."""
    characters, tokens = map(sum, zip((0.0, 0.0), *seen, strict=True))
    return characters / tokens if tokens else None


def _added(values: Iterable[_Sums]) -> _Sums:
    return _Sums(*map(sum, zip(*values, strict=True)))


def _summed(plan: Plan, taken: AnnotationCost) -> _Sums:
    asked = Cost.sum(taken.by_role.values())
    first = taken.by_role.get(plan.first_role.name, Cost())
    return _Sums(
        annotations=1.0,
        characters=taken.characters,
        first_in=first.input,
        first_usd=first.input_usd,
        calls=asked.calls,
        tokens_in=asked.input - first.input,
        tokens_out=asked.output,
        asking=asked.seconds,
        running=taken.seconds,
        usd=asked.input_usd + asked.output_usd - first.input_usd,
    )


def _totals(plan: Plan, sums: _Sums, characters: float) -> tuple[float, ...]:
    """Return what all turns take, where first prompts have so many characters in the mean.

    These are calls, tokens in and out, seconds by the clock with the most calls in flight and with the fewest, dollars.
    """
    total = len(plan.turns)
    scale, longer = total / sums.annotations, total * characters / sums.characters
    running = scale * sums.running
    fewest, most = plan.concurrency_range
    fast, slow = (
        max((scale * sums.asking + running) / number, running / plan.config.runner.sandboxes)
        for number in (most, fewest)
    )
    tokens_in, dollars = scale * sums.tokens_in + longer * sums.first_in, scale * sums.usd + longer * sums.first_usd
    return scale * sums.calls, tokens_in, scale * sums.tokens_out, fast, slow, dollars


def _expected(value: float, drawn: Iterable[float], width: float) -> PredictionInterval:
    ordered = sorted(drawn)
    low, high = ordered[round(_TAIL * len(ordered))], ordered[round((1 - _TAIL) * len(ordered)) - 1]
    return PredictionInterval(value, max(0.0, value + (low - value) * width), value + (high - value) * width)


def _forecast(
    plan: Plan,
    expected: Sequence[PredictionInterval],
    taken: Sequence[AnnotationCost],
    prompts: Sequence[_Prompt],
    source: TokenSource,
    sampled: int,
) -> Forecast:
    first = plan.first_role.name
    ratio = _ratio((each.characters, each.by_role[first].input) for each in taken if first in each.by_role)
    by_role = _roles(plan, taken, prompts, ratio)
    equal, asked = (sum(getattr(role, what) for role in by_role.values()) for what in ("equal", "input_tokens"))
    saved = 0.0
    for name, role in by_role.items():
        tokens = round(role.equal)
        kept = plan.price_tokens(name, input_tokens=tokens, cached_input_tokens=tokens)
        saved += plan.price_tokens(name, input_tokens=tokens) - kept
    calls, tokens_in, tokens_out, fast, slow, dollars = expected
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
        went_on=fmean(_went_on(plan, each) for each in taken) if plan.later_roles else None,
        tokens_from=source,
        characters_per_token=ratio,
        in_cache=fmean(each.reply is not None for each in prompts),
        equal_share=equal / asked if asked else 0.0,
        saved_usd=None if math.isnan(saved) else saved,
    )


def _roles(
    plan: Plan, taken: Sequence[AnnotationCost], prompts: Sequence[_Prompt], ratio: float | None
) -> dict[str, RoleForecast]:
    """Return what each role that was asked in will take."""
    scale = len(plan.turns) / len(taken)
    characters = fmean(each.characters for each in prompts)
    by_role = {}
    for name in plan.roles:
        asked = [each.by_role[name] for each in taken if name in each.by_role]
        if not asked:
            continue
        cost = Cost.sum(asked)
        tokens_in, equal = scale * cost.input, scale * cost.equal
        if name == plan.first_role.name:
            tokens_in *= characters / fmean(each.characters for each in taken)
            if ratio:
                kept = sum(each.equal for each in prompts if each.equal / ratio >= MIN_CACHED_TOKENS)
                equal = tokens_in * kept / (characters * len(prompts))
        by_role[name] = RoleForecast(scale * cost.calls, tokens_in, scale * cost.output, equal)
    return by_role


@dataclass(frozen=True)
class RunForecast:
    """What is to be done, what it will take, and the run that the forecast goes by. `notes` are warnings in words."""

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
    """Forecast what remains of the run in `out`, by the run `like` or what is done already; None if nothing remains.

    Raises:
        UsageError: one of the runs is of another variant, `like` is too small, or `out` is of another model; or the
            models have no batches and are to be asked by them.
    """
    if config.runner.batch:
        check_batch_support(config.runner, models, out, cache)
    with ExitStack() as stack:
        begun = stack.enter_context(load_run(out)) if (out / files.MANIFEST).is_file() else None
        if begun is not None:
            _check_variant(begun, variant, "choose another folder (-o)")
            if begun.manifest["identity"].get("model") != models.identity():
                cause = f"is a run of another model, or of other parameters, than {models.join_names()}"
                raise UsageError(f"{out}: {cause}; choose another folder (-o), and go by this one with --like {out}")
        every = (Turn(pair, number) for pair in group_by_query(pairs) for number in range(config.runner.rounds))
        turns = [
            turn for turn in every if begun is None or not begun.index.is_finished(turn.key, retry_errors=retry_errors)
        ]
        if not turns:
            return None
        replies = stack.enter_context(SqliteReplyCache(cache, read_only=True)) if cache.is_file() else None
        plan = Plan(turns, variant, models, Prompts(prompts, collect_known_roles()), config, replies)
        if like is not None:
            before: RunSample | None = _read_like(like, variant)
        else:
            before = None if begun is None else sample_run(begun)
        source = like or (None if before is None else out)
        notes = () if before is None or like is None else tuple(_other_models(plan, before, like))
        return RunForecast(plan, forecast(plan, before), source, notes)


def _read_like(like: Path, variant: Variant) -> RunSample:
    with load_run(like) as view:
        _check_variant(view, variant, "give a run of that one, or leave --like out")
        before = sample_run(view)
    if before is None:
        raise UsageError(f"{like}: to go by a run takes {MIN_ANNOTATIONS} annotations of it, and its {files.EVIDENCE}")
    return before


def _check_variant(view: RunView, variant: Variant, remedy: str) -> None:
    made = view.manifest["identity"].get("variant")
    if not isinstance(made, dict) or (made.get("start"), made.get("nodes")) != (variant.start, variant.nodes):
        name = made.get("name") if isinstance(made, dict) else None
        raise UsageError(f"{view.path}: is a run of the variant {name}, not {variant.name}; {remedy}")


def _other_models(plan: Plan, before: RunSample, like: Path) -> Iterator[str]:
    """Yield a warning where the earlier run asked other models in some of the roles."""
    identity = plan.models.identity()
    differing = [role for role in plan.roles if find_model_name(before.model, role) != find_model_name(identity, role)]
    if differing:
        names = dict.fromkeys(f"{find_model_name(before.model, role)}" for role in differing)
        yield (
            f"{like} asked {', '.join(names)}, not {plan.models.join_names()}. The intervals do not include that "
            "replies may be longer or shorter, and other pairs unclear"
        )
