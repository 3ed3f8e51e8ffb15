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
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from agent.evaluation.costs import CACHED_FROM, OUTCOMES, SAMPLE, Earlier, Plan, Taken, assumed, recorded
from agent.llm.base import Reply
from agent.llm.limits import START

CHARACTERS_PER_TOKEN = 4.0
"""Assumed where no reply of the model said otherwise, give or take `_SPREAD`."""
_SPREAD = 0.2
UNCLEAR = sum(OUTCOMES) / len(OUTCOMES)
"""Assumed share of pairs that the screener finds unclear."""
_RESAMPLES = 1000
_TAIL = 0.05
_Sums = tuple[float, ...]
Source = Literal["earlier run", "reply cache", "assumption"]


class Expected(NamedTuple):
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
    """What all turns of a plan will take; `seconds` by the clock, `cost_usd` None where a price is unknown.

    `rendered` prompts were looked at, `sampled` annotations of an earlier run (0: it was assumed what they take).
    `went_on` is the share of those with questions after the first; None where the variant has no such. `in_cache` is
    the share of first questions whose reply is in the cache: it costs nothing, and is counted all the same.
    `equal_share` of the input tokens are in equal beginnings; a server that keeps all of them saves `saved_usd`.
    """

    annotations: int
    calls: Expected
    input_tokens: Expected
    output_tokens: Expected
    seconds: Expected
    cost_usd: Expected | None
    roles: Mapping[str, RoleForecast]
    rendered: int
    sampled: int
    went_on: float | None
    tokens_from: Source
    characters_per_token: float | None
    in_cache: float
    equal_share: float
    saved_usd: float | None


class _Ahead(NamedTuple):
    """A first prompt to come: its characters, those that the one before it began with, too, and its cached reply."""

    characters: int
    equal: int
    reply: Reply | None


def forecast(plan: Plan, before: Earlier | None = None, *, seed: int = 0, sample: int = SAMPLE) -> Forecast:
    """Return what a plan will take: by an earlier run of the same variant, or by assumption.

    Raises:
        PromptError: a prompt does not render.
        RunFolderError: the reply cache is damaged.
    """
    rng, total = random.Random(seed), len(plan.turns)
    places = sorted(rng.sample(range(total), min(sample, total)))
    ahead = [_ahead(plan, place) for place in places]
    by_cache = _ratio((each.characters, each.reply.usage.input_tokens) for each in ahead if each.reply is not None)
    if before is None:
        pairs = (plan.turns[place].pair for place in places)
        taken = list(assumed(plan, pairs, by_cache or CHARACTERS_PER_TOKEN))
        sums, width = [_summed(plan, each) for each in taken], 1.0
        drawn = _by_assumption(plan, taken, sums, rng, draws=len(ahead), spread=0.0 if by_cache else _SPREAD)
    else:
        taken = list(recorded(plan, before, by_cache or CHARACTERS_PER_TOKEN))
        sums, width = _by_query(plan, taken), math.sqrt(1 + len(taken) / total)
        drawn = (_added(rng.choices(sums, k=len(sums))) for _ in range(_RESAMPLES))
    characters = [each.characters for each in ahead]
    mean, narrow = fmean(characters), math.sqrt(1 - len(ahead) / total)
    resampled = (
        _totals(plan, each, mean + (fmean(rng.choices(characters, k=len(ahead))) - mean) * narrow) for each in drawn
    )
    expected = [
        _expected(value, values, width)
        for value, values in zip(_totals(plan, _added(sums), mean), zip(*resampled, strict=True), strict=True)
    ]
    source: Source = "reply cache" if by_cache else "assumption"
    if any(each.reported for each in taken):
        source = "earlier run"
    return _forecast(plan, expected, taken, ahead, source, sampled=0 if before is None else len(taken))


def _ahead(plan: Plan, place: int) -> _Ahead:
    turns = plan.turns[max(place - 1, 0) : place + 1]
    prompts = [plan.messages(plan.first, turn.pair) for turn in turns]
    texts = ["".join(message.content for message in messages) for messages in prompts]
    equal = len(os.path.commonprefix(texts)) if len(texts) > 1 else 0  # noqa: RUF071 - they are no paths
    return _Ahead(len(texts[-1]), equal, plan.reply(turns[-1], prompts[-1]))


def _by_query(plan: Plan, taken: Iterable[Taken]) -> list[_Sums]:
    """Return the sums of what stands or falls together: the pairs of a query."""
    groups = defaultdict(list)
    for each in taken:
        groups[each.query].append(_summed(plan, each))
    return [_added(group) for group in groups.values()]


def _by_assumption(
    plan: Plan, taken: Sequence[Taken], sums: Sequence[_Sums], rng: random.Random, *, draws: int, spread: float
) -> Iterator[_Sums]:
    """Yield sums over so many annotations, by other assumptions each time.

    Of unclear pairs there are from none to twice the share that is assumed; tokens are more or less by `spread`.
    """
    went_on = [any(name in plan.later for name in each.by_role) for each in taken]
    settled = max(went_on.count(False), 1) / max(went_on.count(True), 1)
    for _ in range(_RESAMPLES):
        share = rng.triangular(0, 2 * UNCLEAR)
        weights = [share * settled if unclear else 1 - share for unclear in went_on]
        tokens = 1 + rng.triangular(-spread, spread)
        drawn = _added(rng.choices(sums, weights, k=draws))
        count, characters, first_in, first_usd, calls, tokens_in, tokens_out, seconds, usd = drawn
        yield (
            *(count, characters, first_in * tokens, first_usd * tokens),
            *(calls, tokens_in * tokens, tokens_out * tokens, seconds, usd * tokens),
        )


