"""Builds triples (question, description, answer) from a Stack Exchange dump, as in sections 3.1 to 3.4 of ProCQA.

The posts of a dump (https://archive.org/details/stackexchange) are in its file Posts.xml: an element `posts` with an
element `row` for each post. All values are attributes, and `Body` contains HTML.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from xml.parsers import expat

from agent.corpus.split import PARTS
from agent.datasets.benchmarks.building import BenchmarkRow
from agent.datasets.encoding import dumps, loads
from agent.datasets.sources import STDIN, display_name, open_source
from agent.errors import InputError, needs_extra
from agent.temp_database import TempDatabase
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
        self._path = path
        self._depth = 0
        self._rows = list[BenchmarkRow]()
        self.size = self.dropped = 0  # size in bytes of the parsed chunks, and the number of dropped references
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._reject_doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end

    def parse(self, chunk: bytes) -> list[BenchmarkRow]:
        """Return the rows that end in a chunk. An empty chunk is the end of the file."""
        is_end = not chunk
        chunk = _REFERENCE.sub(self._filter, chunk)
        if not self.size and (kind := next((name for start, name in _ARCHIVES.items() if chunk.startswith(start)), "")):
            raise InputError(f"is a {kind} archive. Extract it first", path=display_name(self._path))
        self._rows = []
        start = self.size
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
    pieces = [""]
    needs_break = False
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


MIN_CHARACTERS = 20
MAX_CHARACTERS = 4096
"""Limits for descriptions and answers without HTML tags (section 3.2 of the ProCQA paper)."""
MAX_HTML_CHARACTERS = 1 << 16
"""Limit for descriptions and answers with HTML tags. Stack Exchange limits posts to 30,000 characters of Markdown."""

_QUESTION = 1
_ANSWER = 2
_NUMBER = re.compile(r"-?[0-9]{1,18}")
OTHER_TAGS = "other tags"
_NO_ANSWER = "accepted answer is not in the dump"
_DUPLICATE = "duplicate id"
# `answer` and `record` are null if the question is removed
_TABLES = """
CREATE TABLE questions (id INTEGER PRIMARY KEY, answer INTEGER, language INTEGER, time REAL, record BLOB);
CREATE TABLE answers (id INTEGER, question INTEGER, removed_by TEXT, record BLOB, PRIMARY KEY (id, question));
CREATE VIEW joined AS
    SELECT language, time, questions.id, questions.record AS question, answers.record AS answer, removed_by
    FROM questions LEFT JOIN answers ON answers.id = questions.answer AND answers.question = questions.id
    WHERE questions.answer IS NOT NULL
