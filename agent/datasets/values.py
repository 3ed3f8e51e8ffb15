"""Convert values of any file format to labels, grades and ids. These are the only rules for such values."""

from __future__ import annotations

import math
from typing import Any

# In lower case, with `_` instead of spaces and hyphens. CSV files write numbers and null as text.
_LABELS = {
    **dict.fromkeys(("1", "1.0", "yes", "true", "match", "relevant", "positive"), 1),
    **dict.fromkeys(("0", "0.0", "no", "false", "no_match", "irrelevant", "not_relevant", "negative"), 0),
    **dict.fromkeys(("", "null", "nan"), None),
}
# Some metrics use 2 ** grade, which must remain finite.
_MAX_GRADE = 100


def parse_label(value: Any) -> int | None:
    """Return the label in a field: 1, 0, or None if there is no label.

    Accepts 0, 1, yes, no, true, false, and the names match, no_match, relevant, irrelevant, not_relevant, positive and
    negative. Numbers and truth values may be text. Null, NaN and blank text are no label.

    Raises:
        ValueError: the value is not a label. The message is suitable for users.
    """
    name = "null" if value is None else _as_name(value)
    if name not in _LABELS:
        raise ValueError(f"{describe(value)}; expected 0, 1, yes, no, true, false or null")
    return _LABELS[name]


def parse_grade(value: Any) -> int:
    """Return the grade in a field: a whole number, such as 2, 2.0 or "2.0", or a label of 0 or 1 (see `parse_label`).

    Raises:
        ValueError: the value is not a grade. The message is suitable for users.
    """
    if (label := _LABELS.get(_as_name(value))) is not None:
        return label
    try:
        number = float(value)
    except (ValueError, TypeError, OverflowError):
        number = math.nan
    if not number.is_integer() or abs(number) > _MAX_GRADE:
        raise ValueError(f"{describe(value)}; expected a whole number up to {_MAX_GRADE}")
    return int(number)


def parse_id(value: Any) -> str:
    """Return the id in a field: text that is not empty, or a whole number.

    Raises:
        ValueError: the value is not an id. The message is suitable for users.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{describe(value)}; an id must be text or a whole number")
    if value == "":
        raise ValueError("empty; an id must be text or a whole number")
    return str(value)


def describe(value: Any) -> str:
    """Return a short description of a value for messages."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _as_name(value: Any) -> str:
    is_scalar = isinstance(value, str | bool | int | float)
    return str(value).strip().lower().replace(" ", "_").replace("-", "_") if is_scalar else "object"
