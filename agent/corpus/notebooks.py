"""Reads the Python cells of Jupyter notebooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from agent.errors import ExtraMissing
from agent.languages.python.source import Unparsable, normalise, parse

_OTHER_LANGUAGE = re.compile(r"\s*%%(?!(capture|prun|time|timeit)\b)")
_MAGIC = re.compile(r"^([ \t]*(?:\w+[ \t]*=[ \t]*)?)[%!].*", re.MULTILINE)


def read_cells(data: bytes) -> Sequence[tuple[int | None, str]]:
    """Return the numbers and sources of a notebook's code cells, except cells in other languages, such as `%%bash`.

    All cells count, from 1. If a cell is not valid Python, magics and shell commands become `pass` or `None`.

    Raises:
        ValueError: the file is not a notebook, or its language is not Python.
        ExtraMissing: nbformat is not installed.
    """
    try:
        import nbformat
        from nbformat import reader
    except ImportError as error:
        raise ExtraMissing("corpus", error) from error
    try:
        notebook = nbformat.convert(reader.reads(data.decode("utf-8-sig")), 4)  # type: ignore[no-untyped-call]
        metadata = notebook.get("metadata", {})
        language = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language")
        sources = [normalise(cell.source) if cell.cell_type == "code" else "" for cell in notebook.cells]
    # nbformat does not check the structure
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, nbformat.ValidationError) as error:
        raise ValueError(f"it is not a valid notebook ({str(error)[:100]})") from None
    if "python" not in str(language or "python").lower():
        raise ValueError(f"it is a notebook in the language {str(language)[:40]}")
    cells = enumerate(sources, start=1)
    return [(number, _remove_magics(cell)) for number, cell in cells if not _OTHER_LANGUAGE.match(cell)]


def _remove_magics(source: str) -> str:
    with suppress(Unparsable):  # such lines may belong to strings
        parse(source, len(source))
        return source
    return _MAGIC.sub(lambda match: match[1] + ("None" if "=" in match[1] else "pass"), source)
