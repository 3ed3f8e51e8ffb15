"""Extracts functions from source files and datasets, filters them, and merges equal functions."""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from importlib.util import decode_source
from multiprocessing import active_children, parent_process
from threading import Thread
from typing import Any, TypeGuard

from agent.corpus.filters import FILTERS, classify_non_python
from agent.corpus.near_duplicates import cluster
from agent.corpus.output import CorpusWriter
from agent.corpus.provenance import find_licence
from agent.corpus.sources import (
    MAX_CODE_SIZE,
    PYTHON_SUFFIXES,
    Found,
    SourceFile,
    iterate_rows,
    mark_damaged,
    read_cells,
)
from agent.datasets.encoding import dumps, loads
from agent.datasets.fields import CODES, FieldMap, Fields, Names
from agent.datasets.sources import open_regular
from agent.errors import InputError, RunStopped
from agent.languages.python.functions import describe_function, find_functions
from agent.languages.python.source import Unparsable
from agent.temp_database import TempDatabase, as_key, from_key
from agent.types import Progress

_Task = list[SourceFile | Found]
_Result = tuple[list[Found], int]  # with the number of items in the task

_PLACE = ("id", "path", "module", "lines", "cell", "name", "class", "repository", "commit", "licence")
RECORD = ("id", "code", "language", "docstring", *_PLACE[1:], "sha256", "cluster", "other_places")
"""The fields of a record."""

_MAX_NOTEBOOK_SIZE = 20_000_000  # notebooks contain images
_TASK_ITEMS = 50
_TASK_SIZE = 250_000
_TASKS_PER_JOB = 4
_MAX_LISTED = 5
_TABLES = """
CREATE TABLE codes (number INTEGER PRIMARY KEY, hash BLOB UNIQUE, code BLOB);
CREATE TABLE places (code INTEGER, id BLOB, fields BLOB);
CREATE INDEX places_by_code ON places (code);
CREATE INDEX places_by_id ON places (id)
"""


@dataclass
class CodeSummary:
    """Counts of functions. `damaged` counts files, cells and rows that could not be used, by reason."""

    functions: int = 0
    merged: int = 0
    kept: int = 0
    clusters: int | None = None
    without_licence: int = 0
    removed: Counter[str] = field(default_factory=Counter)
    damaged: Counter[str] = field(default_factory=Counter)
    first_damaged: list[Mapping[str, Any]] = field(default_factory=list)


def extract_codes(
    sources: Sequence[SourceFile | Found],
    writer: CorpusWriter,
    progress: Progress,
    *,
    filters: Sequence[str] = (),
    language: str | None = None,
    clusters: bool = True,
    jobs: int = 1,
    mapping: FieldMap = None,
) -> CodeSummary:
    """Write each distinct function once, in the order of the sources, with the fields `RECORD` (null if unknown).

    `id` is the id of the row, or else the start of `sha256`. `cluster` is the id of the first near duplicate. Equal
    functions are merged, and `other_places` lists where they occur again. `filters` are names in `FILTERS`. If
    `language` is set, other code is removed. The output does not depend on the number of processes (`jobs`). `mapping`
    has the names of the fields in dataset files, whose snippets count as functions.

    Raises:
        InputError: there is no function, or two functions have the same id.
        RunStopped: a process was killed, or the temporary file of the functions cannot be written.
    """
    summary = CodeSummary()
    table = _CodeTable()
    done = 0
    total = None if any(map(_is_dataset, sources)) else len(sources)
    work = partial(_extract, filters=tuple(filters), language=language)
    with closing(_map_in_processes(work, _make_tasks(sources, Fields(mapping, CODES).names), jobs)) as results:
        for items, size in results:
            for found in items:
                if found.removed_by is None:
                    is_new = table.add(found)
                    summary.merged += not is_new
                    summary.without_licence += is_new and found.fields["licence"] is None
                    continue
                fields = {name: found.fields.get(name) for name in _PLACE} | dict(found.place)
                writer.remove(found.removed_by, {name: value for name, value in fields.items() if value is not None})
                if found.code is None:
                    summary.damaged[found.removed_by] += 1
                    summary.first_damaged += [found.place][: _MAX_LISTED - len(summary.first_damaged)]
            done += size
            progress("extracting functions", done, total)
    if not table.count and writer.removed == summary.damaged:
        places = (f"First problem: {format_place(place)}: {place['cause']}" for place in summary.first_damaged)
        cause = next(places, "Pass folders with .py or .ipynb files, or dataset files, such as 'data/*.jsonl'")
        raise InputError(f"found no functions and no snippets. {cause}")
    summary.clusters = table.write(writer, progress, clusters=clusters)
    summary.kept = writer.kept
    summary.removed = writer.removed - summary.damaged
    summary.functions = summary.kept + summary.merged + summary.removed.total()
    return summary


