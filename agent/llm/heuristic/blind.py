"""Writes a program in two parts: scaffolding, which knows the code, and cases, which know its signature alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent.llm.heuristic import parts
from agent.llm.heuristic.generation import SMOKE, bound_names, oracle_cases, smoke_cases, takes, target
from agent.llm.heuristic.oracles import find_oracle
from agent.llm.heuristic.placing import place
from agent.llm.heuristic.scaffold import scaffold
from agent.llm.heuristic.snippets import Outline, outline

_CALL = "_given_call"
_PRIVATE = "_"


def scaffold_reply(variables: Mapping[str, Any]) -> str:
    """Answer `scaffold`: what the plain program has before its cases, up to the function that calls the snippet."""
    query, marker, read = variables["query"], variables["marker"], outline(variables["code"])
    try:
        stand_ins, blocks = _scaffold(query, read, marker)
    except RecursionError:
        stand_ins, blocks = (), [marker]
    head = json.dumps({"stand_ins": list(stand_ins)})
    return f"```json\n{head}\n```\n\n```{variables['fence']}\n{_joined(blocks)}```\n"


def _scaffold(query: str, read: Outline, marker: str) -> tuple[tuple[str, ...], list[str]]:
    function = target(query, read, _PRIVATE)
    if read.tree is None or read.fragment is not None:
        return (), [marker]
    if function is None:
        around = scaffold(read, query)
        return around.stand_ins, ["\n\n".join(parts.source("\n".join(around.lines))), "\n".join(around.lines), marker]
    placing = place(function, read)
    around = scaffold(read, query, holder=placing.holder)
    imports = [line for line in around.lines if line.startswith(("import ", "from "))]
    others = [line for line in around.lines if line not in imports]
    helpers = parts.source("\n".join([*around.lines, *placing.before, *placing.after]))
    blocks = ["\n".join(imports), *helpers, "\n\n".join(["\n".join(others), *placing.before]).strip()]
    return (*around.stand_ins, *placing.stand_ins), [*blocks, placing.marker_line(marker), *placing.after]


def blind_reply(variables: Mapping[str, Any]) -> str:
    """Answer `generate_blind`: the answers that the query asks for, where they are known, and smoke tests."""
    query, read = variables["query"], outline(variables["signature"])
    reading, blocks = _cases(query, read, variables["surroundings"])
    body = "\n".join(blocks)
    head = json.dumps({"reading": 1 if variables.get("spec") else reading, "stand_ins": []})
    return f"```json\n{head}\n```\n\n```{variables['fence']}\n{_joined([*parts.source(body), *blocks])}```\n"


def _cases(query: str, read: Outline, surroundings: str) -> tuple[str, list[str]]:
    function = target(query, read, _PRIVATE)
    placing = None if function is None else place(function, read)
    known = _CALL in surroundings
    if function is None or placing is None or not (known or placing.holder is None):
        names = ", ".join(map(ascii, bound_names(read)))
        held = f"{{{names}}} <= set(globals())" if names and not surroundings else "True"
        return "the code can be loaded", [f"def {SMOKE}_runs():\n    assert {held}"]
    blocks = [] if known else list(placing.after)
    oracle = find_oracle(query)
    reading = "the code does what its name says"
    if oracle is not None and takes(function, oracle.arity):
        blocks += oracle_cases(oracle)
        reading = oracle.reading
    return reading, [*blocks, *smoke_cases(query, function)]


def _joined(blocks: list[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"
