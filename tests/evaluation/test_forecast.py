"""A forecast says what a run will take: near, and with intervals that hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from agent.annotator import Annotator
from agent.config import Config, RunnerConfig
from agent.datasets import group_by_query, read_pairs
from agent.evaluation.costs import Plan, sample_run
from agent.evaluation.forecast import CHARACTERS_PER_TOKEN, PredictionInterval, forecast
from agent.graph import collect_known_roles, load_variant
from agent.job import Turn
from agent.llm.limits import START
from agent.llm.models import Models
from agent.prompts import Prompts
from agent.store.run_view import RunView, load_run
from agent.types import Pair
from tests.evaluation.counting import counted, tokens
from tests.llm.server import ChatServer, free_port

MODEL = "gpt-4o-mini"


def plan_of(
    turns: list[Turn],
    variant: str = "ps_tpg_fa",
    model: str = MODEL,
    concurrency: int | Literal["auto"] = 8,
) -> Plan:
    models = Models.of(model, base_url=f"http://127.0.0.1:{free_port()}/v1")
    config = Config(runner=RunnerConfig(concurrency=concurrency))
    return Plan(turns, load_variant(variant), models, Prompts(None, collect_known_roles()), config)


def made(count: int, queries: int | None = None, length: int = 3) -> list[Turn]:
    """Return so many turns, in groups by their queries."""
    body = "    x = [f(y) for y in x]\n" * length
    pairs = [
        Pair(id=str(n), query=f"q {n % (queries or count)}", code=f"def f(x):\n    # {n}\n{body}") for n in range(count)
    ]
    return [Turn(pair) for pair in group_by_query(pairs)]


class Recorded(NamedTuple):
    """A run, its turns, and what its server counted: by pair the screener's prompt, all prompts, all replies."""

    view: RunView
    turns: list[Turn]
    taken: dict[str, tuple[int, int, int]]


