"""What a reviewer may be called."""

from __future__ import annotations

from agent.errors import UsageError
from agent.wording import hidden

LONGEST_NAME = 100


def reviewer_named(name: object) -> str:
    """Return a reviewer's name without blanks around it.

    Raises:
        UsageError: it is no text, empty, too long, or has characters that cannot be seen.
    """
    trimmed = name.strip() if isinstance(name, str) else ""
    if not trimmed or len(trimmed) > LONGEST_NAME or any(map(hidden, trimmed)):
        raise UsageError(f"a name is one line of at most {LONGEST_NAME} visible characters")
    return trimmed
