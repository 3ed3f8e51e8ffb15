"""Tests for the accuracy of forecasts and the coverage of their intervals."""

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
from agent.llm.limits import START
from agent.llm.models import Models
from agent.pipeline.graph import collect_known_roles, load_variant
from agent.pipeline.prompts import Prompts
from agent.runs.job import PairRound
from agent.runs.store.run_view import RunView, load_run
from agent.types import Pair
from tests.evaluation.counting import count_tokens, reply_with_usage
from tests.llm.server import ChatServer, free_port

MODEL = "gpt-4o-mini"


def make_plan(
    turns: list[PairRound],
    variant: str = "ps_tpg_fa",
    model: str = MODEL,
    concurrency: int | Literal["auto"] = 8,
) -> Plan:
    models = Models.of(model, base_url=f"http://127.0.0.1:{free_port()}/v1")
    config = Config(runner=RunnerConfig(concurrency=concurrency))
    return Plan(turns, load_variant(variant), models, Prompts(None, collect_known_roles()), config)


def make_turns(count: int, queries: int | None = None, length: int = 3) -> list[PairRound]:
    """Return `count` turns, grouped by query."""
    body = "    x = [f(y) for y in x]\n" * length
    pairs = [
        Pair(id=str(n), query=f"q {n % (queries or count)}", code=f"def f(x):\n    # {n}\n{body}") for n in range(count)
    ]
    return [PairRound(pair) for pair in group_by_query(pairs)]


class AnnotatedRun(NamedTuple):
    """A run with its turns. `tokens` has counts by pair: the screener's prompt, all prompts, all replies."""

    view: RunView
    turns: list[PairRound]
    tokens: dict[str, tuple[int, int, int]]


