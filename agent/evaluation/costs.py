"""What annotations took, by an earlier run's evidence, or are assumed to take, by their prompts: for a forecast."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from agent.config import Config
from agent.graph import Variant
from agent.history import Exchange, History
from agent.job import Turn
from agent.languages import Language, built_in_languages
from agent.llm.asker import compute_sample
from agent.llm.base import Call, Reply
from agent.llm.batch import PRICE_FACTOR
from agent.llm.gateway import Gateway, ReplyCache
from agent.llm.limits import START
from agent.llm.models import Models, are_scripted
from agent.llm.parsing import build_schema
from agent.nodes import BUILT_IN
from agent.prompts import Prompts
from agent.state import Role
from agent.store.run_view import RunView
from agent.types import Annotation, Message, Pair, Usage

# how many prompts are rendered, and how many annotations of an earlier run are looked at, at most
SAMPLE_SIZE = 300
# how many annotations an earlier run must have
MIN_ANNOTATIONS = 20
# tokens from which OpenAI's servers keep the beginning of a prompt; others keep shorter ones
MIN_CACHED_TOKENS = 1024
# assumed of three pairs: whether the screener finds them unclear; the paper's settles about two thirds
ASSUMED_OUTCOMES = (False, False, True)

# Assumed tokens of a usable reply: measured with a strong model, without reasoning, on 100 pairs.
_REPLIES = {
    "screen": 60, "judge": 65, "specify_query": 100, "scaffold": 50, "generate_test": 400, "generate_blind": 650,
    "simulate": 65, "repair": 60, "arbitrate": 125,
}  # fmt: skip
_REPLY = 150
_REPAIRS = 0.3  # for each program: of the paper's, 84% ran
_PROGRAM = " " * 1500
_SECONDS_OF_CALL, _TOKENS_PER_SECOND, _SECONDS_OF_EXECUTION = 1.0, 50.0, 2.0
# what a prompt shows only where the variant has the node
_PROVIDED_BY = {
    "spec": "specify_query", "simulated": "simulate", "report": "execute", "output": "execute", "installed": "execute",
    "may_abstain": "arbitrate_or_abstain",
}  # fmt: skip


class Cost(NamedTuple):
    """What questions of one role take; dollars are NaN where no price is known.

    `equal` input tokens are at the beginning of the prompt and the same for all pairs; 0 where a server would not keep
    so few.
    """

    calls: float = 0.0
    input: float = 0.0
    output: float = 0.0
    seconds: float = 0.0
    input_usd: float = 0.0
    output_usd: float = 0.0
    equal: float = 0.0

    def scale(self, weight: float) -> Cost:
        """Return what so many times the questions take."""
        return Cost(*(weight * value for value in self))

    @staticmethod
    def sum(costs: Iterable[Cost]) -> Cost:
        """Add costs up."""
        return Cost(*map(sum, zip(Cost(), *costs, strict=True)))


@dataclass(frozen=True)
class AnnotationCost:
    """What one annotation took: the characters of its first prompt, costs by role, and the seconds besides.

    `reported`: the first question's tokens are those that the model which is to be asked reported.
    """

    query: str
    characters: int
    by_role: Mapping[str, Cost]
    seconds: float
    reported: bool = False


@dataclass(frozen=True)
class RunSample:
    """Annotations of an earlier run with what led to them, and the identity of the models that it asked."""

    model: Mapping[str, Any]
    seen: Sequence[tuple[Annotation, History]]


def sample_run(view: RunView, *, seed: int = 0, size: int = SAMPLE_SIZE) -> RunSample | None:
    """Return a random sample of a run's annotations; None where it kept evidence of fewer than `MIN_ANNOTATIONS`.

    Raises:
        RunFolderError: the run is damaged.
    """
    keys = list(view.index.iterate_keys())
    if len(keys) < MIN_ANNOTATIONS or not view.has_evidence:
        return None
    drawn = random.Random(seed).sample(keys, min(size, len(keys)))
    read = ((view.annotation(*key), view.evidence(*key)) for key in drawn)
    seen = [(annotation, history) for annotation, history in read if annotation is not None and history is not None]
    return RunSample(view.manifest["identity"].get("model") or {}, seen) if len(seen) >= MIN_ANNOTATIONS else None


@dataclass(frozen=True)
class Plan:
    """What is to be annotated (at least one turn, in the order in which they are taken), and how."""

    turns: Sequence[Turn]
    variant: Variant
    models: Models
    prompts: Prompts
    config: Config
    cache: ReplyCache | None = None

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The roles that the variant's nodes ask in."""
        return {role.name: role for name in self.variant.nodes for role in BUILT_IN[name].roles}

    @cached_property
    def first_role(self) -> Role:
        """The role of the first question that shows the code."""
        return next(role for role in self.roles.values() if "code" in role.variables)

    @cached_property
    def later_roles(self) -> list[str]:
        """The roles that ask after that."""
        names = list(self.roles)
        return names[names.index(self.first_role.name) + 1 :]

    @property
    def concurrency_range(self) -> tuple[int, int]:
        """How few and how many pairs may be in progress: where the server decides, as few as a run begins with."""
        runner, total = self.config.runner, len(self.turns)
        fewest, most = (START, runner.llm_calls) if runner.concurrency == "auto" else (runner.concurrency,) * 2
        return min(fewest, runner.llm_calls, total), min(most, runner.llm_calls, total)

    @cached_property
    def queries_per_turn(self) -> float:
        """How many questions that the pairs of a query share come on one annotation."""
        return len({(turn.pair.query, turn.round) for turn in self.turns}) / len(self.turns)

    def render_messages(self, role: Role, pair: Pair) -> tuple[Message, ...]:
        """Return a role's prompt for a pair: of the first question as it will be sent, but for readings."""
        return self.prompts.render(role, self._variables(role, pair))

    def find_cached_reply(self, turn: Turn, messages: tuple[Message, ...]) -> Reply | None:
        """Return the reply to a turn's first question where the cache has it."""
        if self.cache is None:
            return None
        role, sample = self.first_role, compute_sample(turn.round, 0)
        schema = None if role.reply is None else build_schema(role.reply, self._variables(role, turn.pair))
        call = Call(role.name, messages, "text" if schema is None else "json", sample, turn.pair.id, schema=schema)
        return self.cache.get(Gateway(self.models).compute_key(call))

    def is_free(self, role: str) -> bool:
        """Say whether a role is answered by no language model, without tokens."""
        return are_scripted([self.models.for_role(role)])

    def price_tokens(self, role: str, served: str = "", **tokens: int) -> float:
        """Return what a role's tokens cost, by batch where the run is; NaN where no price is known."""
        price = 0.0 if self.is_free(role) else self.models.price(role, served, Usage(**tokens))
        if price is None:
            return math.nan
        return price * PRICE_FACTOR if self.config.runner.batch else price

    def _variables(self, role: Role, pair: Pair) -> dict[str, Any]:
        """Return what a role's prompt shows; of what comes later an example, where the variant has it."""
        nodes = self.variant.nodes.keys()
        language = built_in_languages().get(pair.language) or Language(pair.language)
        about = pair.model_dump(include={"query", "code", "language", "context"})
        criterion = self.config.pipeline.criterion
        program = pair.code + _PROGRAM if nodes & {"generate_test", "generate_blind"} else None
        known = {**about, "fence": language.fence, "criterion": criterion, "program": program}
        known |= dict.fromkeys(("weakness", "problem", *(n for n, node in _PROVIDED_BY.items() if node not in nodes)))
        return {name: known.get(name, example) for name, example in role.variables.items()}


