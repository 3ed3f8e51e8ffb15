"""Words of messages that every part needs, and the refusal of a wrong argument in them."""

from __future__ import annotations

import unicodedata

from pydantic import ValidationError

from agent.errors import UsageError

_KEPT = frozenset("\n\t")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, as in `1 pair` and `2,000 pairs`; `many` where it takes more than an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def hidden(character: str) -> bool:
    """Say whether a character has no shape, or breaks or reorders what has one: control, format, surrogate and such."""
    return unicodedata.category(character) in _HIDDEN


def plain(text: str, *, limit: int | None = None) -> str:
    """Return text with control, format and surrogate characters as visible escapes, cut to `limit` characters."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(
        character if character in _KEPT or not hidden(character) else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def what_is_wrong(error: Exception) -> str:
    """Return an error's message; of a failed validation where its first mistake is, what it is, and how many more."""
    if not isinstance(error, ValidationError):
        return str(error)
    first, *rest = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {counted(len(rest), 'more mistake')})" if rest else ""
    return f"{place}{': ' if place else ''}{first['msg']}{more}"


def check(name: str, value: object, kinds: tuple[type, ...], taken: str) -> None:
    """Refuse a value of another type than these; None passes, and a bool is no number.

    Raises:
        UsageError: names the argument, what was found and what is taken.
    """
    if value is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
        return
    raise UsageError(f"{name}={value!r:.60} is of type {type(value).__name__}; {name} takes {taken}")