def format_place(place: Mapping[str, Any]) -> str:
    """Return the path with the cell and the line, if they are known."""
    cell = f", cell {place['cell']}, line " if place.get("cell") else ":"
    return f"{place['path']}{cell}{place['line']}" if place.get("line") else str(place["path"])


class _CodeTable:
    def __init__(self) -> None:
        self._scratch = TempDatabase(_TABLES)
        self.count = 0

    def add(self, found: Found) -> bool:
        """Add a place of a function. Return whether the function is new."""
        code = as_key(found.code or "")
        digest = sha256(code)
        row = (self.count, digest.digest(), code)
        is_new = self._scratch.execute_many("INSERT OR IGNORE INTO codes VALUES (?, ?, ?)", [row]) == 1
        self.count += is_new
        number = self._scratch.execute("SELECT number FROM codes WHERE hash = ?", row[1:2])[0][0]
        fields = {**found.fields, "id": found.fields["id"] or digest.hexdigest()[:16]}
        key = as_key(fields["id"])
        if self._scratch.execute("SELECT 1 FROM places WHERE id = ? AND code <> ? LIMIT 1", (key, number)):
            cause = f"two functions have the id {fields['id'][:60]!r}. Ids must be unique in all files that are passed"
            raise InputError(cause, path=found.place["path"], line=found.place["line"])
        self._scratch.execute("INSERT INTO places VALUES (?, ?, ?)", (number, key, dumps(fields)))
        return is_new

    def write(self, writer: CorpusWriter, progress: Progress, *, clusters: bool) -> int | None:
        codes = (from_key(code) for (code,) in self._scratch.iterate("SELECT code FROM codes ORDER BY number"))
        firsts = cluster(codes, self.count, progress) if clusters else None
        for number, digest, code in self._scratch.iterate("SELECT * FROM codes ORDER BY number"):
            first, *others = self._read_places(number)
            cluster_id = None if firsts is None else self._read_places(firsts[number])[0]["id"]
            record = dict.fromkeys(RECORD) | first | {"code": from_key(code), "sha256": digest.hex()}
            places = [{name: place.get(name) for name in _PLACE} for place in others]
            writer.keep({**record, "cluster": cluster_id, "other_places": places})
            if number % 1000 == 0:
                progress("writing", number, self.count)
        return None if firsts is None else len(set(firsts))

    def _read_places(self, number: int) -> list[dict[str, Any]]:
        rows = self._scratch.execute("SELECT fields FROM places WHERE code = ? ORDER BY rowid", (number,))
        return [loads(fields) for (fields,) in rows]


def _make_tasks(sources: Sequence[SourceFile | Found], names: Names) -> Iterator[_Task]:
    task = list[SourceFile | Found]()
    size = 0
    for source in sources:
        for item in iterate_rows(source, names) if _is_dataset(source) else [source]:
            task.append(item)
            size += item.size if isinstance(item, SourceFile) else len(item.code or "")
            if len(task) == _TASK_ITEMS or size >= _TASK_SIZE:
                yield task
                task = []
                size = 0
    yield task


