"""`annotations.jsonl`, a line per pair and round, and `labels.jsonl`, a label per pair by its rounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, groupby, takewhile
from operator import itemgetter
from pathlib import Path
from statistics import mean
from typing import IO, Any, Literal, NamedTuple

from pydantic import ConfigDict

from agent.datasets.encoding import dumps
from agent.datasets.sources import open_regular
from agent.errors import RunFolderError
from agent.scratch import Scratch, as_key, from_key
from agent.store.files import append_line, decode_record, numbered_lines, open_own, replacing, writing
from agent.types import Annotation, Frozen, Round, Share, majority

Label = Literal[0, 1] | None
Ended = Literal["1", "0", "undecided", "error"]


def ended(label: int | None, *, failed: bool) -> Ended:
    """Return how a round, or a pair, ended: with a label, undecided, or in an error."""
    if failed:
        return "error"
    return "undecided" if label is None else "1" if label else "0"


def standing_for(rounds: Sequence[Ended]) -> int | None:
    """Return the index of the first round that ended as the majority of them did; None for a tie.

    Errors count only where there is nothing else.
    """
    winner = majority([each for each in rounds if each != "error"] or rounds)
    return None if winner is None else rounds.index(winner)


def agreement(outcomes: Sequence[Label]) -> float | None:
    """Return the share of pairs of rounds that ended alike, None for fewer than two rounds.

    Undecided is an outcome of its own: two undecided rounds are alike, an undecided one and a label are not.
    """
    twos = list(combinations(outcomes, 2))
    return sum(one == other for one, other in twos) / len(twos) if twos else None


@dataclass(frozen=True)
class PairLabel:
    """A pair's label over its rounds: one line of `labels.jsonl`.

    `votes` has the label of each round in order, null where a round is undecided or ended in an error (`errors` counts
    those). `agreement` is between rounds without error. `confidence` is the mean over rounds that have one, where a
    round with the other label counts as one minus its own; None without label or confidences.
    """

    id: str
    label: Label
    votes: tuple[Label, ...]
    agreement: float | None
    confidence: float | None
    errors: int

    @property
    def ended(self) -> Ended:
        """How the pair ended: in an error only where every round did."""
        return ended(self.label, failed=self.errors == len(self.votes))

    @property
    def undecided(self) -> bool:
        """Whether there is no label although a round ended without error."""
        return self.ended == "undecided"


class RoundLabel(Frozen):
    """What a pair's label is made from: these fields of a line of `annotations.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    id: str
    round: Round
    label: Label
    confidence: Share | None = None
    error: dict[str, Any] | None


class Vote(NamedTuple):
    """What one round says of a pair."""

    label: Label
    confidence: float | None
    failed: bool

    @classmethod
    def of(cls, found: Annotation | RoundLabel) -> Vote:
        """Return the vote of an annotation."""
        return cls(found.label, found.confidence, found.error is not None)


def pair_label(identifier: str, votes: Sequence[Vote]) -> PairLabel:
    """Return a pair's label by its rounds, given in their order."""
    label = majority(vote.label for vote in votes if not vote.failed)
    known = [
        vote.confidence if vote.label == label else 1 - vote.confidence
        for vote in votes
        if vote.label is not None and vote.confidence is not None
    ]
    return PairLabel(
        id=identifier,
        label=label,
        votes=tuple(vote.label for vote in votes),
        agreement=agreement([vote.label for vote in votes if not vote.failed]),
        # exact: equal confidences must not come out a little lower, in another bin
        confidence=mean(known) if known and label is not None else None,
        errors=sum(vote.failed for vote in votes),
    )


def label_line(label: PairLabel) -> bytes:
    """Return a pair's label as its line."""
    return dumps(asdict(label)) + b"\n"


def write_labels(path: Path, labels: Iterable[PairLabel]) -> None:
    """Replace the file of labels in one step.

    Raises:
        StorageError: it cannot be written; the old one is whole.
    """
    with replacing(path) as draft, draft.open("wb") as file:
        file.writelines(map(label_line, labels))


Key = tuple[str, int]

_WHAT = "an annotation"
REMEDY = "Delete that line: its pair is annotated again"
_TABLES = """
CREATE TABLE lines (
    position INTEGER PRIMARY KEY, id BLOB, round INTEGER, label INTEGER, confidence REAL, failed INTEGER,
    UNIQUE (id, round)
)
"""


