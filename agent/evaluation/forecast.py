"""Estimates the calls, tokens, time and cost of a run.

The estimate is the mean cost of an annotation, multiplied by the number of annotations that remain. The mean is taken
from a sample of the run's own finished annotations. If there are too few of them, it is computed from a sample of the
prompts and from assumptions about the replies.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from agent.datasets.pair_store import group_by_query
from agent.errors import UsageError
from agent.languages.base import Language
from agent.llm.base import Call, ReplyKind
from agent.llm.batch import PRICE_FACTOR
from agent.llm.gateway import Gateway, ReplyCache
from agent.llm.models import Models, are_scripted
from agent.llm.parsing import build_schema
from agent.pipeline.graph import Variant
from agent.pipeline.history import History, ModelCall
from agent.pipeline.nodes.generate_test import TEST, choose_test_role
from agent.pipeline.nodes.registry import BUILT_IN
from agent.pipeline.state import Role
from agent.runs.job import PairRound
from agent.runs.spec import RunSpec
from agent.runs.store import files
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.run_view import RunView, load_run
from agent.types import Annotation, Message, Pair, Usage

# minimum number of finished annotations on which to base an estimate
MIN_ANNOTATIONS = 20
# maximum number of prompts to render, and of finished annotations to read
_SAMPLE_SIZE = 300

CHARACTERS_PER_TOKEN = 4
# assumed proportion of pairs that the screener finds unclear (in the CoSQA+ paper, it decides about two thirds)
_UNCLEAR = 1 / 3
# Number of output tokens in a valid reply, by role. Measured on 100 pairs with a strong model without reasoning.
_REPLY_TOKENS = {
    "screen": 60, "judge": 65, "generate_test": 400, "simulate": 65, "repair": 60, "arbitrate": 125,
}  # fmt: skip
_DEFAULT_REPLY_TOKENS = 150
_REPAIRS = 0.3  # repairs per program; 84% of the programs in the CoSQA+ paper ran
_PROGRAM = " " * 1500
_SECONDS_OF_CALL, _TOKENS_PER_SECOND, _SECONDS_OF_EXECUTION = 1.0, 50.0, 2.0
# prompt variables that are set only if the variant contains the given node
_PROVIDED_BY = {"simulated": "simulate", "report": "execute", "output": "execute", "installed": "execute"}


class Cost(NamedTuple):
    """The cost of model calls. `seconds` is their total duration. `cost_usd` is NaN if the price is unknown."""

    calls: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    seconds: float = 0.0
    cost_usd: float = 0.0

    def scale(self, weight: float) -> Cost:
        """Return the cost multiplied by a weight."""
        return Cost(*(weight * value for value in self))

    @staticmethod
    def mean(costs: Iterable[Cost], count: float) -> Cost:
        """Return the sum of costs divided by `count`."""
        return Cost(*map(sum, zip(Cost(), *costs, strict=True))).scale(1 / count)


@dataclass(frozen=True)
class Forecast:
    """A forecast for all annotations that a run plans. `cost_usd` is None if a price is unknown.

    `seconds` is the wall-clock time with `parallel` concurrent model calls, the maximum that the settings allow. It is
    None if the run uses batches, because a batch may take up to a day.

    `sampled` is the number of finished annotations on which the forecast is based, or 0 if costs are assumed.
    `in_cache` is the proportion of first calls whose replies are cached. These calls are free, but the forecast
    includes what they would cost without the cache.
    """

    variant: str
    model: str
    pairs: int
    annotations: int
    calls: float
    input_tokens: float
    output_tokens: float
    seconds: float | None
    parallel: int
    cost_usd: float | None
    roles: Mapping[str, Cost]
    sampled: int
    in_cache: float


_Finished = tuple[Annotation, History]


def forecast_run(pairs: Sequence[Pair], spec: RunSpec, out: Path) -> Forecast | None:
    """Forecast the cost of the remaining annotations of the run in `out`, or return None if no annotations remain.

    Raises:
        UsageError: the run in `out` has another variant or model.
        PromptError: a prompt cannot be rendered.
        RunFolderError: the run or the reply cache is damaged.
    """
    with ExitStack() as stack:
        view = stack.enter_context(load_run(out)) if (out / files.MANIFEST).is_file() else None
        if view is not None:
            _check_same_run(view, spec.pipeline.variant, spec.models)
        work = [
            pair_round
            for pair in group_by_query(pairs)
            for pair_round in (PairRound(pair, number) for number in range(spec.config.runner.rounds))
            if view is None or not view.index.is_finished(pair_round.key, retry_errors=spec.retry_errors)
        ]
        if not work:
            return None
        replies = None
        if isinstance(spec.cache, Path) and spec.cache.is_file():
            replies = stack.enter_context(SqliteReplyCache(spec.cache, read_only=True))
        plan = _Plan(work, spec, replies)
        finished = [] if view is None else _sample_finished(plan, view)
        if len(finished) < MIN_ANNOTATIONS:
            return _extrapolate(plan, *_assume_costs(plan))
        return _extrapolate(plan, *_average_costs(plan, finished), len(finished))


def _check_same_run(view: RunView, variant: Variant, models: Models) -> None:
    identity, remedy = view.manifest["identity"], "Choose another folder (-o)."
    recorded = identity["variant"] if isinstance(identity.get("variant"), dict) else {}
    if (recorded.get("start"), recorded.get("nodes")) != (variant.start, variant.nodes):
        raise UsageError(f"{view.path}: the run's variant is {recorded.get('name')}, not {variant.name}. {remedy}")
    if identity.get("model") != models.identity():
        raise UsageError(f"{view.path}: the run's model or its parameters differ from {models.join_names()}. {remedy}")


@dataclass(frozen=True)
class _Plan:
    """The pairs and rounds to annotate, in order, the run's specification and its opened cache."""

    work: Sequence[PairRound]
    spec: RunSpec
    cache: ReplyCache | None

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The roles of the variant's nodes, keyed by role name."""
        variant = self.spec.pipeline.variant
        roles = (role for name in variant.nodes for role in BUILT_IN[name].roles)
        versions = ("", "in_module") if variant.opens_context else ("",)
        return {role.name: role for role in roles if role.version in versions}

    @cached_property
    def first_role(self) -> Role:
        """The role of the first model call whose prompt contains the code."""
        return next(role for role in self.roles.values() if "code" in role.variables)

    @cached_property
    def sample(self) -> list[PairRound]:
        """A sample of the pairs and rounds."""
        return random.Random(0).sample(self.work, min(_SAMPLE_SIZE, len(self.work)))

    @cached_property
    def queries_per_turn(self) -> float:
        """Number of calls per annotation for a role whose calls are shared by all pairs with the same query."""
        return len({(pair_round.pair.query, pair_round.round) for pair_round in self.work}) / len(self.work)

    def is_first_reply_cached(self, pair_round: PairRound) -> bool:
        """Return whether the reply to the first model call of a pair in a round is cached."""
        if self.cache is None:
            return False
        role, messages = self.first_role, self.render_messages(self.first_role, pair_round.pair)
        schema = None if role.reply is None else build_schema(role.reply)
        kind: ReplyKind = "text" if schema is None else "json"
        call = Call(role.name, messages, kind, pair_round.round, pair_round.pair.id, schema=schema)
        return self.cache.get(Gateway(self.spec.models).compute_key(call)) is not None

    def is_free(self, role: str) -> bool:
        """Return whether a role uses no language model and therefore no tokens."""
        return are_scripted([self.spec.models.for_role(role)])

    def compute_cost(self, role: str, usage: Usage, seconds: float, served: str = "") -> Cost:
        """Return the cost of one model call. Batch runs get the batch discount."""
        usd = 0.0 if self.is_free(role) else self.spec.models.price(role, served, usage)
        usd = math.nan if usd is None else usd
        factor = PRICE_FACTOR if self.spec.config.runner.batch else 1.0
        return Cost(usage.calls, usage.input_tokens, usage.output_tokens, seconds, usd * factor)

    def render_messages(self, role: Role, pair: Pair) -> tuple[Message, ...]:
        """Render the prompt of a role for a pair. Only the prompt of the first role is exact."""
        language = self.spec.find_language(pair.language)
        if role is TEST and language is not None:
            role = choose_test_role(language)
        return self.spec.prompts.render(role, self._build_variables(role, pair))

    def _build_variables(self, role: Role, pair: Pair) -> dict[str, Any]:
        """Return the variables for a role's prompt. Variables that earlier steps would set have example values."""
        nodes = self.spec.pipeline.variant.nodes.keys()
        language = self.spec.find_language(pair.language) or Language(pair.language)
        pair_fields = pair.model_dump(include={"query", "code", "language", "context"})
        criterion = self.spec.config.pipeline.criterion
        program = pair.code + _PROGRAM if "generate_test" in nodes else None
        fence = (language.program_fence if role.name == TEST.name else None) or language.fence
        values = {**pair_fields, "fence": fence, "criterion": criterion, "program": program}
        values |= {"marker": language.marker, "rules": language.prompt_rules}
        absent = (name for name, node in _PROVIDED_BY.items() if node not in nodes)
        values |= dict.fromkeys(("weakness", "problem", *absent))
        return {name: values.get(name, example) for name, example in role.variables.items()}


