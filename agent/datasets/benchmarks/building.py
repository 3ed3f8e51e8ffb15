"""Build a benchmark from the rows of files, check every id, and merge codes with identical text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.datasets.formats import read_records, strip_suffixes
from agent.datasets.sources import STDIN, BadLine, display_name
from agent.errors import InputError
from agent.types import GENERATED
from agent.wording import plural

_LABELS = {"yes": 1, "no": 0}
# Some metrics use 2 ** grade, which must remain finite.
_MAX_GRADE = 100


@dataclass(frozen=True)
class BenchmarkRequest:
    """The user's options: a language, a split, files that contain codes, and whether to include generated codes.

    If the language or the split is None, the default is used.
    """

    codes: tuple[Path, ...] = ()
    language: str | None = None
    split: str | None = None
    with_generated: bool = False


@dataclass(frozen=True)
class BenchmarkRow:
    """A record with its location in the file.

    Each `get_…` method accepts alternative field names and reads the first one that is present and not null. If
    no field is present or the value has the wrong type, the method raises an InputError with the location.
    """

    fields: Mapping[str, Any]
    path: Path
    line: int
    prefix: str = ""

    def build_error(self, cause: str) -> InputError:
        """Build an error whose message names the file and the line of the problem."""
        return InputError(f"{self.prefix}{cause}", path=display_name(self.path), line=self.line)

    def get_value(self, *names: str) -> Any:
        """Return the value of a field."""
        for name in names:
            if self.fields.get(name) is not None:
                return self.fields[name]
        present = ", ".join(map(repr, list(self.fields)[:12])) or "none"
        raise self.build_error(f"no {' or '.join(map(repr, names))} field (available fields: {present})")

    def get_text(self, *names: str) -> str:
        """Return the text in a field. The text must not be blank."""
        value = self.get_value(*names)
        if not isinstance(value, str) or not value.strip():
            raise self._build_type_error(names, value, "text")
        return value

    def get_id(self, *names: str) -> str:
        """Return the id in a field."""
        value = self.get_value(*names)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise self._build_type_error(names, value, "text or a whole number")
        return str(value)

    def get_grade(self, *names: str) -> int:
        """Return the grade in a field: an integer, or text that contains an integer, `yes` (1) or `no` (0)."""
        value = self.get_value(*names)
        if isinstance(value, str):
            value = _LABELS.get(value.strip().lower(), value)
        with suppress(TypeError, ValueError, OverflowError):
            if not isinstance(value, bool) and int(value) == float(value) and abs(int(value)) <= _MAX_GRADE:
                return int(value)
        raise self._build_type_error(names, value, f"a whole number up to {_MAX_GRADE}")

    def _build_type_error(self, names: tuple[str, ...], value: Any, expected: str) -> InputError:
        return self.build_error(f"{' or '.join(map(repr, names))} is {_describe(value)}; expected {expected}")


def _describe(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value) if len(repr(value)) <= 60 else f"{value!r:.60}…"


def read_rows(path: Path) -> Iterator[BenchmarkRow]:
    """Iterate over the records of a file or a dataset folder.

    Raises:
        InputError: the file cannot be read, is standard input, or has a line that is not an object.
        ExtraMissing: the libraries for the file's format are not installed.
    """
    if path == STDIN:
        raise InputError("cannot be read by this command. Pass a file", path=display_name(path))
    for record in read_records(path, regular=not path.is_dir()):
        if isinstance(record, BadLine):
            raise InputError(record.prefix + record.cause, path=display_name(path), line=record.line)
        row = BenchmarkRow(record.value, path, record.line, record.prefix)
        if not isinstance(record.value, dict):
            raise row.build_error(f"expected an object, not {_describe(record.value)}")
        yield row


@dataclass
class BenchmarkBuilder:
    """Collects the queries, codes and grades of the benchmark at `path`.

    A duplicate id, or a grade for an unknown query or code, raises an InputError with the location.
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
    _duplicates: dict[str, str] = field(default_factory=dict)
    _conflicts: int = 0
    _left_out: int = 0

    def __post_init__(self) -> None:
        self.name = strip_suffixes(self.path if self.path.name not in ("", "..") else self.path.resolve())
        self.language = self.request.language or "python"

    def includes(self, fields: Mapping[str, Any]) -> bool:
        """Return whether to include a pair. Generated code must be `reviewed`, unless all of it is requested."""
        fields = {**meta, **fields} if isinstance(meta := fields.get("meta"), dict) else fields
        included = self.request.with_generated or str(fields.get("reviewed")).lower() in ("true", "1")
        self._left_out += (left_out := fields.get("source") == GENERATED and not included)
        return not left_out

    def add_query(self, identifier: str, text: str, row: BenchmarkRow) -> None:
        """Add a query."""
        if identifier in self.queries:
            raise row.build_error(f"two queries have the id {identifier[:60]!r}. Ids must be unique")
        self.queries[identifier] = text

    def add_code(self, identifier: str, text: str, row: BenchmarkRow) -> None:
        """Add a code. A code with the same text as an earlier code is merged with that code."""
        if self.has_code(identifier):
            raise row.build_error(f"two codes have the id {identifier[:60]!r}. Ids must be unique")
        first = self._first.setdefault(text, identifier)
        if first == identifier:
            self.codes[identifier] = text
        else:
            self._duplicates[identifier] = first

    def has_code(self, identifier: str) -> bool:
        """Return whether a code has this id."""
        return identifier in self.codes or identifier in self._duplicates

    def add_grade(self, query: str, code: str, grade: int, row: BenchmarkRow) -> None:
        """Add a grade. If a pair of a query and a code has several grades, the highest one is used."""
        if query not in self.queries:
            raise row.build_error(f"has a grade for the unknown query {query[:60]!r}")
        if not self.has_code(code):
            raise row.build_error(f"has a grade for the unknown code {code[:60]!r}")
        grades, item = self.grades.setdefault(query, {}), self._duplicates.get(code, code)
        self._conflicts += grades.get(item, grade) != grade
        grades[item] = max(grades.get(item, grade), grade)

    def build(self, *, may_lack_grades: bool = False) -> Benchmark:
        """Return the benchmark. If it lacks grades, there is a note.

        Raises:
            InputError: there are no queries or no codes, or no grades although `may_lack_grades` is false.
        """
        if self._left_out:
            pairs = plural(self._left_out, "pair")
            self.notes.append(f"left out: {pairs} with generated code that no reviewer confirmed (--with-generated)")
        for part, name in ((self.queries, "queries"), (self.codes, "codes"), (self.grades, "grades")):
            if not part and not (name == "grades" and may_lack_grades):
                language = f" in {self.request.language}" if self.request.language else ""
                others = " other than those of generated code (see --with-generated)" if self._left_out else ""
                raise InputError(f"contains no {name}{language}{others}", path=display_name(self.path))
        if not self.grades:
            self.notes.append("contains no judgements. After the search, create them with: agent retrieval judge")
        if self._duplicates:
            total, items = len(self.codes) + len(self._duplicates), plural(len(self.codes), "distinct code")
            self.notes.insert(0, f"{total:,} codes were merged into {items}, because some texts are identical")
        if self._conflicts:
            conflicts = plural(self._conflicts, "repeated grade")
            self.notes.append(f"{conflicts} with different values: the highest grade for each pair is used")
        return Benchmark(
            name=self.name,
            queries=self.queries,
            codes=self.codes,
            grades=self.grades,
            language=self.language,
            answers=self.answers,
            notes=tuple(dict.fromkeys(self.notes)),
            duplicates=self._duplicates,
        )
