"""Reads the posts of a Stack Exchange dump (https://archive.org/details/stackexchange) from its file Posts.xml.

The file is an element `posts` with an element `row` for each post. All values are attributes, and `Body` contains HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.parsers import expat

from agent.datasets.benchmarks.building import BenchmarkRow
from agent.datasets.sources import STDIN, display_name, open_source
from agent.errors import InputError, needs_extra
from agent.types import Progress

MAX_ROW_BYTES = 4 << 20
"""Maximum size of a row. The rows of Stack Exchange have at most a few hundred kilobytes."""

_CHUNK = 1 << 18
_ARCHIVES = {b"7z\xbc\xaf\x27\x1c": "7z", b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
_BLOCK = re.compile(r"^(blockquote|br|d[dlt]|div|h[1-6r]|li|[ou]l|p|pre|table|t[dhr])$")
# References to tabs and line breaks are valid and frequent.
_REFERENCE = re.compile(rb"&#(?!x[9AaDd];|9;|1[03];)(x[0-9a-fA-F]{1,12}|[0-9]{1,12});")
_CUT = expat.errors.XML_ERROR_NO_ELEMENTS, expat.errors.XML_ERROR_UNCLOSED_TOKEN, expat.errors.XML_ERROR_PARTIAL_CHAR


def read_posts(
    path: Path, progress: Progress, count_dropped: Callable[[int], None] = lambda _: None
) -> Iterator[BenchmarkRow]:
    """Iterate over the rows, with their attributes as fields. `-` is standard input, and `.gz` files are decompressed.

    Drops references to characters that XML does not allow, such as `&#x0E;`, which real dumps contain. At the end,
    `count_dropped` receives their number.

    Raises:
        InputError: the file cannot be read, is cut off, is not a Posts.xml, contains a DOCTYPE, is not valid XML, or
            does not have the encoding that it declares.
    """
    if path.is_dir():
        raise InputError("is a folder. Pass the file Posts.xml in it", path=path)
    reader = _RowReader(path)
    total = None if path == STDIN or path.suffix == ".gz" or not path.is_file() else path.stat().st_size
    with open_source(path) as file:
        while chunk := file.read(_CHUNK) + file.readline(MAX_ROW_BYTES):  # no reference crosses lines
            yield from reader.parse(chunk)
            progress("reading posts (MB)", reader.size >> 20, total and total >> 20)
        yield from reader.parse(b"")
    count_dropped(reader.dropped)


class _RowReader:
    def __init__(self, path: Path) -> None:
        self._path, self._depth, self._rows = path, 0, list[BenchmarkRow]()
        self.size = self.dropped = 0  # size in bytes of the parsed chunks, and the number of dropped references
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._reject_doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end

    def parse(self, chunk: bytes) -> list[BenchmarkRow]:
        """Return the rows that end in a chunk. An empty chunk is the end of the file."""
        is_end, chunk = not chunk, _REFERENCE.sub(self._filter, chunk)
        if not self.size and (kind := next((name for start, name in _ARCHIVES.items() if chunk.startswith(start)), "")):
            raise InputError(f"is a {kind} archive. Extract it first", path=display_name(self._path))
        self._rows, start = [], self.size
        self.size += len(chunk)
        try:
            self._parser.Parse(chunk, is_end)
        except expat.ExpatError as error:
            raise self._explain(error, chunk[max(self._parser.ErrorByteIndex - start, 0) :]) from None
        except (ValueError, LookupError) as error:
            raise self._build_error(f"the declared encoding cannot be read ({error}). Convert to UTF-8") from None
        if self.size - max(self._parser.CurrentByteIndex, 0) > MAX_ROW_BYTES:
            raise self._build_error(f"a row is longer than {MAX_ROW_BYTES >> 20} MB")
        return self._rows

    def _filter(self, reference: re.Match[bytes]) -> bytes:
        digits = reference[1].decode()
        code = int(digits[1:], 16) if digits.startswith("x") else int(digits)
        if 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF or code in (9, 10, 13):
            return reference[0]
        self.dropped += 1
        return b""

    def _explain(self, error: expat.ExpatError, rest: bytes) -> InputError:
        problem = expat.ErrorString(error.code)
        if problem in _CUT:
            cause = "the file is empty or cut off"
        elif problem == expat.errors.XML_ERROR_INVALID_TOKEN and rest[:1] >= b"\x80":
            cause = f"the byte 0x{rest[0]:02x} is not valid in the encoding that the first line declares (or UTF-8)"
        else:
            cause = f"is not valid XML ({problem}, column {error.offset + 1})"
        return self._build_error(f"{cause}. Download or extract the file again", error.lineno)

    def _build_error(self, cause: str, line: int | None = None) -> InputError:
        return InputError(cause, path=display_name(self._path), line=line or self._parser.CurrentLineNumber)

    def _reject_doctype(self, *_: Any) -> None:
        raise self._build_error("contains a DOCTYPE, which dumps of Stack Exchange do not have. The file is not read")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > 2 or name != ("posts", "row")[self._depth - 1]:
            cause = f"contains the element <{name[:40]}>; expected <posts> with <row> elements"
            raise self._build_error(f"{cause}. Pass the file Posts.xml of a dump")
        if self._depth == 2:
            self._rows.append(BenchmarkRow(attributes, self._path, self._parser.CurrentLineNumber))

    def _end(self, _: str) -> None:
        self._depth -= 1


def extract_text(html: str) -> str:
    """Return the text of a post without HTML tags. Code keeps its place, line breaks and indentation.

    Raises:
        ValueError: the HTML cannot be parsed.
        ExtraMissing: BeautifulSoup is not installed.
    """
    with needs_extra("corpus"):
        import bs4.element
    try:
        # BeautifulSoup warns if a text without a line break looks like a file name
        nodes: list[object] = [bs4.BeautifulSoup(f"{html}\n", "html.parser")]
    except bs4.ParserRejectedMarkup as error:
        raise ValueError(str(error)) from error
    pieces, needs_break = [""], False
    while nodes:
        node = nodes.pop()
        if isinstance(node, bs4.Tag):
            breaks = [None] if _BLOCK.match(node.name) else []
            nodes += [*breaks, *reversed(node.contents), *breaks]
        elif node is None:
            needs_break = True
        elif type(node) in (bs4.CData, bs4.element.NavigableString) and not (needs_break and node == " "):
            has_break = pieces[-1].endswith("\n") or str(node).startswith("\n")
            pieces += ["\n" if needs_break and not has_break else "", str(node)]
            needs_break = False
    return re.sub(r"\A\s*\n", "", "".join(pieces).rstrip())