@pytest.fixture(scope="module")
async def annotated_run(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnnotatedRun]:
    """The 277 real pairs, annotated by a server that counts tokens and finds three of ten pairs unclear."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    pairs = list(read_pairs(real_data / "cosqa_dev.jsonl"))
    with ChatServer(reply_with_usage) as server:
        options = {"model": MODEL, "base_url": server.url, "variant": "ps_tpg_fa", "run_dir": folder}
        async with Annotator(**options) as annotator:
            assert [annotation.error async for annotation in annotator.annotate(pairs)] == [None] * len(pairs)
        prompt_tokens = {count_tokens(request.prompt) for request in server.requests}
    with load_run(folder) as view:
        counts = {}
        for annotation in view.annotations():
            history = view.evidence(annotation.id)
            assert history is not None
            prompts = [
                count_tokens("\n".join(m["content"] for m in model_call.messages)) for model_call in history.model_calls
            ]
            assert prompt_tokens.issuperset(prompts)
            replies = [count_tokens(model_call.reply) for model_call in history.model_calls]
            counts[annotation.id] = prompts[0], sum(prompts), sum(replies)
        unclear = sum(annotation.screen_verdict == "unclear" for annotation in view.annotations())
        assert unclear >= 0.2 * len(pairs)
        yield AnnotatedRun(view, [PairRound(pair) for pair in group_by_query(pairs)], counts)


def covers(expected: PredictionInterval, actual: int) -> bool:
    return expected.low <= actual <= expected.high


@pytest.mark.real_data
@pytest.mark.long
@pytest.mark.parametrize("only_new", [False, True], ids=["whole run", "pairs outside the sample"])
async def test_at_least_17_of_20_samples_cover_the_tokens_of_a_run(annotated_run: AnnotatedRun, only_new: bool) -> None:
    covered = {"in": 0, "out": 0}
    for seed in range(20):
        before = sample_run(annotated_run.view, seed=seed, size=80)
        assert before is not None
        sampled = {annotation.id for annotation, _ in before.annotations}
        turns = [turn for turn in annotated_run.turns if not (only_new and turn.pair.id in sampled)]
        prediction = forecast(make_plan(turns), before, seed=seed, sample=100)
        screened, tokens_in, tokens_out = map(
            sum, zip(*(annotated_run.tokens[turn.pair.id] for turn in turns), strict=True)
        )
        assert prediction.tokens_from == "earlier run"
        assert prediction.roles["screen"].input_tokens == pytest.approx(screened, rel=0.05)
        covered["in"] += covers(prediction.input_tokens, tokens_in)
        covered["out"] += covers(prediction.output_tokens, tokens_out)
        width = prediction.input_tokens.high - prediction.input_tokens.low
        assert width < 0.4 * tokens_in
    assert min(covered.values()) >= 17, covered


async def test_without_an_earlier_run_tokens_and_unclear_pairs_are_assumed() -> None:
    turns = make_turns(30)
    plan = make_plan(turns)
    prediction = forecast(plan)
    prompts = [plan.render_messages(plan.first_role, turn.pair) for turn in turns]
    characters = sum(len(message.content) for messages in prompts for message in messages)
    assert (prediction.tokens_from, prediction.sampled, prediction.rendered) == ("assumption", 0, 30)
    assert prediction.roles["screen"].input_tokens == pytest.approx(characters / CHARACTERS_PER_TOKEN, rel=0.001)
    assert [round(role.calls) for role in prediction.roles.values()] == [30, 10, 10]
    assert prediction.calls.value == pytest.approx(50)
    assert prediction.calls.low < 50 < prediction.calls.high
    assert prediction.cost_usd is not None
    assert prediction.cost_usd.value > 0


async def test_more_pairs_do_not_narrow_assumed_intervals() -> None:
    few, many = (forecast(make_plan(make_turns(count)), sample=40) for count in (40, 2000))
    for prediction in (few, many):
        share = prediction.calls.high / prediction.annotations
        assert 1.9 < share < 2.3
        assert prediction.input_tokens.low < 0.8 * prediction.input_tokens.value


async def test_a_variant_with_one_call_per_pair_has_an_exact_number_of_calls() -> None:
    prediction = forecast(make_plan(make_turns(40), "single_llm"))
    assert prediction.calls == (40, 40, 40)
    assert prediction.went_on is None


async def test_a_variant_without_screener_calls_every_role_for_each_pair() -> None:
    prediction = forecast(make_plan(make_turns(40), "no_screen"))
    assert (prediction.roles["generate_test"].calls, prediction.roles["arbitrate"].calls) == (40, 40)


async def test_calls_shared_by_pairs_count_once_per_query() -> None:
    prediction = forecast(make_plan(make_turns(60, queries=6), "full_plus"))
    assert prediction.roles["specify_query"].calls == pytest.approx(6)
    assert prediction.roles["screen"].calls == 60


@pytest.mark.slow
async def test_only_a_sample_of_many_prompts_is_rendered() -> None:
    turns = [*make_turns(400), *(PairRound(turn.pair, 1) for turn in make_turns(400))]
    partial, full = (forecast(make_plan(turns, "single_llm"), sample=size) for size in (100, 800))
    assert (partial.annotations, partial.rendered, partial.calls.value) == (800, 100, 800)
    assert partial.input_tokens.value == pytest.approx(full.input_tokens.value, rel=0.01)


async def test_prompts_of_one_query_share_longer_prefixes() -> None:
    one, many = (forecast(make_plan(make_turns(40, queries=queries, length=30), "ps_fa")) for queries in (1, 40))
    assert 0.5 < many.equal_share < one.equal_share < 1
    assert one.saved_usd is not None
    assert many.saved_usd is not None
    assert 0 < many.saved_usd < one.saved_usd


async def test_the_cost_is_none_if_the_price_is_unknown() -> None:
    prediction = forecast(make_plan(make_turns(20), model="unheard-of"))
    assert (prediction.cost_usd, prediction.saved_usd) == (None, None)
    assert prediction.input_tokens.value > 0


async def test_the_heuristic_costs_nothing() -> None:
    prediction = forecast(make_plan(make_turns(20), model="heuristic"))
    assert prediction.input_tokens == prediction.output_tokens == (0, 0, 0)
    assert prediction.cost_usd == (0, 0, 0)
    assert prediction.calls.value > 20


def predict_seconds(turns: list[PairRound], variant: str, concurrency: int | Literal["auto"]) -> PredictionInterval:
    expected = forecast(make_plan(turns, variant, concurrency=concurrency), sample=40).seconds
    assert expected is not None
    return expected


async def test_concurrency_divides_the_time() -> None:
    one, ten = (predict_seconds(make_turns(40), "ps_tpg_fa", number) for number in (1, 10))
    assert ten.value == pytest.approx(one.value / 10)


async def test_time_with_automatic_concurrency_ranges_from_maximum_to_initial_concurrency() -> None:
    most = RunnerConfig().llm_calls
    few, auto, many = (predict_seconds(make_turns(2 * most), "single_llm", number) for number in (START, "auto", most))
    assert auto == (many.value, many.low, few.high)
    assert few.value == pytest.approx(many.value * most / START)


async def test_the_number_of_sandboxes_limits_the_speed_of_programs() -> None:
    assert predict_seconds(make_turns(1000), "no_screen", 500).value == pytest.approx(
        1000 * 2 / RunnerConfig().sandboxes
    )
