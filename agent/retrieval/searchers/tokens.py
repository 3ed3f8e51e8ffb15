"""The words of queries and of codes, the same for all searchers that go by words."""

from __future__ import annotations

import re
from functools import lru_cache

_IDENTIFIER = re.compile(r"\w+")
_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=\D)|(?<=\D)(?=\d)|_+")

_LUCENE = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_LUCENE.split())
"""English words that say little of what is looked for: those of Lucene's English analyzer."""


def tokens(text: str) -> list[str]:
    """Return the words of a text in order and lower case, without stop words.

    An identifier is split at underscores, digits and changes of case; where it has several parts, the whole of it is
    a word too: `readHTTPHeader_2` gives `read`, `http`, `header`, `2` and `readhttpheader_2`.
    """
    return [token for identifier in _IDENTIFIER.findall(text) for token in _parts(identifier)]


@lru_cache(maxsize=2**17)
def _parts(identifier: str) -> tuple[str, ...]:
    parts = [part.lower() for part in _BREAK.split(identifier) if part]
    if len(parts) > 1:
        parts.append(identifier.lower())
    return tuple(part for part in parts if part not in STOP_WORDS)
