"""Token prices: a dated table that users can extend.

If a price is missing from the table, it is treated as unknown and never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from agent.errors import ConfigError
from agent.text import describe_error
from agent.types import Frozen, Usage

_TABLE = Path(__file__).with_name("prices.yaml")
_MILLION = 1_000_000


class Price(Frozen):
    """Prices in US dollars per million tokens. Without `cached_input`, cached input costs as much as other input."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)

    def cost(self, usage: Usage) -> float:
        """Return the cost of tokens in US dollars. Reasoning tokens are part of the output tokens."""
        cached = min(usage.cached_input_tokens, usage.input_tokens)
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * cached_price + usage.output_tokens * self.output) / _MILLION


_PRICES = TypeAdapter(dict[str, Price])


class Prices:
    """Prices by model name. A name that ends in `*` matches all names with that prefix."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = dict(prices)

    @classmethod
    def of(cls, source: Prices | Path | str | Mapping[str, Any] | None = None) -> Prices:
        """Return the built-in table, extended or overridden with the prices in `source`.

        `source` is a YAML or JSON file, or a mapping. It maps model names to `input`, `output` and `cached_input`
        prices, directly or under a `models` key.

        Raises:
            ConfigError: the file cannot be read, or is not a price table.
        """
        if isinstance(source, Prices):
            return source
        if isinstance(source, Mapping):
            added = _validate(source, "`prices`")
        else:
            added = {} if source is None else _read(Path(source))
        return cls({**_read_shipped(), **added})

    def find(self, model: str) -> Price | None:
        """Return the price for exactly the given model name or, failing that, for the longest matching pattern.

        Returns None if there is no match.
        """
        patterns = [name for name in self._prices if name.endswith("*") and model.startswith(name[:-1])]
        return self._prices.get(model) or self._prices.get(max(patterns, key=len, default=""))

    def cost(self, usage: Usage, *models: str) -> float | None:
        """Return the cost in US dollars at the price of the first model whose price is known, or None."""
        price = next(filter(None, map(self.find, models)), None)
        return None if price is None else price.cost(usage)

    def add_cost(self, usage: Usage, *models: str) -> Usage:
        """Return a copy of `usage` that includes the cost."""
        return usage.model_copy(update={"cost_usd": self.cost(usage, *models)})


@cache
def _read_shipped() -> dict[str, Price]:
    return _read(_TABLE)


def _read(path: Path) -> dict[str, Price]:
    import yaml

    try:
        table = yaml.safe_load(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read the prices in {path}: {cause}") from error
    return _validate(table, str(path))


def _validate(table: Any, source: str) -> dict[str, Price]:
    if isinstance(table, Mapping) and isinstance(table.get("models"), Mapping):
        table = table["models"]
    try:
        return _PRICES.validate_python(table)
    except ValidationError as error:
        raise ConfigError(
            f"{source} is not a price table: {describe_error(error)}. "
            "It maps model names to `input`, `output` and optionally `cached_input`, in dollars per million tokens."
        ) from error
