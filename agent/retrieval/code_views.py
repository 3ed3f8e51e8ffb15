"""Extracts parts of Python code, to measure which parts searchers rely on (as in Table 7 of the CoSQA paper).

There are four views of a code snippet:

| view | content | in the paper |
|---|---|---|
| full | the complete code | complete code |
| no-docstring | everything except docstrings, at any depth | w/o documentation |
| signature | the headers of functions, classes and class members, from decorators to colon | w/o body & documentation |
| body | everything except docstrings and headers | w/o header & documentation |

As in the paper, documentation means docstrings, so comments are kept. A function nested in another function belongs to
the body of the outer function. Views are cut from the source text, which preserves layout and comments. Line endings
are converted to `\\n`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from agent.datasets.benchmark import Benchmark
from agent.errors import UsageError
from agent.languages.python.source import Function, Unparsable, normalise, parse
from agent.languages.python.spans import SourceSpans
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
        UsageError: a view other than `full` was requested, and the snippets are not Python.
    """
    codes = list(benchmark.codes.values())
    if name == FULL:
        return codes, ()
    if benchmark.language != "python":
        raise UsageError(
            f"--code-view {name} requires Python, but the language of {benchmark.name} is {benchmark.language}"
        )
    views = [extract_view(code, name) for code in report_progress(codes, "extracting code views", progress)]
    unparsable = sum(text is None for text in views)
    empty = sum(text is not None and not text.strip() for text in views)
    total = f"of {len(codes):,} snippets"
    notes = (
        (
            unparsable,
            f"--code-view {name}: {unparsable:,} {total} cannot be parsed as Python 3. The full text is used",
        ),
        (empty, f"--code-view {name}: this view leaves {empty:,} {total} empty"),
    )
    texts = [code if text is None else text for code, text in zip(codes, views, strict=True)]
    return texts, tuple(note for count, note in notes if count)


def extract_view(code: str, name: str) -> str | None:
    """Extract a view other than `full`. Returns None if the code does not parse.

    The view may be empty or unparsable.
    """
    text = normalise(code)
    try:
        source = SourceSpans(text.encode(), parse(text))
    except (Unparsable, UnicodeEncodeError):
        return None
    headers = [] if name == "no-docstring" else list(source.iterate_headers())
    if name == "signature":
        result = b"\n".join(source.text[source.find_line_start(start) : end] for start, end in headers)
    else:
        result = source.remove([*headers, *source.iterate_docstrings()])
    return result.decode().strip("\n")


def find_first_sentence(code: str) -> str:
    """Return the first sentence of the docstring of the only function in parsable code, or an empty text."""
    functions = [node for node in parse(normalise(code)).body if isinstance(node, Function)]
    docstring = ast.get_docstring(functions[0]) if len(functions) == 1 else None
    sentence = " ".join(_END.split(docstring or "", 1)[0].split())
    return sentence if re.search(r"[^\W\d_]", sentence) else ""
