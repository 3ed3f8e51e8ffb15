"""Words for people that every part needs."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, as in `1 pair` and `2,000 pairs`; `many` where it takes more than an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def hidden(character: str) -> bool:
    """Say whether a character has no shape, or breaks or reorders what has one: control, format, surrogate and such."""
    return unicodedata.category(character) in _HIDDEN
