"""The tables behind the rules, one YAML file each, read once."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml


@lru_cache(maxsize=8)
def load(name: str) -> dict[str, Any]:
    """Return the table `name` (the file's name without `.yaml`)."""
    text = files(__name__).joinpath(f"{name}.yaml").read_text("utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


def by_word(groups: dict[str, str]) -> dict[str, str]:
    """Turn `{group: "word word"}` around: `{word: group}`."""
    return {word: group for group, words in groups.items() for word in words.split()}
