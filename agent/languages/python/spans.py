"""Locate docstrings and headers in the text of Python source, and cut them out.

A span is a pair of byte offsets: the start, and the position after the end.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from agent.languages.base import CodeView
from agent.languages.python.source import Definition, Unparsable, normalise, parse

_TO_COLON = re.compile(rb"(?:#[^\n]*|[^:#])*:")
_TO_NEWLINE = re.compile(rb"[ \t\f]*(?:\n|\Z)")


class SourceSpans:
    """Locates parts of normalised Python source. `tree` is the syntax tree of `text`.

    The source is encoded in UTF-8, because the column offsets in a syntax tree count bytes.
    """

    def __init__(self, text: bytes, tree: ast.Module) -> None:
        self.text, self.tree = text, tree
        self.lines = [0, *(newline.end() for newline in re.finditer(b"\n", text))]

    def get_span(self, node: Any) -> tuple[int, int]:
        """Return the span of a node that has a position. The span of a definition excludes its decorators."""
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def iterate_docstrings(self) -> Iterator[tuple[int, int]]:
        """Iterate over the spans of all docstrings, at any depth."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False) is not None:
                yield self.get_span(node.body[0])

    def iterate_headers(self) -> Iterator[tuple[int, int]]:
        """Iterate over the spans of the headers of functions, classes and class members.

        A header extends from the first decorator to the colon. Functions nested in other functions are skipped.
        """
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


def extract_view(code: str, name: CodeView) -> str | None:
    """Extract a view. Returns None if the code does not parse.

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
