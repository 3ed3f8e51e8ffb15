"""Words of messages that every part needs."""

from __future__ import annotations

import unicodedata

from pydantic import ValidationError

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, as in `1 pair` and `2,000 pairs`; `many` where it takes more than an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def hidden(character: str) -> bool:
    """Say whether a character has no shape, or breaks or reorders what has one: control, format, surrogate and such."""
    return unicodedata.category(character) in _HIDDEN


def what_is_wrong(error: Exception) -> str:
    """Return an error's message; of a failed validation where its first mistake is, what it is, and how many more."""
    if not isinstance(error, ValidationError):
        return str(error)
    first, *rest = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {counted(len(rest), 'more mistake')})" if rest else ""
    return f"{place}{': ' if place else ''}{first['msg']}{more}"
