"""Recognises the language of code with magika, whose model is part of its wheel. Only this module imports `magika`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from agent.types import normalise_language

if TYPE_CHECKING:
    from magika import Magika


def recognise_language(code: str) -> str | None:
    """Return the language of code, or None if magika is not installed. Text in no recognised language is `txt`."""
    model = _load_model()
    result = model and model.identify_bytes(code.encode("utf-8", "replace"))
    return normalise_language(str(result.output.label)) if result else None


@cache
def _load_model() -> Magika | None:
    try:
        from magika import Magika
    except ImportError:
        return None
    return Magika()
