"""Decides which functions to keep, by the rules of the CoSQA and CoSQA+ papers, which are about Python.

Code that exceeds the parser's limits on length and depth counts as code that does not parse.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from agent.languages.base import FoundFunction, Language
from agent.languages.python import functions as python
from agent.languages.python.functions import MAX_SOURCE
from agent.languages.python.source import Function, Unparsable, normalise, parse, parse_ported, walk_scope

NOT_PARSED = "does not parse"
TRANSCRIPT = "console transcript"
UNSUPPORTED = "language without this filter"

MIN_ASCII = 0.9
"""Minimum share of ASCII characters in English documentation. The paper states no threshold; this one is ours."""

_PROMPT = re.compile(r"^(>>>|In \[\d+\]:|\$ )", re.MULTILINE)


def filter_cosqa_plus(code: str, language: Language) -> str | None:
    """Return why CoSQA+ removes code, or None. Source: section IV-A b of the CoSQA+ paper.

    In other languages than Python, the rule applies to the first function that is not a callback, including methods.
    Arrow functions return the value of their expression.
    """
    if language.name == "python":
        return _filter_python(code)
    try:
        function = next(iter(language.outline(code)), None)
    except ValueError:
        return NOT_PARSED
    if function is None:
        return "no function"
    if function.has_input is None or function.returns_value is None:
        return UNSUPPORTED
    return _name_missing(function.has_input, function.returns_value)


def _filter_python(code: str) -> str | None:
    """Return why CoSQA+ removes Python code, or None.

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
    returns = (node for node in walk_scope(function.body) if isinstance(node, ast.Return))
    return _name_missing(_has_input(function.args), any(node.value is not None for node in returns))


def _name_missing(has_input: bool, returns_value: bool) -> str | None:
    return "no input parameter" if not has_input else "no return value" if not returns_value else None


def _has_input(arguments: ast.arguments) -> bool:
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if positional and positional[0] in ("self", "cls"):
        del positional[0]
    return bool(positional or arguments.kwonlyargs or arguments.vararg or arguments.kwarg)


def filter_cosqa(code: str, documentation: str | None, language: Language) -> str | None:
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
    return None if describe_function(code, language) else "incomplete"


def describe_function(code: str, language: Language) -> FoundFunction | None:
    """Return the function if code consists of exactly one function. Except in Python, its documentation may precede it.

    Returns None for other code and for code that does not parse.
    """
    if language.name == "python":
        return python.describe_function(code)
    text = normalise(code).strip()
    try:
        functions = list(language.outline(text))
    except ValueError:
        return None
    function = functions[0] if len(functions) == 1 else None
    if function is None or function.end_line <= text.count("\n"):
        return None
    return function if function.start_line == 1 or function.docstring else None


FILTERS: Mapping[str, Callable[[str, str | None, Language], str | None]] = MappingProxyType(
    {"cosqa-plus": lambda code, _, language: filter_cosqa_plus(code, language), "cosqa": filter_cosqa}
)
"""Filters by name. Each takes code, its documentation and its language, and returns the reason for removal or None."""


def classify_foreign(code: str, language: Language) -> str | None:
    """Return what code is if it is not in a language: `TRANSCRIPT` or `NOT_PARSED`. Returns None if it is.

    Python 2 code is Python, too, if a mechanical port of its syntax parses. A transcript starts with the prompt of an
    interpreter or a shell, or it does not parse and has a prompt at the start of a line.
    """
    text = normalise(code).strip()
    is_python = language.name == "python"
    if is_python and _PROMPT.match(text):  # Before the parser: `In [1]: x = 5` is an annotated assignment.
        return TRANSCRIPT
    try:
        if is_python:
            parse_ported(code, MAX_SOURCE)
        else:
            next(iter(language.outline(code)), None)
    except ValueError:
        return TRANSCRIPT if _PROMPT.search(text) else NOT_PARSED
    return None
