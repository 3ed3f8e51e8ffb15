"""TREC run files: what searchers found, query by query."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from agent.datasets.sources import opened
from agent.errors import InputError

_FIELDS = 6
# what would end a field for any reader, what cannot be UTF-8, and the sign itself
_ENCODED = re.compile(r"[\s\x00-\x1f\x7f%\ud800-\udfff]")


Check = Callable[[str, str], None]
"""Takes query and code of a line, and raises ValueError in words for the user where they cannot be."""


def read_trec(path: Path, check: Check = lambda *_: None) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each query of a run file with the scores of its codes, holding one query in memory.

    A line is `query Q0 code rank score tag`; the rank says nothing here, since equal scores tie. `%XX` in ids is the
    byte of that number (`trec_lines`). Empty lines are passed over, and `.gz` is unpacked.

    Raises:
        InputError: the file cannot be read, `check` refuses a line, or one is malformed: other than six fields, a score
            that is no finite number, an id that is not UTF-8, a code twice for a query, a query that lines of another
            one interrupt.
    """
    with opened(path, regular=True) as file:
        yield from _queries(path, file, check)


def _queries(path: Path, lines: Iterable[bytes], check: Check) -> Iterator[tuple[str, dict[str, float]]]:
    seen: set[str] = set()
    field, query = b"", ""
    found: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields:
            continue
        try:
            code, score = _parsed(fields)
            if fields[0] != field:
                if field:
                    yield query, found
                field, query, found = fields[0], _decoded(fields[0]), {}
                if query in seen:
                    raise ValueError(f"query {query!r} stood further up, before another one; sort the file by query")
                seen.add(query)
            if code in found:
                raise ValueError(f"code {code!r} stands twice for query {query!r}")
            check(query, code)
        except ValueError as error:
            raise InputError(str(error), path=path, line=number) from None
        found[code] = score
    if field:
        yield query, found


def _parsed(fields: list[bytes]) -> tuple[str, float]:
    if len(fields) != _FIELDS:
        raise ValueError(f"{len(fields)} fields instead of {_FIELDS}: query Q0 code rank score tag")
    try:
        score = float(fields[4])
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"the score is {fields[4].decode(errors='replace')!r:.40}, not a finite number")
    return _decoded(fields[2]), score


def _decoded(field: bytes) -> str:
    try:
        return (unquote_to_bytes(field) if b"%" in field else field).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise ValueError(f"the id {field.decode(errors='replace')!r:.80} is not UTF-8") from None


def trec_lines(query: str, found: Mapping[str, float], tag: str) -> Iterator[str]:
    """Yield a query's lines of a run file, best first; scores are written so that they are read as the same numbers.

    White space, control characters and `%` in ids and the tag are written as `%XX`, by the bytes of UTF-8.
    """
    query, tag = encoded(query), encoded(tag)
    ranked = sorted(found.items(), key=lambda item: -item[1])
    for rank, (code, score) in enumerate(ranked, 1):
        yield f"{query} Q0 {encoded(code)} {rank} {float(score)!r} {tag}\n"


def encoded(text: str) -> str:
    """Return an id as run files have it."""
    return _ENCODED.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), text)