class AnnotationIndex:
    """Where the last line of each pair and round is. Sees what was whole when it was made, a torn end not.

    On disk, as far as it is large (`Scratch`). `key in index` says whether a pair and round have an annotation.

    Raises:
        RunFolderError: a whole line is not an annotation; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read()

    def add(self, found: Annotation | RoundLabel, size: int) -> None:
        """Note the line of an annotation, of `size` bytes, at the end."""
        self._put([(found, size)])

    def __len__(self) -> int:
        return int(self._one("SELECT count(*) FROM lines"))

    def __contains__(self, key: Key) -> bool:
        return self.finished(key)

    def finished(self, key: Key, *, retry_errors: bool = False) -> bool:
        """Whether a pair and round have an annotation; with `retry_errors` one without an error."""
        found = self._scratch.rows("SELECT failed FROM lines WHERE id = ? AND round = ?", _row(key))
        return bool(found) and not (retry_errors and found[0][0])

    @property
    def superseded(self) -> int:
        """How many lines a later one took the place of."""
        return self._added - len(self)

    @property
    def pairs(self) -> int:
        """How many pairs have an annotation."""
        return int(self._one("SELECT count(DISTINCT id) FROM lines"))

    @property
    def rounds(self) -> int:
        """How many rounds there are: one more than the highest number of any, 0 without annotations."""
        return int(self._one("SELECT ifnull(max(round) + 1, 0) FROM lines"))

    def annotated(self, *, failed: bool = False) -> Iterator[Key]:
        """Yield the pairs and rounds that have an annotation, sorted; where `failed`, those with an error alone."""
        where = "WHERE failed" if failed else ""
        for key, number in self._scratch.each(f"SELECT id, round FROM lines {where} ORDER BY id, round"):
            yield from_key(key), number

    def rounds_of(self, pair_id: str) -> list[int]:
        """Return the rounds in which a pair has an annotation, in order."""
        found = self._scratch.rows("SELECT round FROM lines WHERE id = ? ORDER BY round", (as_key(pair_id),))
        return [number for (number,) in found]

    def backwards(self) -> Iterator[tuple[int, Key]]:
        """Yield where the last line of each pair and round begins, and its key, from the end of the file."""
        for position, key, number in self._scratch.each("SELECT position, id, round FROM lines ORDER BY position DESC"):
            yield position, (from_key(key), number)

    def get(self, key: Key) -> Annotation | None:
        """Return the last annotation of a pair and round."""
        with self._opened() as file:
            found = self._scratch.rows("SELECT position FROM lines WHERE id = ? AND round = ?", _row(key))
            return self._at(file, key[0], found[0][0]) if found else None

    def __iter__(self) -> Iterator[Annotation]:
        """Yield the last annotation of each pair and round, in the order of the file."""
        return (decode_annotation(line, f"{self.path}:{number}") for number, line in self.lines())

    def by_pair(self) -> Iterator[list[Annotation]]:
        """Yield the last annotations of each pair's rounds, by the order of ids."""
        with self._opened() as file:
            found = self._scratch.each("SELECT id, position FROM lines ORDER BY id, round")
            for key, rows in groupby(found, key=itemgetter(0)):
                yield [self._at(file, from_key(key), position) for _, position in rows]

    def labels(self) -> Iterator[PairLabel]:
        """Yield the label of each pair by its rounds, by the order of ids."""
        found = self._scratch.each("SELECT id, label, confidence, failed FROM lines ORDER BY id, round")
        for key, rows in groupby(found, key=itemgetter(0)):
            yield pair_label(from_key(key), [Vote(*row[1:]) for row in rows])

    def label(self, pair_id: str) -> PairLabel | None:
        """Return the label of a pair by its rounds, None where it has no annotation."""
        query = "SELECT label, confidence, failed FROM lines WHERE id = ? ORDER BY round"
        votes = [Vote(*row) for row in self._scratch.rows(query, (as_key(pair_id),))]
        return pair_label(pair_id, votes) if votes else None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last line of each pair and round with its number."""
        position = 0
        with self._opened() as file:
            last = self._scratch.each("SELECT position FROM lines ORDER BY position")
            wanted = next(last, None)
            for number, line in enumerate(file, start=1):
                if wanted is None:
                    return
                if position == wanted[0]:
                    yield number, line
                    wanted = next(last, None)
                position += len(line)

    def read(self) -> None:
        """Go through the file, again where it was replaced."""
        self.end = self._added = 0
        self._scratch = Scratch(_TABLES)
        try:
            with open_regular(self.path) as file:
                self._inode = os.fstat(file.fileno()).st_ino
                whole = ((number, line) for number, line in numbered_lines(file, self.path) if line.endswith(b"\n"))
                self._put((_label(line, f"{self.path}:{number}"), len(line)) for number, line in whole)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be read ({error.strerror or error})") from error

    def _put(self, lines: Iterable[tuple[Annotation | RoundLabel, int]]) -> None:
        self._scratch.put("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?, ?)", self._rows(lines))

    def _rows(self, lines: Iterable[tuple[Annotation | RoundLabel, int]]) -> Iterator[tuple[Any, ...]]:
        for found, size in lines:
            yield self.end, as_key(found.id), found.round, *Vote.of(found)
            self.end += size
            self._added += 1

    def _one(self, query: str) -> Any:
        return self._scratch.rows(query)[0][0]

    def _at(self, file: IO[bytes], pair_id: str, position: int) -> Annotation:
        file.seek(position)
        return decode_annotation(file.readline(), f"{self.path}: the line of {pair_id[:60]!r}")

    def _opened(self) -> IO[bytes]:
        """Open the file that the positions are of; a run that closed meanwhile may have replaced it."""
        file = open_regular(self.path)
        found = os.fstat(file.fileno())
        if found.st_ino == self._inode and found.st_size >= self.end:
            return file
        file.close()
        self.read()
        return open_regular(self.path)


def _row(key: Key) -> tuple[bytes, int]:
    return as_key(key[0]), key[1]


class AnnotationLog:
    """Appends annotations; on opening, removes a line that a killed writer left torn.

    The caller holds the folder's lock: there is one writer.

    Raises, as every method does:
        RunFolderError: a whole line is not an annotation, or the file is a link or something else than a file.
        StorageError: the file cannot be written (disk full), and is as before.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = open_own(path, os.O_APPEND)
        try:
            self.index = AnnotationIndex(path)
            with writing(path):
                os.ftruncate(self._descriptor, self.index.end)
        except BaseException:
            self.close()
            raise

    def append(self, annotation: Annotation) -> None:
        """Write one line, whole or not at all."""
        if self._descriptor is None:
            raise RuntimeError(f"{self.path} is closed")
        line = encode_annotation(annotation) + b"\n"
        with writing(self.path):
            append_line(self._descriptor, self.index.end, line)
        self.index.add(annotation, len(line))

    def cut(self, kept: Callable[[Key], bool]) -> int:
        """Cut off the annotations at the end of which nothing is kept, and return how many there were."""
        lost = list(takewhile(lambda last: not kept(last[1]), self.index.backwards()))
        if lost and self._descriptor is not None:
            with writing(self.path):
                os.ftruncate(self._descriptor, lost[-1][0])
            self.sync()
            self.index.read()
        return len(lost)

    def sync(self) -> None:
        """Sync the file to the disk."""
        if self._descriptor is not None:
            with writing(self.path):
                os.fsync(self._descriptor)

    def compact(self) -> None:
        """Close the file, and where it has superseded lines put one without them in its place."""
        self.close()
        if self.index.superseded:
            with replacing(self.path) as draft, draft.open("wb") as file:
                file.writelines(line for _, line in self.index.lines())
            self.index.read()

    def close(self) -> None:
        """Sync the file to the disk and close it; closing twice does nothing."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with writing(self.path):
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def encode_annotation(annotation: Annotation) -> bytes:
    """Return an annotation as one line of JSON, without newline.

    Raises:
        TypeError: `meta` holds what JSON cannot.
    """
    # As it is: pydantic would replace lone surrogates in its keys.
    return dumps({**annotation.model_dump(mode="json", by_alias=True, exclude={"meta"}), "meta": annotation.meta})


def decode_annotation(line: bytes, place: str) -> Annotation:
    """Read an annotation from its line, which `place` names.

    Raises:
        RunFolderError: the line is not an annotation.
    """
    return decode_record(line, Annotation, place, what=_WHAT, remedy=REMEDY)


def _label(line: bytes, place: str) -> RoundLabel:
    return decode_record(line, RoundLabel, place, what=_WHAT, remedy=REMEDY)
