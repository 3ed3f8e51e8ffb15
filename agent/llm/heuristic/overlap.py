"""How much of a query a snippet's words cover."""

from __future__ import annotations

from dataclasses import dataclass

from agent.llm.heuristic.snippets import Outline, code_text
from agent.llm.heuristic.words import near, query_terms, raw_words, split_identifier, stem, terms, weight

NAME, DOC, PARAMETER, BODY = 1.0, 0.9, 0.8, 0.7
"""What a query term counts when it stands in a function's name, a docstring, a parameter's name, elsewhere."""

TYPO, PART = 0.8, 0.7
"""What a match counts when one letter differs, and when the term is only a part of a longer word."""

PART_LENGTH = 4
"""Shortest term that is looked for inside longer words."""

NAME_SHARE = 0.2
"""Share of the score that tells how much of the function's name the query asks for."""

_NAME_NOISE = frozenset({"get", "create", "check", "function", "helper", "object", "test", "init", "call", "main"})
_MAX_QUERY_TERMS = 40


@dataclass(frozen=True)
class Overlap:
    """Coverage of the query by the code and of the code's name by the query; each 0 to 1.

    `score` weighs both; `missing` are query terms that the code has nowhere.
    """

    coverage: float
    focus: float
    missing: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """Return coverage and focus as one number, 0 to 1."""
        return (1 - NAME_SHARE) * self.coverage + NAME_SHARE * self.focus


def measure(query: str, read: Outline) -> Overlap:
    """Compare a query with a snippet, by words alone."""
    asked = query_terms(query)[:_MAX_QUERY_TERMS]
    text = code_text(read)
    name_terms = terms(word for name in text.names for word in split_identifier(name))
    places = (
        (NAME, name_terms),
        (DOC, terms(word for doc in text.docs for word in raw_words(doc))),
        (PARAMETER, terms(word for name in text.parameters for word in split_identifier(name))),
        (BODY, terms(word for name in text.body for word in split_identifier(name))),
    )
    values = {term: max((share * _best(term, found) for share, found in places), default=0.0) for term in asked}
    total = sum(weight(term) for term in asked)
    if not total:
        return Overlap(0.0, 0.0)
    coverage = sum(weight(term) * value for term, value in values.items()) / total
    missing = tuple(term for term, value in values.items() if not value)
    return Overlap(coverage, _focus(asked, name_terms, coverage), missing)


def name_overlap(query: str, name: str) -> float:
    """Return how many of the query's terms a name has, by weight."""
    words = terms(split_identifier(name))
    return sum(weight(term) * _best(term, words) for term in query_terms(query)[:_MAX_QUERY_TERMS])


def _focus(asked: list[str], name_terms: list[str], coverage: float) -> float:
    telling = [term for term in name_terms if term not in _NAME_NOISE]
    if not telling:
        return coverage
    total = sum(weight(term) for term in telling)
    return sum(weight(term) * _best(term, asked) for term in telling) / total


def _best(term: str, found: list[str]) -> float:
    """Return how well the best of the found terms matches, 0 to 1."""
    if term in found:
        return 1.0
    stemmed = stem(term)
    if any(near(stemmed, stem(other)) for other in found):
        return TYPO
    if len(term) >= PART_LENGTH and any(term in other for other in found):
        return PART
    return 0.0
