"""Writes a test program for a pair: scaffolding, the marker, and test cases of four strengths."""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.llm.heuristic import parts
from agent.llm.heuristic.arguments import plausible_arguments
from agent.llm.heuristic.examples import find_examples
from agent.llm.heuristic.expectations import expected_type
from agent.llm.heuristic.oracles import Oracle, find_oracle
from agent.llm.heuristic.overlap import name_overlap
from agent.llm.heuristic.placing import Placing, place
from agent.llm.heuristic.scaffold import Scaffold, scaffold
from agent.llm.heuristic.snippets import Function, Outline, outline

ORACLE, EXAMPLE, TYPE, SMOKE = "test_oracle", "test_example", "test_type", "test_smoke"
"""Beginnings of the names of test cases, from the strongest to the weakest.

`test_oracle`: the answer that the query asks for. `test_example`: what the docstring shows. `test_type`: the type that
the query asks for. `test_smoke`: the code takes plausible arguments, and answers the same twice.
"""

_VARYING = (
    "random",
    "time",
    "uuid",
    "now",
    "today",
    "urandom",
    "shuffle",
    "next",
    "count",
    "os.",
    "id(",
    "yield",
    "socket",
    "tempfile",
)
"""Words in code whose results may differ from call to call."""


@dataclass(frozen=True)
class Written:
    """A program with its marker line."""

    reading: str
    stand_ins: tuple[str, ...]
    program: str


def generate_reply(variables: Mapping[str, Any]) -> str:
    """Answer `generate_test`: a block with reading and stand-ins, and a block with the program."""
    written = write_program(variables["query"], variables["code"], variables["marker"])
    reading = 1 if variables.get("spec") else written.reading
    head = json.dumps({"reading": reading, "stand_ins": list(written.stand_ins)})
    return f"```json\n{head}\n```\n\n```{variables['fence']}\n{written.program}```\n"


def write_program(query: str, code: str, marker: str) -> Written:
    """Return a program for any query and code; a minimal one where the code cannot be read. Never raises."""
    read = outline(code)
    try:
        return _write(query, read, marker)
    except RecursionError:
        return _minimal(Outline(code, problem="nested too deeply to be read by rule"), marker)


def _write(query: str, read: Outline, marker: str) -> Written:
    function = target(query, read)
    if function is None or read.fragment is not None:
        return _minimal(read, marker, scaffold(read, query) if read.tree is not None else None)
    placing = place(function, read)
    around = scaffold(read, query, holder=placing.holder)
    cases = _cases(query, read, function, placing)
    body = [*placing.after, *cases.lines]
    before = [*around.lines, *placing.before]
    helpers = parts.source("\n".join([*before, *body]))
    imports = [line for line in around.lines if line.startswith(("import ", "from "))]
    others = [line for line in around.lines if line not in imports]
    text = "\n\n".join(
        block
        for block in (
            "\n".join(imports),
            "\n\n".join(helpers),
            "\n\n".join(["\n".join(others), *placing.before]).strip(),
            placing.marker_line(marker),
            "\n\n".join(body),
        )
        if block
    )
    return Written(cases.reading, (*around.stand_ins, *placing.stand_ins), text + "\n")


def _minimal(read: Outline, marker: str, around: Scaffold | None = None) -> Written:
    """Return a program that only runs the snippet and finds the names it binds."""
    if read.fragment is not None:
        place, check = _inside_function(read.fragment, marker), "_given_settle(_given_fragment())"
    else:
        names = bound_names(read)
        place, check = (
            marker,
            f"assert {{{', '.join(map(ascii, names))}}} <= set(globals())" if names else "assert True",
        )
    lines = around.lines if around is not None else ()
    case = f"def {SMOKE}_runs():\n    {check}"
    helpers = parts.source("\n".join([*lines, case]))
    blocks = ["\n\n".join(helpers), "\n".join(lines), place, case]
    stand_ins = around.stand_ins if around is not None else ()
    return Written("the code runs", stand_ins, "\n\n".join(block for block in blocks if block) + "\n")


def _inside_function(why: str, marker: str) -> str:
    """Return a function, and a loop if need be, around the marker."""
    head = "async def _given_fragment():" if "await" in why or "async" in why else "def _given_fragment():"
    if "loop" in why:
        return f"{head}\n    for _given_once in (0,):\n        {marker}"
    return f"{head}\n    {marker}"


