"""Prices: dated, overridable, and unknown rather than guessed."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import yaml

from agent.errors import ConfigError
from agent.llm.prices import Price, Prices
from agent.types import Usage

MILLION = Usage(calls=1, input_tokens=1_000_000, output_tokens=1_000_000)


def test_a_million_tokens_cost_what_the_table_says() -> None:
    assert Prices.of().cost(MILLION, "gpt-4o-mini") == pytest.approx(0.15 + 0.60)


def test_cached_input_costs_its_own_price() -> None:
    usage = Usage(input_tokens=1_000_000, cached_input_tokens=400_000)
    assert Prices.of().cost(usage, "gpt-4o-mini") == pytest.approx(0.6 * 0.15 + 0.4 * 0.075)


def test_cached_input_without_a_price_of_its_own_costs_as_other_input() -> None:
    usage = Usage(input_tokens=1_000_000, cached_input_tokens=400_000)
    assert Price(input=2, output=3).cost(usage) == pytest.approx(2.0)


def test_more_cached_than_input_tokens_never_make_a_negative_cost() -> None:
    usage = Usage(input_tokens=10, cached_input_tokens=1_000)
    assert Price(input=2, output=3, cached_input=1).cost(usage) == pytest.approx(10 / 1_000_000)


def test_reasoning_tokens_are_part_of_the_output_and_not_billed_twice() -> None:
    price = Price(input=1, output=1)
    assert price.cost(Usage(output_tokens=10, reasoning_tokens=8)) == price.cost(Usage(output_tokens=10))


def test_an_unknown_model_has_no_cost() -> None:
    assert Prices.of().cost(MILLION, "some-local-model") is None
    assert Prices.of().priced(MILLION, "some-local-model").cost_usd is None


@pytest.mark.parametrize(
    "name", ["gpt-4o-mini-audio-preview", "gpt-4o-minimal", "gpt-4.1-nano-of-mine", "deepseek-flash-2"]
)
def test_a_name_that_only_begins_like_a_known_one_is_unknown(name: str) -> None:
    assert Prices.of().find(name) is None


def test_a_dated_snapshot_is_found_by_its_pattern() -> None:
    assert Prices.of().find("gpt-4o-mini-2024-07-18") == Prices.of().find("gpt-4o-mini")


def test_an_exact_name_wins_over_a_pattern_and_the_longest_pattern_over_others() -> None:
    prices = Prices.of(
        {
            "m*": {"input": 1, "output": 1},
            "my-*": {"input": 2, "output": 2},
            "my-model": {"input": 3, "output": 3},
        }
    )
    found = [prices.find(name) for name in ("my-model", "my-other", "mine")]
    assert [price.input if price else None for price in found] == [3, 2, 1]


def test_the_first_name_with_a_price_decides() -> None:
    prices = Prices.of({"served": {"input": 1, "output": 0}})
    assert prices.cost(MILLION, "alias-of-the-gateway", "served") == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["mine: {input: 1, output: 2}", '{"models": {"mine": {"input": 1, "output": 2}}}'])
def test_a_users_file_in_yaml_or_json_adds_to_the_table(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    prices = Prices.of(file)
    assert prices.cost(MILLION, "mine") == pytest.approx(3.0)
    assert prices.find("gpt-4o-mini") is not None


def test_a_users_price_replaces_the_shipped_one() -> None:
    assert Prices.of({"gpt-4o-mini": {"input": 0, "output": 0}}).cost(MILLION, "gpt-4o-mini") == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "mine: 3",
        "mine: {input: -1, output: 2}",
        "mine: {input: .nan, output: 2}",
        "mine: {input: 1}",
        "- a",
        "{",
        "a: b: c",
    ],
)
def test_a_malformed_table_is_refused_and_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"prices\.yaml"):
        Prices.of(file)


def test_a_missing_file_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        Prices.of(tmp_path / "nowhere.yaml")


def test_the_shipped_table_is_dated_and_lies_inside_the_package() -> None:
    import agent.llm.prices

    table = yaml.safe_load(Path(agent.llm.prices.__file__).with_name("prices.yaml").read_text())
    assert isinstance(table["date"], datetime.date)
    assert all(source.startswith("https://") for source in table["sources"].values())
