"""Checks that a run's folder is whole and fits together; takes no lock, writes nothing, and holds no run in memory."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from agent.datasets.encoding import loads
from agent.datasets.sources import open_regular, opened, raw_lines
from agent.errors import InputError, RunFolderError
from agent.history import History
from agent.scratch import Scratch, as_key, from_key
from agent.store import files
from agent.store.annotations import REMEDY, Label, PairLabel, Vote, decode_annotation, ended, pair_label
from agent.store.evidence import EvidenceStore
from agent.store.manifest import read_manifest
from agent.store.run_view import load_run
from agent.types import Annotation, Pair
from agent.wording import what_is_wrong

Progress = Callable[[str, int, int], None]
"""Called with what is looked at, how much of it was, and how much there is."""

_MOST_LISTED = 1_000
_EACH = 500
_COPY = "Copy the run's folder again from where it was made"
_AGAIN = "Give the run's command again: it writes the file anew"
_TABLES = """
CREATE TABLE pairs (number INTEGER PRIMARY KEY, id BLOB UNIQUE, sha256 TEXT);
CREATE TABLE found (
    pair INTEGER, round INTEGER, line INTEGER, label INTEGER, confidence REAL, failed INTEGER,
    PRIMARY KEY (pair, round)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Problem:
    """What is wrong with a file of a run, and where; `remedy` is what to do about it."""

    kind: str
    what: str
    remedy: str
    file: str
    line: int | None = None
    pair: str | None = None
    round: int | None = None


@dataclass
class Findings:
    """What was found in a run's folder.

    `problems` are the first thousand, `kinds` counts all of them. `missing` pairs and rounds are not annotated yet;
    `rounds` are those that any pair has. `closed`: the last start of the run came to its end, and is not at work or
    killed. `ended` counts annotations by how they ended.
    """

    run: str
    problems: list[Problem] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    pairs: int = 0
    rounds: int = 1
    annotations: int = 0
    missing: int = 0
    closed: bool = False
    ended: Counter[str] = field(default_factory=Counter)


def verify(path: Path, progress: Progress = lambda _what, _done, _total: None) -> Findings:
    """Check a run's folder.

    Raises:
        RunFolderError: it is no run at all.
    """
    if not any((path / name).is_file() for name in (files.MANIFEST, files.ANNOTATIONS)):
        load_run(path)
    return _Check(path, progress).all()


class _Check:
    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._notes = Scratch(_TABLES)
        self._progress = progress
        self._found = Findings(str(path))

    def all(self) -> Findings:
        """Look at everything, one file after another."""
        self._read_input(self._read_manifest())
        self._read_annotations()
        if self._found.closed:
            self._read_labels()
        self._read_evidence()
        return self._found

    def _problem(self, kind: str, file: str, what: str, remedy: str, **where: Any) -> None:
        self._found.kinds[kind] += 1
        if len(self._found.problems) < _MOST_LISTED:
            self._found.problems.append(Problem(kind, what, remedy, file, **where))

    def _read_manifest(self) -> Any:
        """Return the hash of the input that the run is of."""
        try:
            document = read_manifest(self._path / files.MANIFEST)
        except RunFolderError as error:
            self._problem("manifest", files.MANIFEST, str(error), _COPY)
            return None
        self._found.closed = bool(document["segments"]) and document["segments"][-1]["ended"] is not None
        return document["identity"].get("input_sha256")

    def _read_input(self, sha256: Any) -> None:
        digest, number = hashlib.sha256(), 0
        try:
            with opened(self._path / files.INPUT, regular=True) as file:
                for number, line in enumerate(raw_lines(file, self._path / files.INPUT), start=1):
                    digest.update(line)
                    pair = Pair.model_validate(loads(line))
                    row = (number, as_key(pair.id), pair.input_sha256())
                    if not self._notes.put("INSERT OR IGNORE INTO pairs VALUES (?, ?, ?)", [row]):
                        self._problem("input", files.INPUT, "the id comes twice", _COPY, line=number, pair=pair.id)
                    self._step("input", number)
        except InputError as error:
            self._problem("input", files.INPUT, error.cause, _COPY, line=error.line)
        except ValueError as error:
            what = f"is not a normalised pair ({what_is_wrong(error)})"
            self._problem("input", files.INPUT, what, _COPY, line=number)
        else:
            if sha256 is not None and digest.hexdigest() != sha256:
                what = "is not the input that the manifest names: their hashes differ"
                self._problem("input", files.INPUT, what, _COPY)
        ((self._found.pairs,),) = self._notes.rows("SELECT count(*) FROM pairs")

    def _read_annotations(self) -> None:
        name, line = files.ANNOTATIONS, b"\n"
        try:
            with open_regular(self._path / name) as file:
                for number, line in enumerate(file, start=1):
                    if line.endswith(b"\n"):
                        self._read_annotation(number, line)
                    self._step("annotations", number)
        except OSError as error:
            self._problem("annotations", name, f"cannot be read ({error.strerror or error})", _COPY)
        if self._found.closed and not line.endswith(b"\n"):
            self._problem("annotations", name, "is cut off in its last line", _COPY)
        counts = "SELECT count(*), coalesce(max(round), 0) + 1, count(sha256) FROM found JOIN pairs ON pair = number"
        ((self._found.annotations, self._found.rounds, known),) = self._notes.rows(counts)
        self._found.missing = self._found.pairs * self._found.rounds - known
        rows = self._notes.rows("SELECT label, failed, count(*) FROM found GROUP BY label, failed")
        for label, failed, count in rows:
            self._found.ended[ended(label, failed=bool(failed))] += count

    def _read_annotation(self, number: int, line: bytes) -> None:
        place = f"{self._path / files.ANNOTATIONS}:{number}"
        where: dict[str, Any] = {"file": files.ANNOTATIONS, "line": number}
        try:
            annotation = decode_annotation(line, place)
        except RunFolderError as error:
            what = str(error).removeprefix(f"{place}: ").removesuffix(f". {REMEDY}")
            self._problem("annotations", **where, what=what, remedy=REMEDY)
            return
        where |= {"pair": annotation.id, "round": annotation.round, "remedy": REMEDY}
        pair = self._pair(annotation, where)
        vote = (annotation.label, annotation.confidence, annotation.error is not None)
        earlier = self._notes.rows("SELECT line FROM found WHERE (pair, round) = (?, ?)", (pair, annotation.round))
        if earlier and self._found.closed:
            where["remedy"] = "Give the run's command again: it leaves the last line of each"
            self._problem("twice", **where, what=f"is annotated in line {earlier[0][0]} too")
        row = (pair, annotation.round, number, *vote)
        self._notes.rows("INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?, ?, ?)", row)

    def _pair(self, annotation: Annotation, where: dict[str, Any]) -> int:
        """Return the number of an annotation's pair, which one that the input does not have is given here."""
        key = (as_key(annotation.id),)
        rows = self._notes.rows("SELECT number, sha256 FROM pairs WHERE id = ?", key)
        if not rows:
            self._problem("unknown pair", **where, what="is none of the input's pairs")
            insert = "INSERT INTO pairs (id) VALUES (?) RETURNING number, sha256"
            rows = self._notes.rows(insert, key)
        elif rows[0][1] not in (None, annotation.input_sha256):
            what = "is another than the input's pair of this id: query, code, language or context differ"
            self._problem("other pair", **where, what=what)
        return int(rows[0][0])

    def _read_labels(self) -> None:
        """Compare the labels with the annotations'; of a file that differs the first line that does."""
        try:
            with open_regular(self._path / files.LABELS) as file:
                for number, (line, label) in enumerate(zip_longest(file, self._labels()), start=1):
                    if line is None or label is None or _decoded(line) != {**asdict(label), "votes": [*label.votes]}:
                        what = "is not what the annotations say" if line else "labels are missing from here on"
                        pair = None if label is None else label.id
                        self._problem("labels", files.LABELS, what, _AGAIN, line=number, pair=pair)
                        break
        except OSError as error:
            self._problem("labels", files.LABELS, f"cannot be read ({error.strerror or error})", _AGAIN)

    def _labels(self) -> Iterator[PairLabel]:
        query = (
            "SELECT id, round, label, confidence, failed FROM found JOIN pairs ON number = pair ORDER BY pair, round"
        )
        for name, rounds in groupby(self._notes.each(query), key=lambda row: bytes(row[0])):
            yield pair_label(from_key(name), [Vote(row[2], row[3], bool(row[4])) for row in rounds])

    def _read_evidence(self) -> None:
        name = files.EVIDENCE
        if not self._found.annotations and not (self._path / name).exists():
            return
        try:
            with EvidenceStore(self._path / name, read_only=True) as store:
                for (what,) in store.execute("PRAGMA integrity_check(20)"):
                    if what != "ok":
                        self._problem("evidence", name, f"is damaged: {what}", store.remedy)
                self._read_records(store)
        except RunFolderError as error:
            self._problem("evidence", name, str(error), _COPY)

    def _read_records(self, store: EvidenceStore) -> None:
        query = "SELECT id, sha256, round, line, label FROM found JOIN pairs ON number = pair"
        for done, (name, sha256, round_number, line, label) in enumerate(self._notes.each(query), start=1):
            pair_id = from_key(name)
            try:
                what = _wrong(store.get(pair_id, round_number), pair_id, sha256, label)
            except RunFolderError as error:
                what = str(error)
            if what:
                remedy = f"Delete line {line} of {files.ANNOTATIONS}: its pair is annotated again"
                self._problem("evidence", files.EVIDENCE, what, remedy, pair=pair_id, round=round_number)
            self._step("evidence", done, self._found.annotations)

    def _step(self, what: str, done: int, total: int | None = None) -> None:
        if done % _EACH == 0:
            self._progress(what, done, total or max(done, self._found.pairs))


def _wrong(history: History | None, pair_id: str, sha256: str | None, label: Label) -> str:
    """Return what is wrong with the evidence of an annotation with this label, nothing when it is as it should be."""
    if history is None:
        return "nothing is kept of what led to the label"
    if history.pair.id != pair_id or sha256 not in (None, history.pair.input_sha256()):
        return "what is kept is of another pair"
    if label is not None and all(visit.label != label for visit in history.visits):
        return "what is kept is of another try: it did not end with this label"
    return ""


def _decoded(line: bytes) -> Any:
    try:
        return loads(line)
    except ValueError:
        return None
