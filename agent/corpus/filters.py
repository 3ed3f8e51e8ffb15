"""Decides which functions to keep, by the rules of the CoSQA and CoSQA+ papers.

Code that exceeds the parser's limits on length and depth counts as code that does not parse.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from agent.languages.python.functions import MAX_SOURCE, describe_function
from agent.languages.python.source import Function, Unparsable, normalise, parse, parse_ported, walk_scope

NOT_PARSED = "does not parse"
TRANSCRIPT = "console transcript"

MIN_ASCII = 0.9
"""Minimum share of ASCII characters in English documentation. The paper states no threshold; this one is ours."""

_PROMPT = re.compile(r"^(>>>|In \[\d+\]:|\$ )", re.MULTILINE)


def filter_cosqa_plus(code: str) -> str | None:
    """Return why CoSQA+ removes code, or None. Source: section IV-A b of the CoSQA+ paper.

    The first top-level function needs an input parameter and a `return` statement with a value, such as `return None`.
    A leading `self` or `cls` is no input parameter, even outside classes. Returns of nested functions do not count, and
    generators need a `return` with a value too.
    """
    try:
        tree = parse(normalise(code), MAX_SOURCE)
    except Unparsable:
        return NOT_PARSED
    function = next((node for node in tree.body if isinstance(node, Function)), None)
    if function is None:
        return "no function"
    if not _has_input(function.args):
        return "no input parameter"
    if not any(isinstance(node, ast.Return) and node.value is not None for node in walk_scope(function.body)):
        return "no return value"
    return None


def _has_input(arguments: ast.arguments) -> bool:
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if positional and positional[0] in ("self", "cls"):
        del positional[0]
    return bool(positional or arguments.kwonlyargs or arguments.vararg or arguments.kwarg)


def filter_cosqa(code: str, documentation: str | None) -> str | None:
    """Return why CoSQA removes code with this documentation, or None. Source: "Code Collection" in section 3.1 of the
    CoSQA paper.

    Code must be one complete function with English documentation, without images and `http://` links. The language is
    judged only by the share of ASCII characters.
    """
    text = (documentation or "").strip()
    if not text:
        return "no documentation"
    if "<img" in text or "http://" in text:
        return "image or link in the documentation"
    if sum(character.isascii() for character in text) < MIN_ASCII * len(text):
        return "documentation is not English"
    return None if describe_function(code) else "incomplete"


FILTERS: Mapping[str, Callable[[str, str | None], str | None]] = MappingProxyType(
    {"cosqa-plus": lambda code, _: filter_cosqa_plus(code), "cosqa": filter_cosqa}
)
"""Filters by name. Each takes code and its documentation, and returns the reason for removal or None."""


def classify_non_python(code: str) -> str | None:
    """Return what code is if it is not Python: `TRANSCRIPT`, `NOT_PARSED`, or None for Python.

    Python 2 code is Python, too, if a mechanical port of its syntax parses. A transcript starts with the prompt of an
    interpreter or a shell, or it does not parse and has a prompt at the start of a line.
    """
    text = normalise(code).strip()
    if _PROMPT.match(text):  # Before the parser: `In [1]: x = 5` is an annotated assignment.
        return TRANSCRIPT
    try:
        parse_ported(code, MAX_SOURCE)
    except Unparsable:
        return TRANSCRIPT if _PROMPT.search(text) else NOT_PARSED
    return None
