"""TREC run files: what searchers found, query by query."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from agent.datasets.sources import open_source
from agent.errors import InputError

_FIELDS = 6
# what would end a field for any reader, what cannot be UTF-8, and the sign itself
_RESERVED = re.compile(r"[\s\x00-\x1f\x7f%\ud800-\udfff]")


# Takes query and code of a line, and raises ValueError in words for the user where they cannot be.
Check = Callable[[str, str], None]


def read_trec(path: Path, check: Check = lambda *_: None) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each query of a run file with the scores of its codes, holding one query in memory.

    A line is `query Q0 code rank score tag`; the rank says nothing here, since equal scores tie. `%XX` in ids is the
    byte of that number (`trec_lines`). Empty lines are passed over, and `.gz` is unpacked.

    Raises:
        InputError: the file cannot be read, `check` refuses a line, or one is malformed: other than six fields, a score
            that is no finite number, an id that is not UTF-8, a code twice for a query, a query that lines of another
            one interrupt.
    """
    seen: set[str] = set()
    field, query = b"", ""
    scores: dict[str, float] = {}
    with open_source(path, regular=True) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                query_field, code, score = _parse_line(line)
                if query_field != field:
                    if field:
                        yield query, scores
                    field, query, scores = query_field, _decode_id(query_field), {}
                    if query in seen:
                        raise ValueError(
                            f"query {query!r} stood further up, before another one; sort the file by query"
                        )
                    seen.add(query)
                if code in scores:
                    raise ValueError(f"code {code!r} stands twice for query {query!r}")
                check(query, code)
            except ValueError as error:
                raise InputError(str(error), path=path, line=number) from None
            scores[code] = score
    if field:
        yield query, scores


def _parse_line(line: bytes) -> tuple[bytes, str, float]:
    """Return the field of the query, the code and the score."""
    fields = line.split()
    if len(fields) != _FIELDS:
        raise ValueError(f"{len(fields)} fields instead of {_FIELDS}: query Q0 code rank score tag")
    try:
        score = float(fields[4])
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"the score is {fields[4].decode(errors='replace')!r:.40}, not a finite number")
    return fields[0], _decode_id(fields[2]), score


def _decode_id(field: bytes) -> str:
    try:
        return (unquote_to_bytes(field) if b"%" in field else field).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise ValueError(f"the id {field.decode(errors='replace')!r:.80} is not UTF-8") from None


def format_trec(query: str, scores: Mapping[str, float], tag: str) -> Iterator[str]:
    """Yield a query's lines of a run file, best first; scores are written so that they are read as the same numbers.

    White space, control characters and `%` in ids and the tag are written as `%XX`, by the bytes of UTF-8.
    """
    query, tag = encode_id(query), encode_id(tag)
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    for rank, (code, score) in enumerate(ranked, 1):
        yield f"{query} Q0 {encode_id(code)} {rank} {float(score)!r} {tag}\n"


def encode_id(text: str) -> str:
    """Return an id as run files have it."""
    return _RESERVED.sub(lambda match: quote(match[0], safe="", errors="surrogatepass"), text)
