"""Words for people that every part needs."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, as in `1 pair` and `2,000 pairs`; `many` where it takes more than an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
