"""Joins the folders of one run, such as shards of its pairs that several machines annotated, into a new one."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.datasets import normalised_sha256, write_normalised
from agent.datasets.encoding import dumps
from agent.errors import RunFolderError
from agent.store import files
from agent.store.annotations import AnnotationIndex, Votes, annotation_key, decode_annotation, write_labels
from agent.store.evidence import EvidenceStore
from agent.store.files import to_disk, unchanging, writing
from agent.store.manifest import Manifest, changed, differences
from agent.store.reviews import iter_reviews
from agent.store.run_view import RunView, load_run
from agent.types import Pair

Progress = Callable[[str, int, int], None]

_EACH = 500
_INPUT = "input_sha256"
# Of each pair the hash of all it holds and the run it came from; of each pair and round the run whose annotation stays.
_TABLES = """
CREATE TABLE pairs (id BLOB UNIQUE, hash TEXT, run INTEGER);
CREATE TABLE best (id BLOB, round INTEGER, run INTEGER, failed INTEGER, PRIMARY KEY (id, round)) WITHOUT ROWID;
"""
_KEEP = """
INSERT INTO best VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET run = excluded.run, failed = excluded.failed
    WHERE failed OR NOT excluded.failed
"""


@dataclass(frozen=True)
class Merged:
    """What came of joining runs; `left_out` are files that were not taken over."""

    run: str
    pairs: int
    annotations: int
    left_out: tuple[str, ...]


def merge(runs: Sequence[Path], out: Path, progress: Progress = lambda _what, _done, _total: None) -> Merged:
    """Join the folders of runs into a new one: whole, or nothing.

    Pairs come in the order of the runs. Of a pair and round that several have, the annotation without an error stays,
    and of equals that of the run given last. What was paid is added up.

    Raises:
        RunFolderError: a folder is no run, damaged or in use; they differ in what decides labels, or in a pair (what
            differs is listed); or something is at `out` already.
        InputError: a run's input is damaged.
        StorageError: the new folder cannot be written.
    """
    with ExitStack() as stack:
        views = []
        for path in {path.resolve(): path for path in runs}.values():
            views.append(stack.enter_context(load_run(path)))
            stack.enter_context(unchanging(path))
        _check_identities(views)
        notes = stack.enter_context(closing(sqlite3.connect("", isolation_level=None)))  # on disk, and then gone
        notes.executescript(f"PRAGMA journal_mode = OFF; {_TABLES}")
        with _placed(out) as draft:
            joined = _Join(views, draft, notes, progress)
            joined.write()
        return Merged(str(out), joined.pairs, joined.annotations, joined.left_out)


def _check_identities(views: Sequence[RunView]) -> None:
    first, *others = views
    for view in others:
        was, now = (
            {name: value for name, value in each.manifest["identity"].items() if name != _INPUT}
            for each in (first, view)
        )
        if found := differences(was, now, f"in {first.path}", f"in {view.path}"):
            listed = "".join(f"\n  {line}" for line in found)
            raise RunFolderError(f"{view.path} and {first.path} are of other settings, and not joined:{listed}")


@contextmanager
def _placed(out: Path) -> Iterator[Path]:
    """Give a folder to write to; it becomes `out` once it is whole."""
    with writing(out):
        if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
            raise RunFolderError(f"{out}: is there already; give a new folder (-o)")
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = out.with_name(f".{out.name[:40]}.{secrets.token_hex(8)}.tmp")
        draft.mkdir()
        try:
            yield draft
            to_disk(draft)
            draft.rename(out)
            to_disk(out.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


class _Join:
    def __init__(self, views: Sequence[RunView], draft: Path, notes: sqlite3.Connection, progress: Progress) -> None:
        self._views = views
        self._draft = draft
        self._notes = notes
        self._progress = progress
        self._done = 0
        self.pairs = self.annotations = 0
        self.left_out: tuple[str, ...] = ()

    def write(self) -> None:
        """Write all files of the new folder; the manifest comes last."""
        input_sha256 = write_normalised(self._draft / files.INPUT, self._pairs())
        to_disk(self._draft / files.INPUT)
        self._choose()
        segments, numbers = self._segments()
        self._write_annotations(numbers)
        self._write_reviews()
        identity = {**self._views[0].manifest["identity"], _INPUT: input_sha256}
        manifest = Manifest(self._draft / files.MANIFEST, identity)
        manifest.document.update(segments=segments, changes=self._changes(segments, numbers))
        manifest.save()

    def _pairs(self) -> Iterator[Pair]:
        for number, view in enumerate(self._views):
            for pair in view.pairs():
                row = (_bytes(pair.id), normalised_sha256([pair]), number)
                if self._notes.execute("INSERT OR IGNORE INTO pairs VALUES (?, ?, ?)", row).rowcount:
                    self.pairs += 1
                    self._step("pairs", self.pairs)
                    yield pair
                else:
                    self._check_same(pair, row)

    def _check_same(self, pair: Pair, row: tuple[bytes, str, int]) -> None:
        hashed, run = self._notes.execute("SELECT hash, run FROM pairs WHERE id = ?", row[:1]).fetchone()
        if hashed != row[1]:
            paths = f"{self._views[row[2]].path}: pair {pair.id[:60]!r} is another than in {self._views[run].path}"
            raise RunFolderError(f"{paths}; they cannot be joined")

    def _choose(self) -> None:
        """Find out which run's annotation of each pair and round stays."""
        for number, view in enumerate(self._views):
            for line, content in view.index.lines():
                place = f"{view.index.path}:{line}"
                found = decode_annotation(content, place)
                key = _bytes(found.id)
                if not self._notes.execute("SELECT 1 FROM pairs WHERE id = ?", (key,)).fetchone():
                    raise RunFolderError(f"{place}: pair {found.id[:60]!r} is none of the run's input")
                self._notes.execute(_KEEP, (key, found.round, number, found.error is not None))
        (self.annotations,) = self._notes.execute("SELECT count(*) FROM best").fetchone()

    def _write_annotations(self, numbers: Sequence[Mapping[int, int]]) -> None:
        path = self._draft / files.ANNOTATIONS
        with EvidenceStore(self._draft / files.EVIDENCE) as store, path.open("wb") as file:
            for number, view in enumerate(self._views):
                if view.has_evidence or any(view.index.lines()):
                    with EvidenceStore(view.path / files.EVIDENCE, read_only=True) as evidence:
                        store.take(evidence, self._written(number, file), numbers[number])
            file.flush()
            os.fsync(file.fileno())
        index, votes = AnnotationIndex(path), Votes()
        for found in index.labels():
            votes.add(found)
        rows = self._notes.execute("SELECT id FROM pairs ORDER BY rowid")
        order = (bytes(row[0]).decode("utf-8", "surrogatepass") for row in rows)
        write_labels(self._draft / files.LABELS, votes.labels(order))

    def _written(self, number: int, file: Any) -> Iterator[tuple[str, int]]:
        """Write what stays of a run's annotations, and yield which pairs and rounds they are of."""
        for line, content in self._views[number].index.lines():
            key = annotation_key(content, f"{self._views[number].index.path}:{line}")
            stays = "SELECT run FROM best WHERE (id, round) = (?, ?)"
            if self._notes.execute(stays, (_bytes(key[0]), key[1])).fetchone() == (number,):
                file.write(content)
                self._done += 1
                self._step("annotations", self._done, self.annotations)
                yield key

    def _segments(self) -> tuple[list[dict[str, Any]], list[dict[int, int]]]:
        """Return the segments of all runs by their time, and of each run the new number of each of its own."""
        every = [
            (segment["started"], number, place, segment)
            for number, view in enumerate(self._views)
            for place, segment in enumerate(view.manifest["segments"], start=1)
        ]
        every.sort(key=lambda each: each[:3])
        numbers: list[dict[int, int]] = [{} for _ in self._views]
        for new, (_, number, place, _) in enumerate(every, start=1):
            numbers[number][place] = new
        return [each[3] for each in every], numbers

    def _changes(
        self, segments: Sequence[Mapping[str, Any]], numbers: Sequence[Mapping[int, int]]
    ) -> list[dict[str, Any]]:
        """Return the changes that the runs recorded, and those of environment from one run to the next, by time."""
        found = [change for view in self._views for change in view.manifest["changes"]]
        for first in sorted(new for own in numbers for place, new in own.items() if place == 1):
            now = segments[first - 1]
            for what, before, value in changed(segments[: first - 1], now["environment"]):
                found.append({"at": now["started"], "what": what, "before": before, "now": value})
        return sorted(found, key=lambda change: str(change.get("at")))

    def _write_reviews(self) -> None:
        reviews = [review for view in self._views for review in iter_reviews(view.path / files.REVIEWS)]
        if reviews:
            lines = (dumps(each.model_dump(mode="json", by_alias=True)) for each in sorted(reviews, key=lambda r: r.at))
            (self._draft / files.REVIEWS).write_bytes(b"".join(line + b"\n" for line in lines))
        samples = (view.path / files.REVIEW_SAMPLE for view in self._views)
        self.left_out = tuple(str(path) for path in samples if path.exists())

    def _step(self, what: str, done: int, total: int | None = None) -> None:
        if done % _EACH == 0:
            self._progress(what, done, total or done)


def _bytes(pair_id: str) -> bytes:
    return pair_id.encode("utf-8", "surrogatepass")
