"""Prices can be overridden, and are never guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigError
from agent.llm.prices import Price, Prices
from agent.types import Usage

MILLION = Usage(calls=1, input_tokens=1_000_000, output_tokens=1_000_000)
READ = Usage(input_tokens=1_000_000, cached_input_tokens=400_000)


@pytest.mark.parametrize(
    ("price", "usage", "dollars"),
    [
        (Prices.of().find("gpt-4o-mini"), MILLION, 0.15 + 0.60),
        (Prices.of().find("gpt-4o-mini"), READ, 0.6 * 0.15 + 0.4 * 0.075),
        (Price(input=2, output=3, cached_input=1), Usage(input_tokens=10, cached_input_tokens=1_000), 1e-5),
        (Price(input=1, output=1), Usage(output_tokens=10, reasoning_tokens=8), 1e-5),  # not billed twice
    ],
)
def test_cost_follows_the_price(price: Price, usage: Usage, dollars: float) -> None:
    assert price.cost(usage) == pytest.approx(dollars)


@pytest.mark.parametrize(
    "name",
    ["some-local-model", "gpt-4o-mini-audio-preview", "gpt-4o-minimal", "gpt-4.1-nano-of-mine", "deepseek-flash-2"],
)
def test_an_unknown_model_has_no_cost_even_with_a_similar_name(name: str) -> None:
    assert Prices.of().find(name) is None
    assert Prices.of().cost(MILLION, name) is None
    assert Prices.of().add_cost(MILLION, name).cost_usd is None


def test_exact_names_precede_patterns_and_longer_patterns_shorter_ones() -> None:
    table = {"m*": {"input": 1, "output": 1}, "my-*": {"input": 2, "output": 2}, "my-model": {"input": 3, "output": 3}}
    prices = [Prices.of(table).find(name) for name in ("my-model", "my-other", "mine")]
    assert [price.input if price else None for price in prices] == [3, 2, 1]
    assert Prices.of().find("gpt-4o-mini-2024-07-18") == Prices.of().find("gpt-4o-mini")


def test_the_first_name_with_a_price_is_used() -> None:
    prices = Prices.of({"served": {"input": 1, "output": 0}})
    assert prices.cost(MILLION, "alias-of-the-gateway", "served") == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["mine: {input: 1, output: 2}", '{"models": {"mine": {"input": 1, "output": 2}}}'])
def test_prices_from_a_file_extend_or_replace_the_table(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    assert Prices.of(file).cost(MILLION, "mine") == pytest.approx(3.0)
    assert Prices.of(file).find("gpt-4o-mini") is not None
    assert Prices.of({"gpt-4o-mini": {"input": 0, "output": 0}}).cost(MILLION, "gpt-4o-mini") == 0.0


@pytest.mark.parametrize(
    "text",
    ["mine: 3", "mine: {input: -1, output: 2}", "mine: {input: .nan, output: 2}", "mine: {input: 1}", "- a", "{",
     "a: b: c", None],
)  # fmt: skip
def test_an_invalid_or_missing_file_is_named(tmp_path: Path, text: Any) -> None:
    file = tmp_path / "prices.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=r"prices\.yaml"):
        Prices.of(file)
