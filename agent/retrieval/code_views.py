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
from collections.abc import Iterator, Sequence
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.errors import UsageError
from agent.languages.python.source import Definition, Unparsable, normalise, parse
from agent.retrieval.searchers.base import Progress, report_progress

FULL = "full"

_TO_COLON = re.compile(rb"(?:#[^\n]*|[^:#])*:")
_TO_NEWLINE = re.compile(rb"[ \t\f]*(?:\n|\Z)")


def apply_code_view(benchmark: Benchmark, name: str, progress: Progress) -> tuple[Sequence[str], tuple[str, ...]]:
    """Apply a view to a benchmark's codes. Returns the resulting texts, and notes on unparsable and empty codes.

    Code that does not parse, such as Python 2 code, is returned in full. Different codes can have identical views. Such
    codes tie in the rankings.

    Raises:
        UsageError: a view other than `full` was requested, and the codes are not Python.
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
    total = f"of {len(codes):,} codes"
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
        source = _PythonSource(text.encode(), parse(text))
    except (Unparsable, UnicodeEncodeError):
        return None
    headers = [] if name == "no-docstring" else list(source.iterate_headers())
    if name == "signature":
        result = b"\n".join(source.text[source.find_line_start(start) : end] for start, end in headers)
    else:
        result = source.remove([*headers, *source.iterate_docstrings()])
    return result.decode().strip("\n")


class _PythonSource:
    """Python source code, encoded in UTF-8 because the column offsets in a syntax tree count bytes."""

    def __init__(self, text: bytes, tree: ast.Module) -> None:
        self.text, self.tree = text, tree
        self.lines = [0, *(newline.end() for newline in re.finditer(b"\n", text))]

    def get_span(self, node: Any) -> tuple[int, int]:
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def iterate_docstrings(self) -> Iterator[tuple[int, int]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False) is not None:
                yield self.get_span(node.body[0])

    def iterate_headers(self) -> Iterator[tuple[int, int]]:
        pending = self.tree.body[::-1]
        while pending:
            node = pending.pop()
            if isinstance(node, Definition):
                yield self._locate_header(node)
            if isinstance(node, ast.ClassDef):
                pending += node.body[::-1]

    def _locate_header(self, node: Definition) -> tuple[int, int]:
        start, _ = self.get_span(node)
        parts = [*node.bases, *node.keywords] if isinstance(node, ast.ClassDef) else [node.args, node.returns]
        nodes = [child for part in [*parts, *getattr(node, "type_params", ())] if part for child in ast.walk(part)]
        last = max((self.get_span(child)[1] for child in nodes if hasattr(child, "lineno")), default=start)
        colon = _TO_COLON.match(self.text, last)
        if node.decorator_list:
            start = self.text.rfind(b"@", 0, self.get_span(node.decorator_list[0])[0])
        return start, colon.end() if colon else last

    def find_line_start(self, start: int) -> int:
        """Return the start of the line if only white space precedes `start`. Otherwise, return `start`."""
        line = self.text.rfind(b"\n", 0, start) + 1
        return start if self.text[line:start].strip() else line

    def remove(self, spans: list[tuple[int, int]]) -> bytes:
        """Return the text without the given spans. Lines left blank by this are removed completely."""
        pieces, position = [], 0
        for start, end in sorted(spans):
            line, rest = self.find_line_start(start), _TO_NEWLINE.match(self.text, end)
            is_whole_line = rest is not None and line in self.lines
            pieces.append(self.text[position : line if is_whole_line else start])
            position = rest.end() if rest is not None and is_whole_line else end
        return b"".join([*pieces, self.text[position:]])
