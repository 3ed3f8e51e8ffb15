"""The refusal of an argument of a wrong type."""

from __future__ import annotations

from agent.errors import UsageError


def check_type(name: str, value: object, kinds: tuple[type, ...], taken: str) -> None:
    """Refuse a value of another type than these; None passes, and a bool is no number.

    Raises:
        UsageError: names the argument, what was found and what is taken.
    """
    if value is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
        return
    raise UsageError(f"{name}={value!r:.60} is of type {type(value).__name__}; {name} takes {taken}")
