"""What is wrong with a value from outside, in one line."""

from __future__ import annotations

from pydantic import ValidationError

from agent.wording import counted


def what_is_wrong(error: Exception) -> str:
    """Return an error's message; of a failed validation where its first mistake is, what it is, and how many more."""
    if not isinstance(error, ValidationError):
        return str(error)
    first, *rest = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {counted(len(rest), 'more mistake')})" if rest else ""
    return f"{place}{': ' if place else ''}{first['msg']}{more}"
