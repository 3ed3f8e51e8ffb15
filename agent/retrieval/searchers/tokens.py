"""The words of queries and of codes, the same for all searchers that go by words."""

from __future__ import annotations

import re
from functools import lru_cache

_IDENTIFIER = re.compile(r"\w+")
_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=\D)|(?<=\D)(?=\d)|_+")


def tokens(text: str) -> list[str]:
    """Return the words of a text, in order and lower case.

    An identifier is split at underscores, digits and changes of case (of ASCII letters); where it has several parts,
    the whole of it is a word too: `readHTTPHeader_2` gives `read`, `http`, `header`, `2` and `readhttpheader_2`. On the
    500 dev queries of CoSQA's search task BM25's MRR is 0.335 so, 0.333 without the whole identifiers, and 0.326
    without the stop words of Lucene's English analyzer, so that no word is left out.
    """
    return [token for identifier in _IDENTIFIER.findall(text) for token in _parts(identifier)]


@lru_cache(maxsize=2**17)
def _parts(identifier: str) -> tuple[str, ...]:
    parts = [part.lower() for part in _BREAK.split(identifier) if part]
    if len(parts) > 1:
        parts.append(identifier.lower())
    return tuple(parts)
