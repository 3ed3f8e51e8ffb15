"""Build a benchmark from the rows of files, check every id, and merge snippets with identical text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from agent.datasets.benchmark import Benchmark, Judgement
from agent.datasets.fields import FieldMap, Fields
from agent.datasets.formats import read_records, strip_suffixes
from agent.datasets.sources import STDIN, BadLine, display_name
from agent.datasets.values import describe, parse_grade, parse_id, parse_label
from agent.errors import InputError
from agent.text import plural
from agent.types import GENERATED, Pair

OnUnknownId = Literal["fail", "skip"]
"""What to do with a grade of an unknown query or snippet."""
T = TypeVar("T")


@dataclass(frozen=True)
class BenchmarkRequest:
    """The user's options: a language, a split, files that contain snippets, and whether to include generated code.

    If the language or the split is None, the default is used. `mapping` has the names of fields in tables of pairs.
    With `own_ids`, the ids of the pairs in a table are used, and not the numbers of the rows.
    """

    codes: tuple[Path, ...] = ()
    language: str | None = None
    split: str | None = None
    with_generated: bool = False
    mapping: FieldMap = None
    own_ids: bool = False
    on_unknown_id: OnUnknownId = "fail"


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
        listed = " or ".join(map(repr, names))
        if any(name in self.fields for name in names):
            raise self.build_error(f"field {listed} is empty or null")
        present = ", ".join(map(repr, list(self.fields)[:12])) or "none"
        raise self.build_error(f"no {listed} field (available fields: {present})")

    def get_text(self, *names: str) -> str:
        """Return the text in a field. The text must not be blank."""
        value = self.get_value(*names)
        if not isinstance(value, str) or not value.strip():
            raise self.build_error(f"{' or '.join(map(repr, names))} is {describe(value)}; expected text")
        return value

    def get_id(self, *names: str) -> str:
        """Return the id in a field."""
        return self._parse(parse_id, self.get_value(*names), names)

    def get_grade(self, *names: str) -> int:
        """Return the grade in a field."""
        return self._parse(parse_grade, self.get_value(*names), names)

    def get_label(self, *names: str) -> int | None:
        """Return the label in a field: 1, 0, or None if there is none, also because no field is present."""
        return self._parse(parse_label, next((self.fields[name] for name in names if name in self.fields), None), names)

    def build_pair(self, fields: Fields, number: int) -> Pair:
        """Build a pair. `number` is the default id. Raises an `InputError` if the row is not a pair."""
        return self._parse(lambda record: fields.build_pair(record, number), self.fields)

    def _parse(self, parse: Callable[[Any], T], value: Any, names: tuple[str, ...] = ()) -> T:
        try:
            return parse(value)
        except ValueError as error:
            raise self.build_error(f"{' or '.join(map(repr, names))}{' is ' if names else ''}{error}") from None


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
            raise row.build_error(f"expected an object, not {describe(record.value)}")
        yield row


@dataclass
class BenchmarkBuilder:
    """Collects the queries, snippets and grades of the benchmark at `path`.

    A duplicate id raises an InputError with the location. A grade for an unknown query or snippet raises one, too,
    unless the request skips such grades. `lists_pairs` is that of `Benchmark`.
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
    judgements: list[Judgement] = field(default_factory=list)
    lists_pairs: bool = False
    _first: dict[str, str] = field(default_factory=dict)
    _duplicates: dict[str, str] = field(default_factory=dict)
    _conflicts: int = 0
    _ungraded: int = 0
    _unknown: int = 0
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
        """Add a snippet. A snippet with the same text as an earlier one is merged with it."""
        if self.has_code(identifier):
            raise row.build_error(f"two snippets have the id {identifier[:60]!r}. Ids must be unique")
        first = self._first.setdefault(text, identifier)
        if first == identifier:
            self.codes[identifier] = text
        else:
            self._duplicates[identifier] = first

    def has_code(self, identifier: str) -> bool:
        """Return whether a snippet has this id."""
        return identifier in self.codes or identifier in self._duplicates

    def add_grade(self, query: str, code: str, grade: int | None, row: BenchmarkRow) -> None:
        """Add a grade, or None for an unjudged pair. If a query and a snippet have several, the highest one is used."""
        is_known, place = query in self.queries, f"query {query[:60]!r}"
        if is_known:
            is_known, place = self.has_code(code), f"snippet {code[:60]!r}"
        if not is_known and self.request.on_unknown_id == "fail":
            remedy = "`agent retrieval run --on-unknown-id skip` skips such grades"
            raise row.build_error(f"has a grade for the unknown {place}. {remedy}")
        if grade is not None:
            self.judgements.append((query, code, grade))
        if not is_known or grade is None:
            self._unknown += not is_known
            self._ungraded += is_known
            return
        grades, item = self.grades.setdefault(query, {}), self._duplicates.get(code, code)
        self._conflicts += grades.get(item, grade) != grade
        grades[item] = max(grades.get(item, grade), grade)

    def build(self, *, may_lack_grades: bool = False) -> Benchmark:
        """Return the benchmark. If it lacks grades, there is a note.

        Raises:
            InputError: there are no queries or no snippets, or no grades although `may_lack_grades` is false.
        """
        if self._ungraded:
            self.notes.append(f"not judged: {plural(self._ungraded, 'pair')} without a label")
        if self._unknown:
            self.notes.append(f"skipped: {plural(self._unknown, 'grade')} of unknown queries or snippets")
        if self._left_out:
            pairs = plural(self._left_out, "pair")
            self.notes.append(f"left out: {pairs} with generated code that no reviewer confirmed (--with-generated)")
        for part, name in ((self.queries, "queries"), (self.codes, "snippets"), (self.grades, "grades")):
            if not part and not (name == "grades" and may_lack_grades):
                language = f" in {self.request.language}" if self.request.language else ""
                others = " other than those of generated code (see --with-generated)" if self._left_out else ""
                raise InputError(f"contains no {name}{language}{others}", path=display_name(self.path))
        if not self.grades:
            self.notes.append("contains no judgements. After the search, create them with: agent retrieval judge")
        if self._duplicates:
            total, items = len(self.codes) + len(self._duplicates), plural(len(self.codes), "distinct snippet")
            self.notes.insert(0, f"{total:,} snippets were merged into {items}, because some texts are identical")
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
            judgements=self.judgements,
            lists_pairs=self.lists_pairs,
        )
