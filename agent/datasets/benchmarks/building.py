"""How a benchmark is put together from the rows of files: every id checked, codes of equal text made one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.datasets.formats import records, stem
from agent.datasets.sources import STDIN, BadLine, shown
from agent.errors import InputError, UsageError
from agent.wording import counted

_LABELS = {"yes": 1, "no": 0}
_MOST_GRADE = 100
"""Gains of 2 to the power of a grade are numbers."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for: files of codes, and language and split where they are given."""

    codes: tuple[Path, ...] = ()
    language: str | None = None
    split: str | None = None

    def check_codes(self, path: Path, expected: str = "") -> None:
        """Raise a UsageError unless codes are given where a benchmark has none of its own (`expected` says which)."""
        if expected and not self.codes:
            raise UsageError(f"{path}: holds queries alone; give the codes to search by --codes ({expected})")
        if self.codes and not expected:
            raise UsageError(f"{path}: brings its own codes; leave --codes out")


@dataclass(frozen=True)
class Row:
    """An object of a file, and where it stands.

    A field is asked for by the names that it may have; the first that is there and not null counts. Where none is, or
    it is of another type, an InputError says so with the place.
    """

    fields: Mapping[str, Any]
    path: Path
    line: int
    prefix: str = ""

    def error(self, cause: str) -> InputError:
        """Return an error that names the place."""
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
        return self.error(f"{' or '.join(map(repr, names))} is {_found(value)}; {expected} expected")


def _found(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value) if len(repr(value)) <= 60 else f"{value!r:.60}…"


def rows(path: Path) -> Iterator[Row]:
    """Yield the objects of a file or a dataset's folder; what is neither is refused, since it could be read but once.

    Raises:
        InputError: it cannot be read, or a line of it is no object.
        ExtraMissing: the libraries for its format are not installed.
    """
    if path == STDIN:
        raise InputError("a benchmark is read more than once; give a file", path=shown(path))
    for record in records(path, regular=not path.is_dir()):
        if isinstance(record, BadLine):
            raise InputError(record.prefix + record.cause, path=shown(path), line=record.line)
        row = Row(record.value, path, record.line, record.prefix)
        if not isinstance(record.value, dict):
            raise row.error(f"an object expected, found {_found(record.value)}")
        yield row


@dataclass
class Building:
    """Collects queries, codes and grades.

    Where an id is there twice, or a grade names a query or code that is not, an InputError says so with the place.
    """

    queries: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _first: dict[str, str] = field(default_factory=dict)
    _item: dict[str, str] = field(default_factory=dict)
    _differing: int = 0

    def add_query(self, identifier: str, text: str, row: Row) -> None:
        """Take a query."""
        if identifier in self.queries:
            raise row.error(f"the query {identifier[:60]!r} is there twice; ids must differ")
        self.queries[identifier] = text

    def add_code(self, identifier: str, text: str, row: Row) -> None:
        """Take a code; where an earlier one has the same text, it is the same item."""
        if self.has_code(identifier):
            raise row.error(f"the code {identifier[:60]!r} is there twice; ids must differ")
        first = self._first.setdefault(text, identifier)
        if first == identifier:
            self.codes[identifier] = text
        else:
            self._item[identifier] = first

    def has_code(self, identifier: str) -> bool:
        """Say whether there is a code of this id."""
        return identifier in self.codes or identifier in self._item

    def add_grade(self, query: str, code: str, grade: int, row: Row) -> None:
        """Take a grade; of several for one query and code, the highest counts."""
        if query not in self.queries:
            raise row.error(f"grades the query {query[:60]!r}, which is not among the queries")
        if not self.has_code(code):
            raise row.error(f"grades the code {code[:60]!r}, which is not among the codes")
        grades, item = self.grades.setdefault(query, {}), self._item.get(code, code)
        self._differing += grades.get(item, grade) != grade
        grades[item] = max(grades.get(item, grade), grade)

    def done(self, name: str, path: Path, language: str) -> Benchmark:
        """Return the benchmark.

        Raises:
            InputError: there are no queries, no codes, or no grades.
        """
        for found, what in ((self.queries, "queries"), (self.codes, "codes"), (self.grades, "grades")):
            if not found:
                raise InputError(f"holds no {what}", path=shown(path))
        if self._item:
            total, left = len(self.codes) + len(self._item), counted(len(self.codes), "item")
            self.notes.insert(0, f"{total:,} codes are {left}: those of equal text are one")
        if self._differing:
            repeated = counted(self._differing, "repeated grade")
            self.notes.append(f"{repeated} of a query and code with another value: the highest counts")
        notes = tuple(dict.fromkeys(self.notes))
        return Benchmark(name, self.queries, self.codes, self.grades, language, self.answers, notes, self._item)


def named(path: Path) -> str:
    """Return what a benchmark is called after its file or folder."""
    return stem(path if path.name not in ("", "..") else path.resolve())
