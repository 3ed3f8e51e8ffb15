"""Extracts parts of code, to measure which parts searchers rely on (as in Table 7 of the CoSQA paper).

There are four views of a code snippet:

| view | content | in the paper |
|---|---|---|
| full | the complete code | complete code |
| no-docstring | everything except docstrings, at any depth | w/o documentation |
| signature | the headers of functions, classes and class members, from decorators to colon | w/o body & documentation |
| body | everything except docstrings and headers | w/o header & documentation |

As in the paper, documentation means docstrings, so comments are kept. In JavaScript and TypeScript, `/** … */` comments
are docstrings, and signatures contain no comments. A function nested in another function belongs to the body of the
outer function. Views are cut from the source text, which preserves layout and comments. Line endings are converted to
`\\n`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from agent.datasets.benchmark import Benchmark
from agent.errors import UnsupportedLanguage, UsageError
from agent.languages.base import CodeView, Language
from agent.languages.python.source import Function, normalise, parse
from agent.languages.registry import Languages
from agent.retrieval.searchers.base import report_progress
from agent.types import Progress

FULL = "full"
# The end of a first sentence, a paragraph, or the text before a field (`:param x:`), a doctest or a heading (`Args:`).
_END = re.compile(
    r"(?<=[.!?])\s+(?=[^a-z\s])|\n[ \t]*\n|(?:^|\n)[ \t]*(?:[:@]\w|>>>|\w+:[ \t]*(?:\n|$)|\w+[ \t]*\n[ \t]*[-=~]{3})"
)


def apply_code_view(benchmark: Benchmark, name: str, progress: Progress) -> tuple[Sequence[str], tuple[str, ...]]:
    """Apply a view to a benchmark's snippets. Returns the resulting texts, and notes on unparsable and empty snippets.

    Code that does not parse, such as Python 2 code, is returned in full. Different snippets can have identical views.
    Such snippets tie in the rankings.

    Raises:
        UsageError: a view other than `full` was requested, and their language does not support the view.
    """
    codes = list(benchmark.codes.values())
    if name == FULL:
        return codes, ()
    extract = find_language(benchmark.language).extract_view
    items = report_progress(codes, "extracting code views", progress)
    try:
        views = [extract(code, cast(CodeView, name)) for code in items]
    except UnsupportedLanguage as error:
        raise UsageError(f"--code-view {name}: {benchmark.name}: {error}") from error
    unparsable = sum(text is None for text in views)
    empty = sum(text is not None and not text.strip() for text in views)
    total = f"of {len(codes):,} snippets"
    notes = (
        (
            unparsable,
            f"--code-view {name}: {unparsable:,} {total} cannot be parsed. The full text is used",
        ),
        (empty, f"--code-view {name}: this view leaves {empty:,} {total} empty"),
    )
    texts = [code if text is None else text for code, text in zip(codes, views, strict=True)]
    return texts, tuple(note for count, note in notes if count)


@cache
def find_language(name: str) -> Language:
    """Return the language with a name. An unknown language supports nothing."""
    return Languages().get(name) or Language(name)


def split_docstring(code: str, language: str, meta: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first sentence of the docstring of the only function in a snippet, and the snippet without docstrings.

    If the snippet has none, the docstring is that of `meta`, except in Python. Without a docstring, the sentence is
    empty. Returns None if the snippet does not parse, or if nothing parses its language.
    """
    try:
        view = find_language(language).extract_view(code, "no-docstring")
        if view is None or language == "python":
            return None if view is None else (find_first_sentence(code), view)
        functions = list(find_language(language).outline(code))
    except (UnsupportedLanguage, ValueError):
        return None
    docstring = functions[0].docstring if len(functions) == 1 else None
    return _cut_first_sentence(docstring or meta.get("docstring")), view


def find_first_sentence(code: str) -> str:
    """Return the first sentence of the docstring of the only function in parsable Python code, or an empty text."""
    functions = [node for node in parse(normalise(code)).body if isinstance(node, Function)]
    return _cut_first_sentence(ast.get_docstring(functions[0]) if len(functions) == 1 else None)


def _cut_first_sentence(docstring: object) -> str:
    sentence = " ".join(_END.split(docstring if isinstance(docstring, str) else "", 1)[0].split())
    return sentence if re.search(r"[^\W\d_]", sentence) else ""
