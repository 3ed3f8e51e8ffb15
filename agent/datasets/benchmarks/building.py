"""Builds a benchmark from the rows of files. Checks every id, and merges codes of equal text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.datasets.formats import records, stem
from agent.datasets.sources import STDIN, BadLine, shown
from agent.errors import InputError
from agent.wording import plural

_LABELS = {"yes": 1, "no": 0}
# 2 to the power of a grade must be a finite gain.
_MOST_GRADE = 100


@dataclass(frozen=True)
class BenchmarkRequest:
    """What the user asks for: files of codes, a language and a split; the latter two may be None."""

    codes: tuple[Path, ...] = ()
    language: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class BenchmarkRow:
    """An object of a file, with its place in the file.

    Each method takes the names that a field may have and reads the first one that is present and not null. A missing
    field, or a field of another type, raises an InputError with the place.
    """

    fields: Mapping[str, Any]
    path: Path
    line: int
    prefix: str = ""

    def error(self, cause: str) -> InputError:
        """Build an error that names the place."""
        return InputError(f"{self.prefix}{cause}", path=shown(self.path), line=self.line)

    def value(self, *names: str) -> Any:
        """Return a field."""
        for name in names:
            if self.fields.get(name) is not None:
                return self.fields[name]
        there = ", ".join(map(repr, list(self.fields)[:12])) or "none"
        raise self.error(f"no field {' or '.join(map(repr, names))} (fields here: {there})")

    def text(self, *names: str) -> str:
        """Return a field of text that is not blank."""
        value = self.value(*names)
        if not isinstance(value, str) or not value.strip():
            raise self._unexpected(names, value, "text")
        return value

    def identifier(self, *names: str) -> str:
        """Return a field as an id."""
        value = self.value(*names)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise self._unexpected(names, value, "text or a whole number")
        return str(value)

    def grade(self, *names: str) -> int:
        """Return a field as a grade: a whole number, also as text; `yes` is 1 and `no` 0."""
        value = self.value(*names)
        if isinstance(value, str):
            value = _LABELS.get(value.strip().lower(), value)
        with suppress(TypeError, ValueError, OverflowError):
            if not isinstance(value, bool) and int(value) == float(value) and abs(int(value)) <= _MOST_GRADE:
                return int(value)
        raise self._unexpected(names, value, f"a whole number up to {_MOST_GRADE}")

    def _unexpected(self, names: tuple[str, ...], value: Any, expected: str) -> InputError:
        return self.error(f"{' or '.join(map(repr, names))} is {_describe(value)}; {expected} expected")


def _describe(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value) if len(repr(value)) <= 60 else f"{value!r:.60}…"


def read_rows(path: Path) -> Iterator[BenchmarkRow]:
    """Yield the objects of a file or of a dataset's folder.

    Raises:
        InputError: the file cannot be read, can be read only once, or has a line that is not an object.
        ExtraMissing: the libraries for its format are not installed.
    """
    if path == STDIN:
        raise InputError("a benchmark is read more than once; give a file", path=shown(path))
    for record in records(path, regular=not path.is_dir()):
        if isinstance(record, BadLine):
            raise InputError(record.prefix + record.cause, path=shown(path), line=record.line)
        row = BenchmarkRow(record.value, path, record.line, record.prefix)
        if not isinstance(record.value, dict):
            raise row.error(f"an object expected, found {_describe(record.value)}")
        yield row


@dataclass
class BenchmarkBuilder:
    """Collects the queries, codes and grades of the benchmark at `path`, which `request` asks for.

    A reader fills the builder. A repeated id, or a grade of an unknown query or code, raises an InputError with the
    place.
    """

    path: Path
    request: BenchmarkRequest = BenchmarkRequest()
    name: str = ""
    language: str = ""
    queries: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _first: dict[str, str] = field(default_factory=dict)
    _same: dict[str, str] = field(default_factory=dict)
    _differing: int = 0

    def __post_init__(self) -> None:
        self.name = stem(self.path if self.path.name not in ("", "..") else self.path.resolve())
        self.language = self.request.language or "python"

    def add_query(self, identifier: str, text: str, row: BenchmarkRow) -> None:
        """Add a query."""
        if identifier in self.queries:
            raise row.error(f"the query {identifier[:60]!r} is there twice; ids must differ")
        self.queries[identifier] = text

    def add_code(self, identifier: str, text: str, row: BenchmarkRow) -> None:
        """Add a code. A code with the text of an earlier one is the same item."""
        if self.has_code(identifier):
            raise row.error(f"the code {identifier[:60]!r} is there twice; ids must differ")
        first = self._first.setdefault(text, identifier)
        if first == identifier:
            self.codes[identifier] = text
        else:
            self._same[identifier] = first

    def has_code(self, identifier: str) -> bool:
        """Return whether a code has this id."""
        return identifier in self.codes or identifier in self._same

    def add_grade(self, query: str, code: str, grade: int, row: BenchmarkRow) -> None:
        """Add a grade. Of several grades for one query and code, the highest counts."""
        if query not in self.queries:
            raise row.error(f"grades the query {query[:60]!r}, which is not among the queries")
        if not self.has_code(code):
            raise row.error(f"grades the code {code[:60]!r}, which is not among the codes")
        grades, item = self.grades.setdefault(query, {}), self._same.get(code, code)
        self._differing += grades.get(item, grade) != grade
        grades[item] = max(grades.get(item, grade), grade)

    def build(self) -> Benchmark:
        """Return the benchmark.

        Raises:
            InputError: there are no queries, no codes, or no grades.
        """
        for part, what in ((self.queries, "queries"), (self.codes, "codes"), (self.grades, "grades")):
            if not part:
                raise InputError(f"holds no {what}", path=shown(self.path))
        if self._same:
            total, items = len(self.codes) + len(self._same), plural(len(self.codes), "item")
            self.notes.insert(0, f"{total:,} codes are {items}: those of equal text are one")
        if self._differing:
            repeated = plural(self._differing, "repeated grade")
            self.notes.append(f"{repeated} of a query and code with another value: the highest counts")
        return Benchmark(
            name=self.name,
            queries=self.queries,
            codes=self.codes,
            grades=self.grades,
            language=self.language,
            answers=self.answers,
            notes=tuple(dict.fromkeys(self.notes)),
            same=self._same,
        )