def _sample_finished(plan: _Plan, view: RunView) -> list[_Finished]:
    """Sample finished annotations that have evidence with complete token counts."""
    keys = list(view.index.iterate_keys()) if view.has_evidence else []
    sample = random.Random(0).sample(keys, min(_SAMPLE_SIZE, len(keys)))
    rows = ((view.annotation(*key), view.evidence(*key)) for key in sample)
    return [
        (annotation, history)
        for annotation, history in rows
        if annotation is not None
        and history is not None
        and all(plan.is_free(call.role) or _get_original_usage(call).input_tokens for call in history.model_calls)
    ]


def _assume_costs(plan: _Plan) -> tuple[dict[str, Cost], float]:
    """Return the assumed mean cost of an annotation by role, and the mean time outside model calls."""
    unclear = _UNCLEAR if "screen" in plan.spec.pipeline.variant.nodes else 1.0
    weights = {"judge_intent": plan.queries_per_turn, "repair": _REPAIRS * unclear}
    by_role, default = {}, 1.0
    for name, role in plan.roles.items():
        mean = Cost.mean([_assume_cost(plan, role, pair_round.pair) for pair_round in plan.sample], len(plan.sample))
        by_role[name] = mean.scale(weights.get(name, default))
        default = unclear if role is plan.first_role else default
    return by_role, _SECONDS_OF_EXECUTION * unclear if "execute" in plan.spec.pipeline.variant.nodes else 0.0