def iterate_recorded_costs(plan: Plan, before: RunSample, characters_per_token: float) -> Iterator[AnnotationCost]:
    """Yield what each annotation of an earlier run took, replies from a cache counted as if they had been paid for.

    Where another model was asked, or one that reported no tokens, they are counted by characters.
    """
    asked_now = plan.models.identity()
    for annotation, history in before.seen:
        costs: dict[str, Cost] = {}
        here, reported = 0.0, False
        for exchange in history.exchanges:
            usage = exchange.saved if exchange.cached else exchange.usage
            same = find_model_name(before.model, exchange.role) == find_model_name(asked_now, exchange.role)
            if not (same and usage.input_tokens) and not plan.is_free(exchange.role):
                usage = _guessed(exchange, characters_per_token)
            elif exchange.role == plan.first_role.name:
                reported = True
            cost = _cost(plan, exchange.role, usage, exchange.seconds or 0.0, exchange.messages, exchange.model)
            weighted = cost.scale(plan.queries_per_turn if exchange.shared else 1.0)
            costs[exchange.role] = Cost.sum([costs.get(exchange.role, Cost()), weighted])
            here += 0.0 if exchange.cached else exchange.seconds or 0.0
        characters = sum(len(message.content) for message in plan.render_messages(plan.first_role, history.pair))
        yield AnnotationCost(history.pair.query, characters, costs, max(0.0, annotation.seconds - here), reported)


