"""Filters queries: removes duplicates and queries that do not ask for code, and lists each removed query."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agent.corpus.near_duplicates import NearDuplicateIndex, shingle_text
from agent.corpus.output import CorpusWriter
from agent.corpus.rules import Rule, find_rule
from agent.datasets.benchmarks.building import BenchmarkRow, read_rows
from agent.datasets.encoding import describe_json_error
from agent.datasets.fields import QUERIES, FieldMap, Fields, find_field
from agent.datasets.sources import open_source, read_lines
from agent.errors import InputError
from agent.evaluation.measures import Confusion, confusion_cell
from agent.temp_database import TempDatabase, as_key
from agent.types import Progress


class QueryFilter:
    """Decides which queries to keep. Memory use is proportional to the number of kept queries."""

    def __init__(self, rules: Sequence[Rule], min_words: int = 1, max_words: int | None = None) -> None:
        self._rules, self._min_words, self._max_words = rules, min_words, max_words
        self._kept: dict[str, str] = {}
        self._ids: list[str] = []
        self._index = NearDuplicateIndex()

    def check(self, identifier: str, query: str) -> dict[str, str]:
        """Return `removed_by`, `category` and possibly `duplicate_of` of a query to remove, or {} to keep the query."""
        key, words = query.lower(), len(query.split())
        if key in self._kept:
            return {"removed_by": "duplicate", "category": "duplicates", "duplicate_of": self._kept[key]}
        if not self._min_words <= words <= (self._max_words or words):
            return {"removed_by": "min-words" if words < self._min_words else "max-words", "category": "length"}
        if rule := find_rule(self._rules, query):
            return {"removed_by": rule.text, "category": rule.category}
        shingles = shingle_text(key)
        if (near := self._index.find(shingles)) is not None:
            return {"removed_by": "near duplicate", "category": "duplicates", "duplicate_of": self._ids[near]}
        self._index.add(shingles)
        self._ids.append(identifier)
        self._kept[key] = identifier
        return {}

    def apply(
        self, rows: Iterable[dict[str, Any]], writer: CorpusWriter, progress: Progress
    ) -> dict[str, Counter[str]]:
        """Write the kept and the removed queries. Return the number of removed queries by category and `removed_by`."""
        removed: dict[str, Counter[str]] = defaultdict(Counter)
        for number, row in enumerate(rows, start=1):
            if removal := self.check(row["id"], row["query"]):
                writer.remove(removal["removed_by"], {**row, **removal})
                removed[removal["category"]][removal["removed_by"]] += 1
            else:
                writer.keep(row)
            if number % 100 == 0:
                progress("filtering queries", number, None)
        return removed


def read_queries(paths: Iterable[Path], mapping: FieldMap = None) -> Iterator[dict[str, Any]]:
    """Iterate over the queries of text files (one query per line) and of files with records.

    A row contains `id`, `query` with collapsed white space, and the other fields of its record. A query without an id
    is numbered across all files, for example q1.

    Raises:
        InputError: a file cannot be read, a query is missing or blank, or an id is not unique.
        ExtraMissing: the libraries for a file's format are not installed.
    """
    fields = Fields(mapping, QUERIES)
    ids = TempDatabase("CREATE TABLE ids (id BLOB PRIMARY KEY) WITHOUT ROWID")
    for number, row in enumerate((row for path in paths for row in _read_rows(path, fields)), start=1):
        query = " ".join(row.get_text(*fields.names["query"]).split())
        query_name, id_name = (find_field(row.fields, fields.names[name]) for name in ("query", "id"))
        identifier = row.get_id(id_name) if id_name else f"q{number}"
        if not ids.execute_many("INSERT OR IGNORE INTO ids VALUES (?)", [(as_key(identifier),)]):
            raise row.build_error(f"two queries have the id {identifier[:60]!r}. Ids must be unique in all files")
        others = {key: value for key, value in row.fields.items() if key not in ("id", "query", id_name, query_name)}
        yield {"id": identifier, "query": query, **others}


def count_agreement(rules: Sequence[Rule], path: Path, mapping: FieldMap = None) -> Confusion:
    """Compare rules with the labels in a file. A query that no rule removes is predicted to ask for code (1).

    Raises:
        InputError: the file cannot be read or has no rows, or a row has no query or no label of 0 or 1.
    """
    cells, names = Counter[str](), Fields(mapping, QUERIES).names
    for row in read_rows(path):
        if (label := row.get_label(*names["label"])) is None:
            raise row.build_error("has no label; expected 0 or 1")
        query = row.get_text(*names["query"])
        cells[confusion_cell(int(find_rule(rules, query) is None), label)] += 1
    if not cells:
        raise InputError("contains no labelled queries", path=path)
    return Confusion(**cells)


def _read_rows(path: Path, fields: Fields) -> Iterator[BenchmarkRow]:
    if not path.name.lower().removesuffix(".gz").endswith(".txt"):
        yield from read_rows(path)
        return
    with open_source(path, regular=True) as file:
        for number, line in enumerate(read_lines(file, path), start=1):
            try:
                query = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(describe_json_error(error), path=path, line=number) from None
            if query.strip():
                yield BenchmarkRow({fields.names["query"][0]: query}, path, number)
