"""Costs of annotations for a forecast, either recorded by an earlier run or based on prompts and assumptions."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from agent.config import Config
from agent.languages import Language, built_in_languages
from agent.llm.base import Call, Reply
from agent.llm.batch import PRICE_FACTOR
from agent.llm.gateway import Gateway, ReplyCache
from agent.llm.limits import START
from agent.llm.models import Models, are_scripted
from agent.llm.parsing import build_schema
from agent.pipeline.asker import compute_sample
from agent.pipeline.graph import Variant
from agent.pipeline.history import History, ModelCall
from agent.pipeline.nodes import BUILT_IN
from agent.pipeline.prompts import Prompts
from agent.pipeline.state import Role
from agent.runs.job import PairRound
from agent.runs.store.run_view import RunView
from agent.types import Annotation, Message, Pair, Usage

# maximum number of prompts to render, and of annotations to sample from an earlier run
SAMPLE_SIZE = 300
# minimum number of annotations that an earlier run must have to be used
MIN_ANNOTATIONS = 20
# minimum length, in tokens, of a prefix that OpenAI's servers cache; other servers may cache shorter prefixes
MIN_CACHED_TOKENS = 1024
# whether the screener finds a pair unclear, for three typical pairs (in the CoSQA+ paper, it decides about two thirds)
ASSUMED_OUTCOMES = (False, False, True)

# Number of output tokens in a valid reply, by role. Measured on 100 pairs with a strong model without reasoning.
_REPLY_TOKENS = {
    "screen": 60, "judge": 65, "specify_query": 100, "scaffold": 50, "generate_test": 400, "generate_blind": 650,
    "simulate": 65, "repair": 60, "arbitrate": 125,
}  # fmt: skip
_DEFAULT_REPLY_TOKENS = 150
_REPAIRS = 0.3  # repairs per program; 84% of the programs in the CoSQA+ paper ran
_PROGRAM = " " * 1500
_SECONDS_OF_CALL, _TOKENS_PER_SECOND, _SECONDS_OF_EXECUTION = 1.0, 50.0, 2.0
# prompt variables that are set only if the variant contains the given node
_PROVIDED_BY = {
    "spec": "specify_query", "simulated": "simulate", "report": "execute", "output": "execute", "installed": "execute",
    "may_abstain": "arbitrate_or_abstain",
}  # fmt: skip


class Cost(NamedTuple):
    """The cost of model calls for one role. Amounts in dollars are NaN if the price is unknown.

    `equal` is the number of input tokens in a prefix that all pairs share, or 0 if the prefix is too short to cache.
    """

    calls: float = 0.0
    input: float = 0.0
    output: float = 0.0
    seconds: float = 0.0
    input_usd: float = 0.0
    output_usd: float = 0.0
    equal: float = 0.0

    def scale(self, weight: float) -> Cost:
        """Return the cost multiplied by a weight."""
        return Cost(*(weight * value for value in self))

    @staticmethod
    def sum(costs: Iterable[Cost]) -> Cost:
        """Return the sum of costs."""
        return Cost(*map(sum, zip(Cost(), *costs, strict=True)))


@dataclass(frozen=True)
class AnnotationCost:
    """The cost of one annotation, by role.

    `characters` is the length of the first prompt. `seconds` is the time spent outside model calls. `reported` is true
    if the planned model itself reported the token counts of the first call.
    """

    query: str
    characters: int
    by_role: Mapping[str, Cost]
    seconds: float
    reported: bool = False


@dataclass(frozen=True)
class RunSample:
    """Annotations from an earlier run with their histories, and the identity of the run's models."""

    model: Mapping[str, Any]
    annotations: Sequence[tuple[Annotation, History]]


def sample_run(view: RunView, *, seed: int = 0, size: int = SAMPLE_SIZE) -> RunSample | None:
    """Sample annotations from a run, or return None if fewer than `MIN_ANNOTATIONS` annotations have evidence.

    Raises:
        RunFolderError: the run is damaged.
    """
    keys = list(view.index.iterate_keys())
    if len(keys) < MIN_ANNOTATIONS or not view.has_evidence:
        return None
    sample = random.Random(seed).sample(keys, min(size, len(keys)))
    rows = ((view.annotation(*key), view.evidence(*key)) for key in sample)
    complete = [(annotation, history) for annotation, history in rows if annotation is not None and history is not None]
    if len(complete) < MIN_ANNOTATIONS:
        return None
    return RunSample(view.manifest["identity"].get("model") or {}, complete)


