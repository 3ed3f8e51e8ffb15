"""Parts of Python codes, to see what searchers find them by: the ablation of CoSQA's Table 7.

| view | is | in the paper |
|---|---|---|
| full | the code as it is | complete code |
| no-docstring | all but the docstrings, at any depth | w/o documentation |
| signature | the headers of functions, classes and their members, from decorators to colon | w/o body & documentation |
| body | the rest: all but docstrings and headers | w/o header & documentation |

Documentation is docstrings, as in the paper; comments stay where they stand. A function inside of a function is of its
body. What is kept is cut from the text, never written anew, so that layout and comments stay; newlines become `\\n`.
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
    """Return the texts of a benchmark's codes in a view, and notes on those that have none.

    A code that does not parse, such as one of Python 2, stays full. Different codes may have equal texts: they tie.

    Raises:
        UsageError: the view is not `full`, and the codes are not Python.
    """
    codes = list(benchmark.codes.values())
    if name == FULL:
        return codes, ()
    if benchmark.language != "python":
        raise UsageError(f"--code-view {name} is for Python; the codes of {benchmark.name} are {benchmark.language}")
    views = [extract_view(code, name) for code in report_progress(codes, "cutting codes", progress)]
    unread = sum(text is None for text in views)
    empty = sum(text is not None and not text.strip() for text in views)
    of = f"of {len(codes):,} codes"
    notes = (
        (unread, f"{unread:,} {of} do not parse as Python 3 and stay full under --code-view {name}"),
        (empty, f"{empty:,} {of} have nothing under --code-view {name}"),
    )
    texts = [code if text is None else text for code, text in zip(codes, views, strict=True)]
    return texts, tuple(note for count, note in notes if count)


def extract_view(code: str, name: str) -> str | None:
    """Return a code in a view but `full`; None when it does not parse. It may be empty, and need not parse itself."""
    text = normalise(code)
    try:
        source = _PythonSource(text.encode(), parse(text))
    except (Unparsable, UnicodeEncodeError):
        return None
    headers = [] if name == "no-docstring" else list(source.iterate_headers())
    if name == "signature":
        kept = b"\n".join(source.text[source.find_line_start(start) : end] for start, end in headers)
    else:
        kept = source.remove([*headers, *source.iterate_docstrings()])
    return kept.decode().strip("\n")


class _PythonSource:
    """Python as UTF-8, since the columns of syntax trees count its bytes."""

    def __init__(self, text: bytes, tree: ast.Module) -> None:
        self.text, self.tree = text, tree
        self.lines = [0, *(newline.end() for newline in re.finditer(b"\n", text))]

    def get_span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends."""
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def iterate_docstrings(self) -> Iterator[tuple[int, int]]:
        """Yield where docstrings are."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False) is not None:
                yield self.get_span(node.body[0])

    def iterate_headers(self) -> Iterator[tuple[int, int]]:
        """Yield where headers are, in order."""
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
        nodes = [each for part in [*parts, *getattr(node, "type_params", ())] if part for each in ast.walk(part)]
        last = max((self.get_span(each)[1] for each in nodes if hasattr(each, "lineno")), default=start)
        colon = _TO_COLON.match(self.text, last)
        if node.decorator_list:
            start = self.text.rfind(b"@", 0, self.get_span(node.decorator_list[0])[0])
        return start, colon.end() if colon else last

    def find_line_start(self, start: int) -> int:
        """Return where the line begins if only blanks are before, else the place itself."""
        line = self.text.rfind(b"\n", 0, start) + 1
        return start if self.text[line:start].strip() else line

    def remove(self, spans: list[tuple[int, int]]) -> bytes:
        """Return the text without these; of a line that held nothing else nothing stays."""
        kept, at = [], 0
        for start, end in sorted(spans):
            line, rest = self.find_line_start(start), _TO_NEWLINE.match(self.text, end)
            whole = rest is not None and line in self.lines
            kept.append(self.text[at : line if whole else start])
            at = rest.end() if rest is not None and whole else end
        return b"".join([*kept, self.text[at:]])
