"""Simple queries whose answer is known: what to call the code with, and what to expect, worked out without the code.

An oracle is used when a query's terms are all among those it knows, so that a query which asks for more is left alone.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Literal

from agent.llm.heuristic.tables import load
from agent.llm.heuristic.words import query_terms, raw_words, term, terms

Accept = Literal["equal", "any", "truth", "unordered", "holds"]
"""How a result is compared with what was expected."""


@dataclass(frozen=True)
class Oracle:
    """What a kind of query expects.

    `needs`: of each group one term must be in the query; `also`: further terms that change nothing. `expected`: source
    of a function of the arguments; `cases`: source of argument tuples. `accept`: `equal`, `any` (one of several),
    `truth` (a yes or no), `unordered`, or `holds` (the expected value is a predicate).
    """

    name: str
    needs: tuple[frozenset[str], ...]
    also: frozenset[str]
    expected: str
    cases: tuple[str, ...]
    accept: Accept = "equal"

    @property
    def arity(self) -> int:
        """Return how many arguments a case gives."""
        arguments = ast.parse(f"({self.cases[0]},)", mode="eval").body
        return len(arguments.elts) if isinstance(arguments, ast.Tuple) else 1

    @property
    def reading(self) -> str:
        """Return the reading of the query that is tested."""
        return self.name.replace("_", " ")


def _oracle(name: str, row: dict[str, Any]) -> Oracle:
    return Oracle(
        name=name.replace(" ", "_"),
        needs=tuple(frozenset(terms(raw_words(group))) for group in row.get("needs", "").split("+")),
        also=frozenset(terms(raw_words(row.get("also", "")))),
        expected=row["expected"],
        cases=tuple(row["cases"]),
        accept=row.get("accept", "equal"),
    )


_TABLE = load("oracles")

COMMON = frozenset(terms(raw_words(_TABLE["common"])))
"""Terms that change nothing about what a simple query asks for."""

ORACLES: tuple[Oracle, ...] = tuple(_oracle(name, row) for name, row in _TABLE["queries"].items())
"""Oracles by query; the first that fits is used, so the narrower ones stand first."""

CONVERSIONS: dict[str, Oracle] = {name: _oracle(name, row) for name, row in _TABLE["conversions"].items()}
"""Oracles of conversions, by "source to target"."""

_CONVERSION = re.compile(r"\b(\w+) (?:to|into|as|2) (?:a |an )?(\w+)\b")
_CONVERTING = frozenset(terms(raw_words(_TABLE["converting"])))


def find_oracle(query: str) -> Oracle | None:
    """Return the oracle whose terms the query fits, or None; none answers by raising, as `assert` does."""
    if "assert" in raw_words(query[:2000]):
        return None
    asked = set(query_terms(query))
    conversion = _conversion(query, asked)
    if conversion is not None:
        return conversion
    for oracle in ORACLES:
        covered = COMMON | oracle.also | frozenset().union(*oracle.needs)
        if asked <= covered and all(asked & group for group in oracle.needs):
            return oracle
    return None


def _conversion(query: str, asked: set[str]) -> Oracle | None:
    match = _CONVERSION.search(" ".join(raw_words(query[:2000])))
    if match is None:
        return None
    source, target = term(match[1]), term(match[2])
    oracle = CONVERSIONS.get(f"{source} to {target}")
    return oracle if asked <= {source, target} | _CONVERTING | COMMON else None
