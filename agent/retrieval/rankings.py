"""Reads and writes rankings as TREC run files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from agent.datasets.sources import open_source, read_lines
from agent.errors import InputError

_FIELDS = 6
# Characters at which a reader may split fields or lines, surrogates, and the percent sign itself.
_RESERVED = re.compile(r"[\s\x00-\x1f\x7f%\ud800-\udfff]")


# A callback that receives the query id and the code id of a line. To reject the line, it raises a ValueError with a
# message for the user.
Check = Callable[[str, str], None]


def read_trec(path: Path, check: Check = lambda *_: None) -> Iterator[tuple[str, dict[str, float]]]:
    """Iterate over a TREC run file, yielding each query with the scores of its snippets. Loads one query at a time.

    A line has the form `query Q0 code rank score tag`, with UTF-8 ids and a finite score. The rank is ignored, because
    snippets with equal scores tie. `%XX` in an id represents the UTF-8 byte XX (see `format_trec`). Empty lines are
    skipped, and `.gz` files are decompressed.

    Raises:
        InputError: the file cannot be read, a line is malformed or rejected by `check`, a snippet is repeated for a
            query, or the lines of a query are not consecutive.
    """
    seen: set[str] = set()
    field, query = b"", ""
    scores: dict[str, float] = {}
    with open_source(path, regular=True) as file:
        for number, line in enumerate(read_lines(file, path), 1):
            if not line.strip():
                continue
            try:
                query_field, code, score = _parse_line(line)
                if query_field != field:
                    if field:
                        yield query, scores
                    field, query, scores = query_field, _decode_id(query_field), {}
                    if query in seen:
                        raise ValueError(f"the lines of query {query!r} are not consecutive. Sort the file by query")
                    seen.add(query)
                if code in scores:
                    raise ValueError(f"snippet {code!r} is repeated for query {query!r}")
                check(query, code)
            except ValueError as error:
                raise InputError(str(error), path=path, line=number) from None
            scores[code] = score
    if field:
        yield query, scores


def _parse_line(line: bytes) -> tuple[bytes, str, float]:
    """Return the query id (still encoded), the code id and the score."""
    fields = line.split()
    if len(fields) != _FIELDS:
        raise ValueError(f"expected {_FIELDS} fields (query Q0 code rank score tag), got {len(fields)}")
    try:
        score = float(fields[4])
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"the score {fields[4].decode(errors='replace')!r:.40} is not a finite number")
    return fields[0], _decode_id(fields[2]), score


def _decode_id(field: bytes) -> str:
    try:
        return (unquote_to_bytes(field) if b"%" in field else field).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise ValueError(f"the id {field.decode(errors='replace')!r:.80} is not UTF-8") from None


def format_trec(query: str, scores: Mapping[str, float], tag: str) -> Iterator[str]:
    """Format a query's ranking as lines of a run file, best snippet first. `read_trec` restores the exact scores.

    In ids and in the tag, white space, control characters and `%` are encoded as `%XX` (per UTF-8 byte).
    """
    query, tag = encode_id(query), encode_id(tag)
    ranking = sorted(scores.items(), key=lambda item: -item[1])
    for rank, (code, score) in enumerate(ranking, 1):
        yield f"{query} Q0 {encode_id(code)} {rank} {float(score)!r} {tag}\n"


def encode_id(text: str) -> str:
    """Percent-encode an id for a run file."""
    return _RESERVED.sub(lambda match: quote(match[0], safe="", errors="surrogatepass"), text)
