"""The query specification's rule: one reading, whose requirements are the telling words of the query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent.llm.heuristic.expectations import expected_type
from agent.llm.heuristic.oracles import find_oracle
from agent.llm.heuristic.words import query_terms, weight

_MOST = 6
_LONGEST = 300


def specify_reply(variables: Mapping[str, Any]) -> str:
    """Answer `specify_query`: the query itself as the one reading, and what its words and its kind require."""
    query = " ".join(variables["query"].split())[:_LONGEST] or "nothing"
    terms = sorted(query_terms(query), key=weight, reverse=True)[:_MOST]
    required = [f"It has to do with {term[:_LONGEST]!r}." for term in terms]
    oracle, wanted = find_oracle(query), expected_type(query)
    if oracle is not None:
        required.insert(0, f"It does this: {oracle.reading}.")
    if wanted is not None:
        required.append(f"The result is {wanted.words}.")
    return json.dumps({"readings": [{"reading": query, "requirements": required or [f"It answers: {query}"]}]})
