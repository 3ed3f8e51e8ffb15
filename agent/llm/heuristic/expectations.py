"""What a query says about the type of the result."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.llm.heuristic.words import raw_words, term

_TARGET = re.compile(r"\b(?:to|into) (?:a |an |the )?(?:numpy |pandas |python |unique )?(\w+)\b")
_QUESTION = re.compile(
    r"^(?:how to |how do i |how do you |function to )?(?:check|test|determine|see|detect) (?:if|whether|that)\b"
)

_CHANGES = frozenset(term(word) for word in ("convert", "parse", "decode", "encode", "split", "change"))
"""Verbs that make what follows "to" the type of the result."""

_TYPES: dict[str, tuple[str, str]] = {
    "list": ("a list", "list tuple ndarray set Series Index dict_keys dict_values"),
    "tuple": ("a tuple", "tuple list"),
    "dict": ("a dictionary", "dict OrderedDict defaultdict Counter"),
    "set": ("a set", "set frozenset"),
    "string": ("text", "str bytes"),
    "int": ("a whole number", "int int32 int64 uint8 float"),
    "float": ("a number", "float int float64 float32 Decimal"),
    "bool": ("a truth value", "bool bool_"),
    "byte": ("bytes", "bytes bytearray"),
    "date": ("a date", "datetime date Timestamp struct_time"),
    "json": ("JSON", "str dict list bytes"),
    "dataframe": ("a data frame", "DataFrame"),
    "numpy": ("an array", "ndarray"),
}


@dataclass(frozen=True)
class ResultType:
    """What the result should be: in words, and the names of the types that are accepted."""

    words: str
    types: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def expected_type(query: str) -> ResultType | None:
    """Return the type that a query asks for ("… to list", "check if …"), or None where it names none."""
    text = " ".join(word for word in raw_words(query[:2000]) if not word.startswith("python"))
    if _QUESTION.search(text):
        return ResultType("a yes or a no", refused=("str", "bytes", "list", "dict", "tuple", "set", "DataFrame"))
    match = _TARGET.search(text)
    words = text.split()
    if len(words) > 3 and not _CHANGES & {term(word) for word in words}:
        return None
    plural = match is not None and match[1].endswith("s") and match[1] != "bytes"  # then each part is meant
    known = _TYPES.get(term(match[1])) if match and not plural else None
    # A word that follows the type may be the real object ("to string list"): only the last word is a type for sure.
    if match is None or known is None or match.end() != len(text):
        return None
    described, types = known
    return ResultType(described, types=tuple(types.split()))