@dataclass(frozen=True)
class Plan:
    """The turns to annotate, in order, and the settings of the run. Each turn is one pair in one round."""

    turns: Sequence[PairRound]
    variant: Variant
    models: Models
    prompts: Prompts
    config: Config
    cache: ReplyCache | None = None

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The roles of the variant's nodes, keyed by role name."""
        return {role.name: role for name in self.variant.nodes for role in BUILT_IN[name].roles}

    @cached_property
    def first_role(self) -> Role:
        """The role of the first model call whose prompt contains the code."""
        return next(role for role in self.roles.values() if "code" in role.variables)

    @cached_property
    def later_roles(self) -> list[str]:
        """The names of the roles that come after `first_role`."""
        names = list(self.roles)
        return names[names.index(self.first_role.name) + 1 :]

    @property
    def concurrency_range(self) -> tuple[int, int]:
        """Minimum and maximum number of concurrent model calls. With `auto`, a run starts at the minimum."""
        runner, total = self.config.runner, len(self.turns)
        fewest, most = (START, runner.llm_calls) if runner.concurrency == "auto" else (runner.concurrency,) * 2
        return min(fewest, runner.llm_calls, total), min(most, runner.llm_calls, total)

    @cached_property
    def queries_per_turn(self) -> float:
        """Number of calls per annotation for a role whose calls are shared by all pairs with the same query."""
        return len({(turn.pair.query, turn.round) for turn in self.turns}) / len(self.turns)

    def render_messages(self, role: Role, pair: Pair) -> tuple[Message, ...]:
        """Render the prompt of a role for a pair.

        Only the prompt of the first role is exact, except for example readings of the query.
        """
        return self.prompts.render(role, self._build_variables(role, pair))

    def find_cached_reply(self, turn: PairRound, messages: tuple[Message, ...]) -> Reply | None:
        """Return the cached reply to the first model call of a turn, or None if there is none."""
        if self.cache is None:
            return None
        role, sample = self.first_role, compute_sample(turn.round, 0)
        schema = None if role.reply is None else build_schema(role.reply, self._build_variables(role, turn.pair))
        call = Call(role.name, messages, "text" if schema is None else "json", sample, turn.pair.id, schema=schema)
        return self.cache.get(Gateway(self.models).compute_key(call))

    def is_free(self, role: str) -> bool:
        """Return whether a role uses no language model and therefore no tokens."""
        return are_scripted([self.models.for_role(role)])

    def price_tokens(self, role: str, served: str = "", **tokens: int) -> float:
        """Return the price of tokens in dollars, or NaN if it is unknown. Batch runs get the batch discount."""
        price = 0.0 if self.is_free(role) else self.models.price(role, served, Usage(**tokens))
        if price is None:
            return math.nan
        return price * PRICE_FACTOR if self.config.runner.batch else price

    def _build_variables(self, role: Role, pair: Pair) -> dict[str, Any]:
        """Return the variables for a role's prompt. Variables that earlier steps would set have example values."""
        nodes = self.variant.nodes.keys()
        language = built_in_languages().get(pair.language) or Language(pair.language)
        pair_fields = pair.model_dump(include={"query", "code", "language", "context"})
        criterion = self.config.pipeline.criterion or self.variant.criterion
        program = pair.code + _PROGRAM if nodes & {"generate_test", "generate_blind"} else None
        values = {**pair_fields, "fence": language.fence, "criterion": criterion, "program": program}
        values |= dict.fromkeys(("weakness", "problem", *(n for n, node in _PROVIDED_BY.items() if node not in nodes)))
        return {name: values.get(name, example) for name, example in role.variables.items()}


