"""Filters queries: removes duplicates and queries that do not ask for code, by the rules of a YAML file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field

from agent.corpus.near_duplicates import NearDuplicateIndex, shingle_text
from agent.corpus.output import CorpusWriter
from agent.datasets.benchmarks.building import BenchmarkRow, read_rows
from agent.datasets.encoding import describe_json_error
from agent.datasets.fields import QUERIES, FieldMap, Fields, find_field
from agent.datasets.sources import open_source, read_lines
from agent.errors import ConfigError, InputError
from agent.evaluation.measures import Confusion, confusion_cell
from agent.temp_database import TempDatabase, as_key
from agent.text import describe_error
from agent.types import Progress

_Text = Annotated[str, Field(pattern=r"\S")]


class _RulesFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = ""
    source: str = ""
    requires: list[_Text] = []
    keywords: dict[str, list[_Text]] = {}
    substrings: dict[str, list[_Text]] = {}


class Rule(NamedTuple):
    """Removes queries in which the pattern occurs. `text` is the text in the rules file."""

    text: str
    category: str
    pattern: re.Pattern[str]


def find_rule(rules: Iterable[Rule], query: str) -> Rule | None:
    """Return the first rule that removes a query, or None."""
    query = _fold(query)
    return next((rule for rule in rules if rule.pattern.search(query)), None)


def _fold(text: str) -> str:
    return " ".join(text.lower().replace("’", "'").split())


def load_rules(name: str) -> tuple[Rule, ...]:
    """Load the built-in rules (`cosqa`: Table 8 of the CoSQA paper), no rules (`none`), or the rules in a YAML file.

    Raises:
        ConfigError: the file cannot be read or is not a rules file.
    """
    if name == "none":
        return ()
    try:
        data = (Path(__file__).with_name("rules") / "cosqa.yaml" if name == "cosqa" else Path(name)).read_bytes()
        _check_keys(yaml.compose(data, Loader=yaml.SafeLoader))
        return tuple(_build_rules(_RulesFile.model_validate(yaml.safe_load(data))))
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror or error}. Pass cosqa, none or a YAML file (--rules).") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        cause = getattr(error, "problem", None) or describe_error(error)
        raise ConfigError(f"{place}: {cause}. Write the rules like the built-in ones; quote on, no and 3.") from error


def _check_keys(node: yaml.Node | None) -> None:
    keys: list[object] = []
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value in keys:  # YAML would silently drop the first one with its rules
            raise yaml.MarkedYAMLError(problem=f"{key.value!r} appears twice", problem_mark=key.start_mark)
        keys.append(key.value)
        _check_keys(value)


def _build_rules(content: _RulesFile) -> Iterator[Rule]:
    for text in content.requires:
        yield Rule(f"without {text}", "required", re.compile(rf"\A(?!.*{_escape(text)})"))
    for category, texts in content.keywords.items():
        for text in texts:
            words = [rf"(?<!\w){_escape(part)}(?!\w)" for part in text.split("…") if part.strip()]
            # atomic groups, because backtracking would take quadratic time
            gaps = r"\A" + "".join(f"(?>.*?{word})" for word in words)
            yield Rule(text, category, re.compile(words[0] if len(words) == 1 else gaps))
    for category, texts in content.substrings.items():
        yield from (Rule(text, category, re.compile(_escape(text))) for text in texts)


def _escape(text: str) -> str:
    return re.escape(_fold(text))


class QueryFilter:
    """Decides which queries to keep. Memory use is proportional to the number of kept queries."""

    def __init__(self, rules: Sequence[Rule], min_words: int = 1, max_words: int | None = None) -> None:
        self._rules = rules
        self._min_words = min_words
        self._max_words = max_words
        self._kept: dict[str, str] = {}
        self._ids: list[str] = []
        self._index = NearDuplicateIndex()

    def check(self, identifier: str, query: str) -> dict[str, str]:
        """Return `removed_by`, `category` and possibly `duplicate_of` of a query to remove, or {} to keep the query."""
        key = query.lower()
        words = len(query.split())
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
    cells = Counter[str]()
    names = Fields(mapping, QUERIES).names
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