def _ratio(seen: Iterable[tuple[float, float]]) -> float | None:
    """Return characters per token, None where no tokens are known."""
    characters, tokens = _added(seen) or (0.0, 0.0)
    return characters / tokens if tokens else None


def _added(values: Iterable[_Sums]) -> _Sums:
    return tuple(map(sum, zip(*values, strict=True)))


def _summed(plan: Plan, taken: Taken) -> _Sums:
    """Return what is added up: one, the first prompt's characters, tokens and dollars, and what `_totals` has."""
    asked, first = taken.by_role.values(), taken.by_role.get(plan.first.name)
    first_in, first_usd = (0.0, 0.0) if first is None else (first.input, first.input_usd)
    return (
        1.0,
        taken.characters,
        first_in,
        first_usd,
        sum(cost.calls for cost in asked),
        sum(cost.input for cost in asked) - first_in,
        sum(cost.output for cost in asked),
        sum(cost.seconds for cost in asked) + taken.seconds,
        sum(cost.input_usd + cost.output_usd for cost in asked) - first_usd,
    )


def _totals(plan: Plan, sums: _Sums, characters: float) -> _Sums:
    """Return calls, tokens in and out, seconds by the clock and dollars, where first prompts are so long."""
    total = len(plan.turns)
    count, of_characters, first_in, first_usd, *others = sums
    by_character = total * characters / of_characters
    calls, tokens_in, tokens_out, seconds, dollars = (total * value / count for value in others)
    given = plan.config.runner.concurrency
    at_once = min(START if given == "auto" else given, total)
    return (
        calls,
        tokens_in + first_in * by_character,
        tokens_out,
        seconds / at_once,
        dollars + first_usd * by_character,
    )


def _expected(value: float, drawn: Iterable[float], width: float) -> Expected:
    ordered = sorted(drawn)
    low, high = ordered[round(_TAIL * len(ordered))], ordered[round((1 - _TAIL) * len(ordered)) - 1]
    return Expected(value, max(0.0, value + (low - value) * width), value + (high - value) * width)


def _forecast(
    plan: Plan,
    expected: Sequence[Expected],
    taken: Sequence[Taken],
    ahead: Sequence[_Ahead],
    source: Source,
    sampled: int,
) -> Forecast:
    first = plan.first.name
    ratio = _ratio((each.characters, each.by_role[first].input) for each in taken if first in each.by_role)
    by_role = _roles(plan, taken, ahead, ratio)
    went_on = fmean(any(name in plan.later for name in each.by_role) for each in taken)
    equal, tokens_in = (sum(getattr(role, what) for role in by_role.values()) for what in ("equal", "input_tokens"))
    saved = 0.0
    for name, role in by_role.items():
        tokens = round(role.equal)
        kept = plan.dollars(name, input_tokens=tokens, cached_input_tokens=tokens)
        saved += plan.dollars(name, input_tokens=tokens) - kept
    calls, tokens_in_all, tokens_out, seconds, dollars = expected
    return Forecast(
        annotations=len(plan.turns),
        calls=calls,
        input_tokens=tokens_in_all,
        output_tokens=tokens_out,
        seconds=seconds,
        cost_usd=None if math.isnan(dollars.value) else dollars,
        roles=by_role,
        rendered=len(ahead),
        sampled=sampled,
        went_on=went_on if plan.later else None,
        tokens_from=source,
        characters_per_token=ratio,
        in_cache=fmean(each.reply is not None for each in ahead),
        equal_share=equal / tokens_in if tokens_in else 0.0,
        saved_usd=None if math.isnan(saved) else saved,
    )


def _roles(plan: Plan, taken: Sequence[Taken], ahead: Sequence[_Ahead], ratio: float | None) -> dict[str, RoleForecast]:
    """Return what each role that was asked in will take."""
    total, found = len(plan.turns), {}
    for name in plan.roles:
        asked = [each.by_role[name] for each in taken if name in each.by_role]
        scale = total / len(taken)
        more = scale
        if name == plan.first.name:
            more = total * fmean(each.characters for each in ahead) / sum(each.characters for each in taken)
        tokens_in = more * sum(cost.input for cost in asked)
        equal = scale * sum(cost.equal for cost in asked)
        if name == plan.first.name and ratio:
            kept = sum(each.equal for each in ahead if each.equal / ratio >= CACHED_FROM)
            equal = tokens_in * kept / sum(each.characters for each in ahead)
        if asked:
            calls, output = (scale * sum(getattr(cost, what) for cost in asked) for what in ("calls", "output"))
            found[name] = RoleForecast(calls, tokens_in, output, equal)
    return found