def _assume_cost(plan: _Plan, role: Role, pair: Pair) -> Cost:
    if plan.is_free(role.name):
        return Cost(calls=1)
    output = _REPLY_TOKENS.get(role.name, _DEFAULT_REPLY_TOKENS)
    characters = sum(len(message.content) for message in plan.render_messages(role, pair))
    usage = Usage(calls=1, input_tokens=round(characters / CHARACTERS_PER_TOKEN), output_tokens=output)
    return plan.compute_cost(role.name, usage, _SECONDS_OF_CALL + output / _TOKENS_PER_SECOND)


def _average_costs(plan: _Plan, finished: Sequence[_Finished]) -> tuple[dict[str, Cost], float]:
    """Return the mean cost of finished annotations by role, and the mean time outside model calls.

    Cached replies are included at their original cost.
    """
    costs = defaultdict[str, list[Cost]](list)
    other_seconds = 0.0
    for annotation, history in finished:
        other_seconds += annotation.seconds
        for model_call in history.model_calls:
            usage, seconds = _get_original_usage(model_call), model_call.seconds or 0.0
            cost = plan.compute_cost(model_call.role, usage, seconds, model_call.model)
            costs[model_call.role].append(cost.scale(plan.queries_per_turn if model_call.shared else 1.0))
            other_seconds -= 0.0 if model_call.cached else seconds
    by_role = {name: Cost.mean(costs[name], len(finished)) for name in plan.roles if name in costs}
    return by_role, max(0.0, other_seconds) / len(finished)


def _get_original_usage(model_call: ModelCall) -> Usage:
    return model_call.saved if model_call.cached else model_call.usage


def _extrapolate(plan: _Plan, mean: Mapping[str, Cost], mean_seconds: float, sampled: int = 0) -> Forecast:
    """Multiply the mean cost of an annotation by the number of annotations that the run plans.

    `mean_seconds` is the mean time outside model calls.
    """
    runner, count = plan.spec.config.runner, len(plan.work)
    roles = {name: cost.scale(count) for name, cost in mean.items()}
    total = Cost.mean(roles.values(), 1)
    parallel = min(runner.llm_calls if runner.concurrency == "auto" else runner.concurrency, runner.llm_calls, count)
    other_seconds = count * mean_seconds
    seconds = max((total.seconds + other_seconds) / parallel, other_seconds / runner.sandboxes)
    return Forecast(
        variant=plan.spec.pipeline.variant.name,
        model=plan.spec.models.join_names(),
        pairs=len({pair_round.pair.id for pair_round in plan.work}),
        annotations=count,
        calls=total.calls,
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        seconds=None if runner.batch else seconds,
        parallel=parallel,
        cost_usd=None if math.isnan(total.cost_usd) else total.cost_usd,
        roles=roles,
        sampled=sampled,
        in_cache=fmean(plan.is_first_reply_cached(pair_round) for pair_round in plan.sample),
    )
