"""Reads the Python cells of Jupyter notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from agent.languages.python.source import Unparsable, normalise, parse

_OTHER_LANGUAGE = re.compile(r"\s*%%(?!(capture|prun|time|timeit)\b)")
# A magic or a shell command, which may continue on further lines, or a request for help, such as `x?` or `??x.y`.
_MAGIC = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?P<target>\w+[ \t]*=[ \t]*)?[%!](?:.*\\\n)*.*"
    r"|(?:\?{1,2}[ \t]*%{0,2}[\w.*]+|%{0,2}[\w.*\[\]]+\?{1,2})[ \t]*(?:\#.*)?$)",
    re.MULTILINE,
)


def read_cells(data: bytes) -> Sequence[tuple[int | None, str]]:
    """Return the numbers and sources of a notebook's code cells, except cells in other languages, such as `%%bash`.

    All cells count, from 1. A cell without a source is empty. If a cell is not valid Python, magics, shell commands and
    requests for help are removed.

    Raises:
        ValueError: the file is not a notebook, or its language is not Python.
    """
    try:
        # outputs may contain NaN and control characters
        notebook = json.loads(data.decode("utf-8-sig"), strict=False)
        metadata = notebook.get("metadata") or {}
        language = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language")
        # until version 3 of the format, cells are in worksheets
        cells = [cell for sheet in notebook.get("worksheets") or [notebook] for cell in sheet["cells"]]
        sources = [_read_source(cell) for cell in cells]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not a valid notebook ({str(error)[:100]})") from None
    except (LookupError, TypeError, AttributeError):
        raise ValueError("it is not a valid notebook (a part is missing or malformed)") from None
    if "python" not in str(language or "python").lower():
        raise ValueError(f"it is a notebook in the language {str(language)[:40]}")
    numbered = enumerate(sources, start=1)
    return [(number, _remove_magics(source)) for number, source in numbered if not _OTHER_LANGUAGE.match(source)]


def _read_source(cell: Mapping[str, Any]) -> str:
    """Return the source of a code cell (called `input` until version 3 of the format). Other cells are empty."""
    source = cell.get("source", cell.get("input")) if cell.get("cell_type") == "code" else None
    return normalise("".join(source or ""))  # a list of lines, or one text


def _remove_magics(source: str) -> str:
    def replace(match: re.Match[str]) -> str:
        text = f"{match['indent']}{match['target']}None" if match["target"] else f"{match['indent']}pass"
        return text + "\n" * match[0].count("\n")

    replaced = _MAGIC.sub(replace, source)
    # an indented magic may be the only line of its block, or have an indentation that Python does not allow
    for text in (source, replaced, _MAGIC.sub(lambda match: "\n" * match[0].count("\n"), source)):
        with suppress(Unparsable):  # valid cells may have such lines in strings
            parse(text, len(text))
            return text
    return replaced