def _is_dataset(source: SourceFile | Found) -> TypeGuard[SourceFile]:
    return isinstance(source, SourceFile) and source.path.suffix.lower() not in PYTHON_SUFFIXES


def _map_in_processes(
    function: Callable[[_Task], _Result], tasks: Iterable[_Task], jobs: int
) -> Generator[_Result, None, None]:
    """Iterate over the results in the order of the tasks. Reads only a few tasks ahead."""
    if jobs == 1:
        yield from map(function, tasks)
        return
    pending = deque[Future[_Result]]()
    executor = ProcessPoolExecutor(jobs, initializer=_prepare_process)
    try:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        executor.submit(int)  # starts the processes, which inherit the mask
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for task in tasks:
            pending.append(executor.submit(function, task))
            if len(pending) == _TASKS_PER_JOB * jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        cause = "a process was killed, probably because the machine is short of memory"
        raise RunStopped(cause, "with fewer processes (--jobs)") from error
    finally:
        for process in active_children():  # they may be busy
            process.kill()
        executor.shutdown(cancel_futures=True)


def _prepare_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, but the parent handles it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


def _extract(task: _Task, filters: Iterable[str], language: str | None) -> _Result:
    extracted = []
    for item in task:
        for found in _extract_functions(item) if isinstance(item, SourceFile) else [_describe(item)]:
            reason = found.removed_by or _find_reason(found, filters, language)
            extracted.append(replace(found, removed_by=reason))
    return extracted, len(task)


def _find_reason(found: Found, filters: Iterable[str], language: str | None) -> str | None:
    code = found.code or ""
    docstring = found.fields["docstring"]
    if found.fields["language"] != "python":
        return "other language" if language else "not Python" if filters else None
    if language and (kind := classify_non_python(code)):
        return kind
    return next((reason for name in filters if (reason := FILTERS[name](code, docstring))), None)


def _describe(found: Found) -> Found:
    """Complete the name and the docstring of a row whose code is exactly one function."""
    name = found.fields.get("name")
    docstring = found.fields.get("docstring")
    if found.code is None or found.fields["language"] != "python" or (name and docstring):
        return found
    function = describe_function(found.code)
    texts = {"name": name or function.name, "docstring": docstring or function.docstring} if function else {}
    return replace(found, fields={**found.fields, **texts})


def _extract_functions(source: SourceFile) -> Iterator[Found]:
    is_notebook = source.path.suffix.lower() == ".ipynb"
    limit = _MAX_NOTEBOOK_SIZE if is_notebook else MAX_CODE_SIZE
    try:
        with open_regular(source.path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            yield mark_damaged("file is too large", path=source.name, cause=f"the limit is {limit:,} bytes")
            return
        cells = read_cells(data) if is_notebook else [(None, decode_source(data))]
    except (OSError, SyntaxError, LookupError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        yield mark_damaged("file cannot be read", path=source.name, cause=cause)
        return
    licence = find_licence(cells[0][1]) if cells else None
    for cell, text in cells:
        try:
            functions = find_functions(text, MAX_CODE_SIZE)
        except Unparsable as error:
            place = {"path": source.name, "cell": cell, "line": error.line, "cause": error.reason}
            yield mark_damaged("cell does not parse" if is_notebook else "file does not parse", **place)
            continue
        for function in functions:
            fields = {
                **{"id": None, "language": "python", "name": function.name, "class": function.class_name},
                **{"docstring": function.docstring, "path": source.name, "cell": cell},
                **{"lines": [function.start_line, function.end_line], **source.origin},
                "licence": licence or source.origin["licence"],
            }
            place = {"path": source.name, "line": function.start_line}
            reason = "indentation cannot be removed" if function.code is None else None
            yield Found(place, fields, function.code or "", reason)
