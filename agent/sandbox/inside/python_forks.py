"""Runs a program in forks of a process that has imported the snippet's module. This file is a part of the harness.

For a sentinel run, the fork gives the snippet's functions the code that they would have in a fresh process. The code is
compiled without the rest of the module. If a function could have kept its original code elsewhere, the forks are not
used.
"""

from __future__ import annotations

import gc
import types
from _operator import attrgetter
from sys import getrefcount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_context import relocate, shift_lines
    from agent.sandbox.inside.python_guard import CODE, FUNCTION
    from agent.sandbox.inside.python_harness import FUTURE_FLAGS, Prepared, parse_program, prepare, run
    from agent.sandbox.inside.python_reports import NAME
    from agent.sandbox.inside.python_sentinel import ONLY_AST, SENTINEL, insert_sentinel

FRAME_CODES = {types.GeneratorType: "gi_code", types.CoroutineType: "cr_code", types.AsyncGeneratorType: "ag_code"}
FIELDS = attrgetter("co_name", "co_firstlineno", "co_freevars", "co_argcount", "co_kwonlyargcount", "co_flags")


class CodeKept(Exception):
    """The sentinel cannot reach all code of the snippet."""


def prepare_forks(job: Any) -> Callable[[Callable[..., None], bool], None]:
    """Import the snippet's module. Returns the function that runs the program in a fork, as a sentinel run or not.

    Raises:
        CodeKept: the module was not imported, or a sentinel run would differ from one in a fresh process.
    """
    prepared = prepare(job, lambda *_, **__: None)
    if prepared is None or prepared.context is None:
        raise CodeKept("the module was not imported")
    sentinels = compile_sentinels(prepared)
    codes, replacements = [*iterate_codes(prepared.context.code)], [*iterate_codes(sentinels)]
    if [*map(FIELDS, codes)] != [*map(FIELDS, replacements)]:
        raise CodeKept("the code of the snippet depends on its module")
    functions = find_functions(dict(zip(map(id, codes), zip(codes, replacements))), prepared.snippet)
    # each replacement now has as many references as the functions and constants give the original
    if [*map(getrefcount, codes)] != [*map(getrefcount, replacements)]:
        raise CodeKept("the module keeps code of the snippet apart from its functions")

    def run_in_fork(emit: Callable[..., None], is_sentinel: bool) -> None:
        if is_sentinel:
            for function, replacement in functions:
                function.__code__ = replacement
                function.__globals__[SENTINEL] = prepared.sentinel
        run(prepared, emit)

    return run_in_fork


def compile_sentinels(prepared: Prepared) -> Any:
    """Compile the snippet with sentinels, in classes that contain nothing else."""
    context: Any = prepared.context
    tree = parse_program(prepared.job)
    insert_sentinel(tree, prepared.snippet)
    nodes = [node for node in tree.body if node.lineno in prepared.snippet]
    shift_lines(nodes)
    tree.body = nodes
    if context.classes:
        lines = [" " * depth + "class %s:" % name for depth, name in enumerate(context.classes)]
        tree = compile("\n".join([*lines, " " * len(lines) + "pass"]), "", "exec", ONLY_AST, dont_inherit=True)
        block = tree
        for _ in context.classes:
            block = block.body[0]
        block.body = nodes
    return relocate(compile(tree, "", "exec", context.code.co_flags & FUTURE_FLAGS, dont_inherit=True))


def iterate_codes(code: Any) -> Iterator[Any]:
    """Iterate over the snippet's code objects in a module's code, in order."""
    for part in code.co_consts:
        if isinstance(part, CODE):
            if part.co_filename == NAME:
                yield part
            yield from iterate_codes(part)


def find_functions(replacements: dict[int, tuple[Any, Any]], snippet: range) -> list[tuple[Any, Any]]:
    """Return all functions with the snippet's code, with the code that replaces it in sentinel runs."""
    functions = []
    for item in gc.get_objects():
        kind = type(item)
        if kind is FUNCTION:
            code = item.__code__
        elif kind in FRAME_CODES:
            code = getattr(item, FRAME_CODES[kind])
        else:
            continue
        if code.co_filename == NAME and code.co_firstlineno in snippet:
            if id(code) not in replacements or kind is not FUNCTION:
                raise CodeKept("other code was derived from the snippet, or the snippet is running")
            functions.append((item, replacements[id(code)][1]))
    return functions
