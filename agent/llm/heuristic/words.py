"""Words of queries and of code, brought to a common form: split, stemmed, synonyms joined."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from agent.llm.heuristic.tables import load

MAX_WORDS = 2000
"""Distinct words kept of one text; keeps hostile input from costing time."""

MAX_WORD = 40
"""Longer words are cut: no term of the field is longer."""

TYPO_LENGTH = 5
"""Shortest word in which one wrong letter is forgiven."""

_TABLE = load("words")

STOP_WORDS = frozenset(_TABLE["stop"].split())
"""Words that say nothing about what code does."""

GENERIC_WEIGHT = 0.4
"""Weight of verbs and nouns that fit nearly any code."""

TYPE_WEIGHT = 0.7
"""Weight of names of types: telling, yet shared by many."""

_IRREGULAR = {"children": "child", "axes": "axis", "men": "man", "people": "person", "ran": "run", "written": "write"}
_VOWEL = re.compile(r"[aeiouy]")
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a word without its inflection: `removing`, `removed` and `removes` give the same."""
    word = _IRREGULAR.get(word, word)
    for suffix, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(suffix) and len(word) > len(suffix) + 1:
            return _without_e(word[: -len(suffix)] + replacement)
    if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix in ("ing", "ed"):
        rest = word[: -len(suffix)]
        if word.endswith(suffix) and not word.endswith("string") and len(rest) >= 3 and _VOWEL.search(rest):
            doubled = rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return _without_e(rest[:-1] if doubled else rest)
    return _without_e(word)


def _without_e(word: str) -> str:
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def _synonyms() -> dict[str, str]:
    table: dict[str, str] = {}
    for line in _TABLE["groups"].splitlines():
        group = line.split()
        for word in group:
            table.setdefault(stem(word), group[0])
    return table


_SYNONYMS = _synonyms()
_WEIGHTS = {
    **{_SYNONYMS.get(stem(word), stem(word)): TYPE_WEIGHT for word in _TABLE["types"].split()},
    **{_SYNONYMS.get(stem(word), stem(word)): GENERIC_WEIGHT for word in _TABLE["generic"].split()},
}


@lru_cache(maxsize=65536)
def term(word: str) -> str:
    """Return the common form of a word: the first of its synonyms, or its stem."""
    stemmed = stem(word)
    return _SYNONYMS.get(stemmed, stemmed)


def weight(a_term: str) -> float:
    """Return how much a term tells: 1, or less for verbs and types that every other query has."""
    return _WEIGHTS.get(a_term, 1.0)


def raw_words(text: str) -> list[str]:
    """Return the words of prose in lower case, in order, stop words included."""
    text = text.lower().replace("data frame", "dataframe").replace("white space", "whitespace")
    return [word[:MAX_WORD] for word in _WORD.findall(text)][:MAX_WORDS]


def split_identifier(name: str) -> list[str]:
    """Return the words of `snake_case`, `camelCase` and `str2bool` names in lower case; `is_x` asks to check x."""
    words = [part.lower()[:MAX_WORD] for part in _CAMEL.findall(name[:400])]
    return ["check", *words[1:]] if len(words) > 1 and words[0] in ("is", "has", "are", "can") else words


def terms(words: Iterable[str]) -> list[str]:
    """Return the terms of the words that carry meaning, in order, each once."""
    found: dict[str, None] = {}
    for word in words:
        if word not in STOP_WORDS and len(word) > 1:
            found.setdefault(term(word))
            if len(found) >= MAX_WORDS:
                break
    return list(found)


def query_terms(query: str) -> list[str]:
    """Return the terms of a search query."""
    return terms(raw_words(query[:20_000]))


def near(one: str, other: str) -> bool:
    """Say whether two words differ by one letter: inserted, left out, changed or swapped with its neighbour."""
    if len(one) > len(other):
        one, other = other, one
    if len(one) < TYPO_LENGTH or len(other) - len(one) > 1 or one == other:
        return one == other
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(one) < len(other):
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :]
    return one[at + 1 :] == other[at + 1 :] or swapped