def bound_names(read: Outline) -> list[str]:
    """Return the names that a snippet binds when it is loaded, the first 50."""
    if read.tree is None:
        return []
    names: dict[str, None] = {}
    for node in read.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.setdefault(node.name)
        elif isinstance(node, ast.Assign):
            names |= dict.fromkeys(target.id for target in node.targets if isinstance(target, ast.Name))
    return list(names)[:50]


def target(query: str, read: Outline, hidden: str = "__") -> Function | None:
    """Return the function to test: the one whose name says most of the query, the last of equals.

    Methods whose names begin with `hidden` are not called.
    """
    callable_ones = [f for f in read.functions if not (f.owner and f.name.startswith(hidden) and f.name != "__call__")]
    if not callable_ones:
        return read.functions[-1] if len(read.functions) == 1 and read.functions[0].owner is None else None
    ranked = [(name_overlap(query, function.name), index) for index, function in enumerate(callable_ones)]
    return callable_ones[max(ranked)[1]]


@dataclass(frozen=True)
class Cases:
    reading: str
    lines: list[str]


def _cases(query: str, read: Outline, function: Function, placing: Placing) -> Cases:
    lines = _example_cases(read, function, placing)
    reading = "the code does what its name and its docstring say"
    oracle = find_oracle(query)
    if oracle is not None and takes(function, oracle.arity):
        lines += oracle_cases(oracle)
        reading = oracle.reading
    return Cases(reading, lines + _smoke_cases(query, read, function))


def takes(function: Function, count: int) -> bool:
    """Say whether a call may give this many arguments, all by position."""
    keywords_needed = any(parameter.required for parameter in function.parameters if parameter.keyword_only)
    positional = function.positional
    at_least = sum(parameter.required for parameter in positional)
    return at_least <= count and (count <= len(positional) or function.starred) and not keywords_needed


def oracle_cases(oracle: Oracle) -> list[str]:
    """Return the cases of a query whose answer is known."""
    blocks = [f"_given_expected = {oracle.expected}"]
    for number, case in enumerate(oracle.cases, 1):
        blocks.append(
            f"def {ORACLE}_{oracle.name}_{number}():\n"
            f"    assert _given_agrees(_given_call, lambda: ({case},), _given_expected, {oracle.accept!r})"
        )
    return blocks


def _example_cases(read: Outline, function: Function, placing: Placing) -> list[str]:
    if placing.holder is not None or function.owner is not None:
        return []
    names = frozenset({*dir(builtins), *read.free, *(each.name for each in read.functions)})
    blocks = []
    for number, example in enumerate(find_examples(function, names), 1):
        setup = "".join(f"    {line}\n" for line in example.setup)
        blocks.append(
            f"def {EXAMPLE}_{number}():\n{setup}"
            f"    value, printed, _ = _given_outcome(lambda: {example.expression}, ((), {{}}))\n"
            f"    assert _given_shows(value, printed, {_quoted(example.want)}), repr(value)"
        )
    return blocks


def _smoke_cases(query: str, read: Outline, function: Function) -> list[str]:
    blocks = smoke_cases(query, function)
    if any(word in read.code for word in _VARYING):
        return blocks
    twice = (
        f"def {SMOKE}_answers_the_same_twice():\n"
        "    once, printed_once, _ = _given_first(_given_call, _given_arguments)\n"
        "    again, printed_again, _ = _given_first(_given_call, _given_arguments)\n"
        "    assert _given_shown(once) == _given_shown(again)\n"
        "    assert _given_shown(printed_once) == _given_shown(printed_again)"
    )
    return [*blocks[:2], twice, *blocks[2:]]


def smoke_cases(query: str, function: Function) -> list[str]:
    """Return what can be tested without knowing what is right: arguments are taken, and the result's type fits."""
    lists = ",\n    ".join(given.source() for given in plausible_arguments(function, query))
    blocks = [
        f"_given_arguments = [\n    {lists},\n]",
        f"def {SMOKE}_takes_plausible_arguments():\n    assert _given_first(_given_call, _given_arguments)",
    ]
    wanted = expected_type(query)
    if wanted is not None:
        blocks.append(
            f"def {TYPE}_of_the_result():\n"
            "    result, printed, first = _given_first(_given_call, _given_arguments)\n"
            f"    assert _given_type(result, {wanted.types!r}, {wanted.refused!r}), "
            f"{f'the query asks for {wanted.words}, not '!r} + type(result).__name__"
        )
    return blocks


def _quoted(text: str) -> str:
    """Return text as a literal of plain ASCII without backticks, which would end the block of a reply."""
    return ascii(text).replace("`", "\\x60")