def iterate_recorded_costs(plan: Plan, sample: RunSample, characters_per_token: float) -> Iterator[AnnotationCost]:
    """Iterate over the costs of annotations from an earlier run. Cached replies are included at their original cost.

    Token counts are estimated from the number of characters if the earlier run used another model, or if its model
    reported no usage.
    """
    identity = plan.models.identity()
    for annotation, history in sample.annotations:
        costs: dict[str, Cost] = {}
        seconds_in_calls, reported = 0.0, False
        for model_call in history.model_calls:
            usage = model_call.saved if model_call.cached else model_call.usage
            same_model = find_model_name(sample.model, model_call.role) == find_model_name(identity, model_call.role)
            if not (same_model and usage.input_tokens) and not plan.is_free(model_call.role):
                usage = _estimate_usage(model_call, characters_per_token)
            elif model_call.role == plan.first_role.name:
                reported = True
            cost = _make_cost(
                plan, model_call.role, usage, model_call.seconds or 0.0, model_call.messages, model_call.model
            )
            cost = cost.scale(plan.queries_per_turn if model_call.shared else 1.0)
            costs[model_call.role] = Cost.sum([costs.get(model_call.role, Cost()), cost])
            seconds_in_calls += 0.0 if model_call.cached else model_call.seconds or 0.0
        characters = sum(len(message.content) for message in plan.render_messages(plan.first_role, history.pair))
        yield AnnotationCost(
            history.pair.query, characters, costs, max(0.0, annotation.seconds - seconds_in_calls), reported
        )


def find_model_name(identity: Mapping[str, Any], role: str) -> Any:
    """Return the model name for a role from the identity of a run's models."""
    return ((identity.get("roles") or {}).get(role) or identity.get("default") or {}).get("model")


def _estimate_usage(model_call: ModelCall, characters_per_token: float) -> Usage:
    characters = sum(len(message["content"]) for message in model_call.messages)
    return Usage(
        calls=1,
        input_tokens=round(characters / characters_per_token),
        output_tokens=round(len(model_call.reply) / characters_per_token),
    )


def iterate_assumed_costs(plan: Plan, pairs: Iterable[Pair], characters_per_token: float) -> Iterator[AnnotationCost]:
    """Iterate over the assumed costs of annotating pairs.

    If the variant has a screener, one cost is yielded for each pair and each assumed outcome of the screening
    (`ASSUMED_OUTCOMES`).
    """
    screens, executes = "screen" in plan.variant.nodes, "execute" in plan.variant.nodes
    for pair in pairs:
        costs = dict(_iterate_role_costs(plan, pair, characters_per_token))
        characters = sum(len(message.content) for message in plan.render_messages(plan.first_role, pair))
        for unclear in ASSUMED_OUTCOMES if screens else (True,):
            by_role = {name: cost for name, cost in costs.items() if unclear or name not in plan.later_roles}
            yield AnnotationCost(pair.query, characters, by_role, _SECONDS_OF_EXECUTION * (unclear and executes))


def _iterate_role_costs(plan: Plan, pair: Pair, characters_per_token: float) -> Iterator[tuple[str, Cost]]:
    """Iterate over the roles and their assumed costs for a pair that the screener finds unclear."""
    votes = plan.config.pipeline.votes if "rate_confidence" in plan.variant.nodes else 1
    shared = dict.fromkeys(("specify_query", "judge_intent"), plan.queries_per_turn)
    weights = {**shared, "repair": _REPAIRS, "arbitrate": votes}
    if "generate_blind" in plan.roles:
        weights["generate_test"] = 0.0  # used only for the few snippets without a signature
    for name, role in plan.roles.items():
        if weights.get(name) == 0:
            continue
        messages = [{"role": message.role, "content": message.content} for message in plan.render_messages(role, pair)]
        characters = sum(len(message["content"]) for message in messages)
        output = _REPLY_TOKENS.get(name, _DEFAULT_REPLY_TOKENS)
        usage = Usage(calls=1, input_tokens=round(characters / characters_per_token), output_tokens=output)
        seconds = _SECONDS_OF_CALL + output / _TOKENS_PER_SECOND
        if plan.is_free(name):
            usage, seconds = Usage(calls=1), 0.0
        yield name, _make_cost(plan, name, usage, seconds, messages).scale(weights.get(name, 1.0))


def _make_cost(
    plan: Plan, role: str, usage: Usage, seconds: float, messages: Sequence[Mapping[str, str]], served: str = ""
) -> Cost:
    sizes = [len(message["content"]) for message in messages]
    equal = usage.input_tokens * sizes[0] / max(sum(sizes), 1) if messages[0]["role"] == "system" else 0.0
    tokens = {"input_tokens": usage.input_tokens, "cached_input_tokens": usage.cached_input_tokens}
    return Cost(
        calls=usage.calls,
        input=usage.input_tokens,
        output=usage.output_tokens,
        seconds=seconds,
        input_usd=plan.price_tokens(role, served, **tokens),
        output_usd=plan.price_tokens(role, served, output_tokens=usage.output_tokens),
        equal=equal if equal >= MIN_CACHED_TOKENS else 0.0,
    )