"""
_INDEX = "CREATE INDEX by_time ON questions (language, time, id) WHERE answer IS NOT NULL"


@dataclass
class DumpSummary:
    """Counts of posts and triples.

    `removed` counts the questions without a triple by reason. `several_languages` counts triples with tags of several
    languages. `orphans` are answers whose question is not in the dump. `dropped_characters` counts characters that XML
    does not allow. `triples` has the number of triples by language and part, `licences` the number of texts by licence,
    and `sha256` the hashes of the files by part.
    """

    posts: int = 0
    questions: int = 0
    answers: int = 0
    several_languages: int = 0
    orphans: int = 0
    dropped_characters: int = 0
    removed: Counter[str] = field(default_factory=Counter)
    triples: dict[str, dict[str, int]] = field(default_factory=dict)
    licences: Counter[str] = field(default_factory=Counter)
    sha256: dict[str, str] = field(default_factory=dict)

    def count_triples(self) -> dict[str, int]:
        """Count the triples of each language."""
        return {language: sum(parts.values()) for language, parts in self.triples.items()}


class TripleTable:
    """Joins questions with their accepted answers, in a temporary file.

    Posts may be added in any order. `languages` are tags in lower case. A question belongs to the first of its tags
    that is in `languages`, so no question is in two languages.

    Raises (all methods):
        StorageError: the temporary file cannot be written.
        ExtraMissing: BeautifulSoup is not installed.
    """

    def __init__(self, languages: Sequence[str], site: str) -> None:
        self._languages = languages
        self._site = site
        self._scratch = TempDatabase(_TABLES)
        self.summary = DumpSummary()

    def add_posts(self, posts: Iterable[BenchmarkRow]) -> None:
        """Add posts.

        Raises:
            InputError: an attribute is missing or malformed.
        """
        for post in posts:
            self.summary.posts += 1
            kind = _read_number(post, "PostTypeId")
            if kind == _QUESTION:
                self._add_question(post)
            elif kind == _ANSWER:
                self._add_answer(post)

    def count_dropped(self, number: int) -> None:
        """Count characters that the dump contains but XML does not allow."""
        self.summary.dropped_characters += number

    def _add_question(self, post: BenchmarkRow) -> None:
        tags = re.findall(r"[^<>|\s]+", post.fields.get("Tags", ""))  # <c><arrays>, or |c|arrays| since 2024
        languages = [tag for tag in tags if tag in self._languages]
        values: tuple[Any, ...] = (None,) * 4
        reason = None if languages else OTHER_TAGS
        text = ""
        if languages and not post.fields.get("AcceptedAnswerId"):
            reason = "no accepted answer"
        elif languages:
            reason, text = _read_body(post, "description")
        if not reason:
            texts = {"question": post.get_text("Title").strip(), "description": text, "tags": tags}
            record = dumps(self._describe(post, "q") | texts)
            answer = _read_number(post, "AcceptedAnswerId")
            values = answer, self._languages.index(languages[0]), _read_time(post).timestamp(), record
        row = _read_number(post, "Id"), *values
        if not self._scratch.execute_many("INSERT OR IGNORE INTO questions VALUES (?, ?, ?, ?, ?)", [row]):
            reason = _DUPLICATE
        self.summary.questions += 1
        self.summary.removed += Counter([reason] if reason else [])

    def _add_answer(self, post: BenchmarkRow) -> None:
        """Store an answer if its question accepts it or comes later."""
        identifier = _read_number(post, "Id")
        question = _read_number(post, "ParentId")
        self.summary.answers += 1
        found = self._scratch.execute("SELECT answer FROM questions WHERE id = ?", (question,))
        if found and found[0][0] != identifier:
            return
        reason, text = _read_body(post, "answer")
        row = identifier, question, reason, None if reason else dumps(self._describe(post, "a") | {"code": text})
        self._scratch.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", row)

    def _describe(self, post: BenchmarkRow, kind: Literal["q", "a"]) -> dict[str, Any]:
        """Return the fields that questions and answers have in common. Their names in answers begin with `answer_`."""
        user = post.fields.get("OwnerUserId")
        name = post.fields.get("OwnerDisplayName")
        fields = {
            "id": post.get_text("Id"),
            "created": _read_time(post).isoformat(timespec="milliseconds"),
            "score": _read_number(post, "Score"),
            "author": f"https://{self._site}/users/{user}" if user else name or "anonymous",
            "url": f"https://{self._site}/{kind}/{post.get_text('Id')}",
            "licence": post.fields.get("ContentLicense") or "unknown",
        }
        return {f"answer_{field}": value for field, value in fields.items()} if kind == "a" else fields

    def write(self, folder: Path, progress: Progress) -> DumpSummary:
        """Write `train.jsonl`, `validation.jsonl` and `test.jsonl`, and return the complete summary.

        The parts have 80%, 10% and 10% of each language, in the order of the questions' dates. Test has at least one
        triple, and so has validation if there are two.
        """
        self._scratch.execute(_INDEX)
        self._count_missing()
        with ExitStack() as stack:
            files = {part: stack.enter_context((folder / f"{part}.jsonl").open("wb")) for part in PARTS}
            hashes = {part: sha256() for part in PARTS}
            for language in self._languages:
                self.summary.triples[language] = dict.fromkeys(PARTS, 0)
                for part, row in self._iterate_rows(language, progress):
                    files[part].write(line := dumps(row) + b"\n")
                    hashes[part].update(line)
                    self.summary.triples[language][part] += 1
                    self.summary.licences.update((row["licence"], row["answer_licence"]))
                    self.summary.several_languages += len({*row["tags"]}.intersection(self._languages)) > 1
        self.summary.sha256 = {part: digest.hexdigest() for part, digest in hashes.items()}
        return self.summary

    def _iterate_rows(self, language: str, progress: Progress) -> Iterator[tuple[str, dict[str, Any]]]:
        source = "FROM joined WHERE language = ? AND answer IS NOT NULL"
        values = (self._languages.index(language),)
        total = self._scratch.execute(f"SELECT count(*) {source}", values)[0][0]
        held_out = max(round(total / 10), 1)
        triples = self._scratch.iterate(f"SELECT question, answer {source} ORDER BY time, id", values)
        for number, records in enumerate(triples):
            question, answer = map(loads, records)
            query = f"{question['question']}\n{question['description']}"
            first = {"id": question["id"], "query": query, "code": answer["code"], "label": 1, "language": language}
            left = total - number
            yield (
                "test" if left <= held_out else "validation" if left <= 2 * held_out else "train",
                first | question | answer,
            )
            if number % 1000 == 0:
                progress(f"writing {language}", number, total)

    def _count_missing(self) -> None:
        execute = self._scratch.execute
        query = "SELECT ifnull(removed_by, ?), count(*) FROM joined WHERE answer IS NULL GROUP BY 1"
        self.summary.removed.update(dict(execute(query, (_NO_ANSWER,))))
        orphans = "SELECT count(*) FROM answers WHERE NOT EXISTS (SELECT 1 FROM questions WHERE id = answers.question)"
        self.summary.orphans = execute(orphans)[0][0]


def _read_body(post: BenchmarkRow, name: str) -> tuple[str | None, str]:
    """Return the text of a post, and the reason if it is removed."""
    html = post.fields.get("Body", "")
    try:
        text = extract_text(html) if len(html) <= MAX_HTML_CHARACTERS else ""
    except ValueError:
        return f"{name} has unreadable HTML", ""
    if len(html) > MAX_HTML_CHARACTERS or len(text) > MAX_CHARACTERS:
        return f"{name} is too long", ""
    return (f"{name} is too short" if len(text) < MIN_CHARACTERS else None), text


def _read_number(post: BenchmarkRow, name: str) -> int:
    value = post.get_text(name)
    if not _NUMBER.fullmatch(value):
        raise post.build_error(f"{name!r} is {value!r:.40}; expected a whole number")
    return int(value)


def _read_time(post: BenchmarkRow) -> datetime:
    value = post.get_text("CreationDate")
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise post.build_error(f"'CreationDate' is {value!r:.40}; expected a time (ISO 8601)") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
