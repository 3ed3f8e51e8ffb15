"""Recognises the language of code with magika, whose model is part of its wheel. Only this module imports `magika`."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent.types import normalise_language

if TYPE_CHECKING:
    from magika import Magika


def is_installed() -> bool:
    """Return whether the extra with magika is installed."""
    return find_spec("magika") is not None


def recognise_language(code: str) -> str | None:
    """Return the language of code, or None if magika is not installed. Text in no recognised language is `txt`."""
    if not is_installed():
        return None
    result = _load_model().identify_bytes(code.encode("utf-8", "replace"))
    return normalise_language(str(result.output.label))


@cache
def _load_model() -> Magika:
    from magika import Magika

    return Magika()
