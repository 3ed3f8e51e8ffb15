"""Type checks for arguments."""

from __future__ import annotations

from agent.errors import UsageError


def check_type(name: str, value: object, kinds: tuple[type, ...], expected: str) -> None:
    """Check that an argument has one of the given types. None is always accepted. A bool is not accepted as a number.

    Raises:
        UsageError: the argument has another type. The message names the argument, its type and the expected types.
    """
    if value is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
        return
    raise UsageError(f"{name}={value!r:.60} is of type {type(value).__name__}; expected {expected}")