@pytest.fixture(scope="module")
async def recorded(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """The 277 real pairs, annotated by a server that counts tokens and finds three of ten unclear."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    pairs = list(read_pairs(real_data / "cosqa_dev.jsonl"))
    with ChatServer(counted) as server:
        options = {"model": MODEL, "base_url": server.url, "variant": "ps_tpg_fa", "run_dir": folder}
        async with Annotator(**options) as annotator:
            assert [each.error async for each in annotator.annotate(pairs)] == [None] * len(pairs)
        told = {tokens(request.prompt) for request in server.requests}
    with load_run(folder) as view:
        taken = {}
        for annotation in view.annotations():
            history = view.evidence(annotation.id)
            assert history is not None
            prompts = [tokens("\n".join(m["content"] for m in each.messages)) for each in history.exchanges]
            assert told.issuperset(prompts)
            replies = [tokens(each.reply) for each in history.exchanges]
            taken[annotation.id] = prompts[0], sum(prompts), sum(replies)
        unclear = sum(each.screen_verdict == "unclear" for each in view.annotations())
        assert unclear >= 0.2 * len(pairs)
        yield Recorded(view, [Turn(pair) for pair in group_by_query(pairs)], taken)


def covers(expected: PredictionInterval, actual: int) -> bool:
    return expected.low <= actual <= expected.high


@pytest.mark.real_data
@pytest.mark.long
@pytest.mark.parametrize("to_come", [False, True], ids=["of the whole run", "of the pairs that are not in the sample"])
async def test_of_20_samples_of_a_run_17_or_more_cover_its_tokens(recorded: Recorded, to_come: bool) -> None:
    held = {"in": 0, "out": 0}
    for seed in range(20):
        before = sample_run(recorded.view, seed=seed, size=80)
        assert before is not None
        seen = {annotation.id for annotation, _ in before.seen}
        turns = [turn for turn in recorded.turns if not (to_come and turn.pair.id in seen)]
        found = forecast(plan_of(turns), before, seed=seed, sample=100)
        screened, tokens_in, tokens_out = map(sum, zip(*(recorded.taken[turn.pair.id] for turn in turns), strict=True))
        assert found.tokens_from == "earlier run"
        assert found.roles["screen"].input_tokens == pytest.approx(screened, rel=0.05)
        held["in"] += covers(found.input_tokens, tokens_in)
        held["out"] += covers(found.output_tokens, tokens_out)
        width = found.input_tokens.high - found.input_tokens.low
        assert width < 0.4 * tokens_in
    assert min(held.values()) >= 17, held


async def test_without_an_earlier_run_tokens_are_characters_by_four_and_two_thirds_are_settled() -> None:
    turns = made(30)
    plan = plan_of(turns)
    found = forecast(plan)
    prompts = [plan.render_messages(plan.first_role, turn.pair) for turn in turns]
    characters = sum(len(message.content) for messages in prompts for message in messages)
    assert (found.tokens_from, found.sampled, found.rendered) == ("assumption", 0, 30)
    assert found.roles["screen"].input_tokens == pytest.approx(characters / CHARACTERS_PER_TOKEN, rel=0.001)
    assert [round(role.calls) for role in found.roles.values()] == [30, 10, 10]
    assert found.calls.value == pytest.approx(50)
    assert found.calls.low < 50 < found.calls.high
    assert found.cost_usd is not None
    assert found.cost_usd.value > 0


async def test_many_pairs_make_nothing_surer_that_is_assumed() -> None:
    few, many = (forecast(plan_of(made(count)), sample=40) for count in (40, 2000))
    for found in (few, many):
        share = found.calls.high / found.annotations
        assert 1.9 < share < 2.3
        assert found.input_tokens.low < 0.8 * found.input_tokens.value


async def test_a_variant_without_chance_has_no_more_calls_than_pairs() -> None:
    found = forecast(plan_of(made(40), "single_llm"))
    assert found.calls == (40, 40, 40)
    assert found.went_on is None


async def test_a_variant_that_screens_nothing_asks_all_that_it_has_of_each_pair() -> None:
    found = forecast(plan_of(made(40), "no_screen"))
    assert (found.roles["generate_test"].calls, found.roles["arbitrate"].calls) == (40, 40)


async def test_questions_that_pairs_share_are_counted_once_for_a_query() -> None:
    found = forecast(plan_of(made(60, queries=6), "full_plus"))
    assert found.roles["specify_query"].calls == pytest.approx(6)
    assert found.roles["screen"].calls == 60


@pytest.mark.slow
async def test_of_many_pairs_a_sample_is_rendered() -> None:
    turns = [*made(400), *(Turn(turn.pair, 1) for turn in made(400))]
    found, whole = (forecast(plan_of(turns, "single_llm"), sample=size) for size in (100, 800))
    assert (found.annotations, found.rendered, found.calls.value) == (800, 100, 800)
    assert found.input_tokens.value == pytest.approx(whole.input_tokens.value, rel=0.01)


async def test_prompts_of_one_query_share_more_than_the_constant_part() -> None:
    one, many = (forecast(plan_of(made(40, queries=queries, length=30), "ps_fa")) for queries in (1, 40))
    assert 0.5 < many.equal_share < one.equal_share < 1
    assert one.saved_usd is not None
    assert many.saved_usd is not None
    assert 0 < many.saved_usd < one.saved_usd


async def test_a_price_that_is_not_known_makes_no_cost() -> None:
    found = forecast(plan_of(made(20), model="unheard-of"))
    assert (found.cost_usd, found.saved_usd) == (None, None)
    assert found.input_tokens.value > 0


async def test_rules_cost_nothing() -> None:
    found = forecast(plan_of(made(20), model="heuristic"))
    assert found.input_tokens == found.output_tokens == (0, 0, 0)
    assert found.cost_usd == (0, 0, 0)
    assert found.calls.value > 20


def seconds(turns: list[Turn], variant: str, concurrency: int | Literal["auto"]) -> PredictionInterval:
    expected = forecast(plan_of(turns, variant, concurrency=concurrency), sample=40).seconds
    assert expected is not None
    return expected


async def test_pairs_at_once_share_the_time() -> None:
    one, ten = (seconds(made(40), "ps_tpg_fa", number) for number in (1, 10))
    assert ten.value == pytest.approx(one.value / 10)


async def test_where_the_server_decides_the_time_is_between_the_most_calls_in_flight_and_the_fewest() -> None:
    most = RunnerConfig().llm_calls
    few, auto, many = (seconds(made(2 * most), "single_llm", number) for number in (START, "auto", most))
    assert auto == (many.value, many.low, few.high)
    assert few.value == pytest.approx(many.value * most / START)


async def test_programs_take_their_time_in_few_sandboxes_however_many_calls_are_in_flight() -> None:
    assert seconds(made(1000), "no_screen", 500).value == pytest.approx(1000 * 2 / RunnerConfig().sandboxes)