def find_model_name(identity: Mapping[str, Any], role: str) -> Any:
    """Return the name of the model that is asked in a role, by the identity of a run's models."""
    return ((identity.get("roles") or {}).get(role) or identity.get("default") or {}).get("model")


def _guessed(exchange: Exchange, characters_per_token: float) -> Usage:
    characters = sum(len(message["content"]) for message in exchange.messages)
    return Usage(
        calls=1,
        input_tokens=round(characters / characters_per_token),
        output_tokens=round(len(exchange.reply) / characters_per_token),
    )


def iterate_assumed_costs(plan: Plan, pairs: Iterable[Pair], characters_per_token: float) -> Iterator[AnnotationCost]:
    """Yield what annotations of pairs are assumed to take: of each pair one by each of the outcomes assumed."""
    screens, executes = "screen" in plan.variant.nodes, "execute" in plan.variant.nodes
    for pair in pairs:
        costs = dict(_asked(plan, pair, characters_per_token))
        characters = sum(len(message.content) for message in plan.render_messages(plan.first_role, pair))
        for unclear in ASSUMED_OUTCOMES if screens else (True,):
            asked = {name: cost for name, cost in costs.items() if unclear or name not in plan.later_roles}
            yield AnnotationCost(pair.query, characters, asked, _SECONDS_OF_EXECUTION * (unclear and executes))


def _asked(plan: Plan, pair: Pair, characters_per_token: float) -> Iterator[tuple[str, Cost]]:
    """Yield for each role what its questions about an unclear pair are assumed to take."""
    votes = plan.config.pipeline.votes if "rate_confidence" in plan.variant.nodes else 1
    weights = {"specify_query": plan.queries_per_turn, "repair": _REPAIRS, "arbitrate": votes}
    if "generate_blind" in plan.roles:
        weights["generate_test"] = 0.0  # for the few snippets that have no signature
    for name, role in plan.roles.items():
        if weights.get(name) == 0:
            continue
        messages = [{"role": each.role, "content": each.content} for each in plan.render_messages(role, pair)]
        characters, output = sum(len(each["content"]) for each in messages), _REPLIES.get(name, _REPLY)
        usage = Usage(calls=1, input_tokens=round(characters / characters_per_token), output_tokens=output)
        seconds = _SECONDS_OF_CALL + output / _TOKENS_PER_SECOND
        if plan.is_free(name):
            usage, seconds = Usage(calls=1), 0.0
        yield name, _cost(plan, name, usage, seconds, messages).scale(weights.get(name, 1.0))


def _cost(
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
