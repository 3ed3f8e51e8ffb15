"""`annotations.jsonl`, a line per pair and round, and `labels.jsonl`, a label per pair by its rounds."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, groupby, takewhile
from operator import itemgetter
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict

from agent.datasets.encoding import dumps
from agent.datasets.sources import open_regular
from agent.scratch import Scratch, as_key, from_key
from agent.store.files import (
    append_line,
    decode_record,
    number_lines,
    open_run_file,
    reading,
    replacing,
    writing,
)
from agent.types import Annotation, Frozen, Round, Share, majority

Label = Literal[0, 1] | None
LabelStatus = Literal["1", "0", "undecided", "error"]


def get_status(label: int | None, *, failed: bool) -> LabelStatus:
    """Return how a round, or a pair, ended: with a label, undecided, or in an error."""
    if failed:
        return "error"
    return "undecided" if label is None else "1" if label else "0"


def find_majority_round(rounds: Sequence[LabelStatus]) -> int | None:
    """Return the index of the first round that ended as the majority of them did; None for a tie.

    Errors count only where there is nothing else.
    """
    winner = majority([each for each in rounds if each != "error"] or rounds)
    return None if winner is None else rounds.index(winner)


def measure_agreement(outcomes: Sequence[Label]) -> float | None:
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
    def status(self) -> LabelStatus:
        """How the pair ended: in an error only where every round did."""
        return get_status(self.label, failed=self.errors == len(self.votes))


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
    def of(cls, annotation: Annotation | RoundLabel) -> Vote:
        """Return the vote of an annotation."""
        return cls(annotation.label, annotation.confidence, annotation.error is not None)


def combine_votes(identifier: str, votes: Sequence[Vote]) -> PairLabel:
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
        agreement=measure_agreement([vote.label for vote in votes if not vote.failed]),
        # exact: equal confidences must not come out a little lower, in another bin
        confidence=mean(known) if known and label is not None else None,
        errors=sum(vote.failed for vote in votes),
    )


def encode_label(label: PairLabel) -> bytes:
    """Return a pair's label as its line."""
    return dumps(asdict(label)) + b"\n"


def write_labels(path: Path, labels: Iterable[PairLabel]) -> None:
    """Replace the file of labels in one step.

    Raises:
        StorageError: it cannot be written; the old one is whole.
    """
    with replacing(path) as draft, draft.open("wb") as file:
        file.writelines(map(encode_label, labels))


Key = tuple[str, int]

_WHAT = "an annotation"
_CLOSED = -1
REMEDY = "Delete that line: its pair is annotated again"
_TABLES = """
CREATE TABLE lines (
    line INTEGER PRIMARY KEY, position INTEGER, size INTEGER, id BLOB, round INTEGER, label INTEGER, confidence REAL,
    failed INTEGER, UNIQUE (id, round)
)
"""


class AnnotationIndex:
    """The last line of each pair and round, as the file was when this was made. A torn last line is ignored.

    Large indexes lie on disk (`Scratch`). The file stays open, so that a run may replace it meanwhile.

    Raises:
        RunFolderError: the file cannot be read, or a whole line is not an annotation; the message names the line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = self._count = 0
        self._scratch = Scratch(_TABLES)
        with reading(path):
            self._file = open_regular(path)
            weakref.finalize(self, self._file.close)
            self._put(self._parse_lines())

    def add(self, annotation: Annotation, size: int) -> None:
        """Add an annotation whose line, of `size` bytes, was written to the end of the file."""
        self._put([(annotation, size)])

    def __len__(self) -> int:
        return int(self._fetch_value("SELECT count(*) FROM lines"))

    def is_finished(self, key: Key, *, retry_errors: bool = False) -> bool:
        """Whether a pair and round have an annotation; with `retry_errors` one without an error."""
        rows = self._scratch.execute("SELECT failed FROM lines WHERE id = ? AND round = ?", _encode_key(key))
        return bool(rows) and not (retry_errors and rows[0][0])

    @property
    def superseded_lines(self) -> int:
        """The number of lines that a later line of the same pair and round replaces."""
        return self._count - len(self)

    @property
    def pair_count(self) -> int:
        """The number of pairs that have an annotation."""
        return int(self._fetch_value("SELECT count(DISTINCT id) FROM lines"))

    @property
    def round_count(self) -> int:
        """The number of rounds: one more than the highest number of any, 0 without annotations."""
        return int(self._fetch_value("SELECT ifnull(max(round) + 1, 0) FROM lines"))

    def iterate_keys(self, *, failed: bool = False) -> Iterator[Key]:
        """Yield the pairs and rounds that have an annotation, sorted; with `failed` only those with an error."""
        where = "WHERE failed" if failed else ""
        for key, number in self._scratch.iterate(f"SELECT id, round FROM lines {where} ORDER BY id, round"):
            yield from_key(key), number

    def list_rounds(self, pair_id: str) -> list[int]:
        """Return the rounds in which a pair has an annotation, in order."""
        rows = self._scratch.execute("SELECT round FROM lines WHERE id = ? ORDER BY round", (as_key(pair_id),))
        return [number for (number,) in rows]

    def iterate_backwards(self) -> Iterator[tuple[int, Key]]:
        """Yield the position and the key of each last line, from the end of the file."""
        for position, key, number in self._scratch.iterate("SELECT position, id, round FROM lines ORDER BY line DESC"):
            yield position, (from_key(key), number)

    def get(self, key: Key) -> Annotation | None:
        """Return the last annotation of a pair and round."""
        rows = self._scratch.execute(
            "SELECT line, position, size FROM lines WHERE id = ? AND round = ?", _encode_key(key)
        )
        return self._read_annotation(*rows[0]) if rows else None

    def __iter__(self) -> Iterator[Annotation]:
        """Yield the last annotation of each pair and round, in the order of the file."""
        return (self._decode(line, content) for line, content in self.iterate_lines())

    def group_by_pair(self) -> Iterator[list[Annotation]]:
        """Yield the last annotations of each pair's rounds, in the order of ids."""
        rows = self._scratch.iterate("SELECT id, line, position, size FROM lines ORDER BY id, round")
        for _, of_pair in groupby(rows, key=itemgetter(0)):
            yield [self._read_annotation(*place) for _, *place in of_pair]

    def iterate_labels(self) -> Iterator[PairLabel]:
        """Yield the label of each pair over its rounds, in the order of ids."""
        rows = self._scratch.iterate("SELECT id, label, confidence, failed FROM lines ORDER BY id, round")
        for key, of_pair in groupby(rows, key=itemgetter(0)):
            yield combine_votes(from_key(key), [Vote(*vote) for _, *vote in of_pair])

    def get_label(self, pair_id: str) -> PairLabel | None:
        """Return the label of a pair over its rounds, None when it has no annotation."""
        query = "SELECT label, confidence, failed FROM lines WHERE id = ? ORDER BY round"
        votes = [Vote(*row) for row in self._scratch.execute(query, (as_key(pair_id),))]
        return combine_votes(pair_id, votes) if votes else None

    def iterate_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last line of each pair and round with its number, in the order of the file."""
        for line, position, size in self._scratch.iterate("SELECT line, position, size FROM lines ORDER BY line"):
            yield line, os.pread(self._file.fileno(), size, position)

    def _parse_lines(self) -> Iterator[tuple[RoundLabel, int]]:
        for number, line in number_lines(self._file, self.path):
            if line.endswith(b"\n"):
                yield (
                    decode_record(line, RoundLabel, f"{self.path}:{number}", expected=_WHAT, remedy=REMEDY),
                    len(line),
                )

    def _put(self, lines: Iterable[tuple[Annotation | RoundLabel, int]]) -> None:
        self._scratch.execute_many(
            "INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._build_rows(lines)
        )

    def _build_rows(self, lines: Iterable[tuple[Annotation | RoundLabel, int]]) -> Iterator[tuple[Any, ...]]:
        for annotation, size in lines:
            self._count += 1
            yield self._count, self.end, size, as_key(annotation.id), annotation.round, *Vote.of(annotation)
            self.end += size

    def _fetch_value(self, query: str) -> Any:
        return self._scratch.execute(query)[0][0]

    def _read_annotation(self, line: int, position: int, size: int) -> Annotation:
        return self._decode(line, os.pread(self._file.fileno(), size, position))

    def _decode(self, line: int, content: bytes) -> Annotation:
        return decode_annotation(content, f"{self.path}:{line}")


def _encode_key(key: Key) -> tuple[bytes, int]:
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
        self._descriptor = open_run_file(path, os.O_APPEND)
        try:
            self.index = AnnotationIndex(path)
            with writing(path):
                os.ftruncate(self._descriptor, self.index.end)
        except BaseException:
            self.close()
            raise

    def append(self, annotation: Annotation) -> None:
        """Write one line, whole or not at all."""
        line = encode_annotation(annotation) + b"\n"
        with writing(self.path):
            append_line(self._descriptor, self.index.end, line)
        self.index.add(annotation, len(line))

    def truncate(self, is_kept: Callable[[Key], bool]) -> int:
        """Cut off the annotations at the end of which nothing is kept, and return how many there were."""
        lost = list(takewhile(lambda last: not is_kept(last[1]), self.index.iterate_backwards()))
        if lost:
            with writing(self.path):
                os.ftruncate(self._descriptor, lost[-1][0])
            self.sync()
            self.index = AnnotationIndex(self.path)
        return len(lost)

    def sync(self) -> None:
        """Sync the file to the disk."""
        with writing(self.path):
            os.fsync(self._descriptor)

    def compact(self) -> None:
        """Close the file, and where it has superseded lines put one without them in its place."""
        self.close()
        if self.index.superseded_lines:
            with replacing(self.path) as draft, draft.open("wb") as file:
                file.writelines(line for _, line in self.index.iterate_lines())
            self.index = AnnotationIndex(self.path)

    def close(self) -> None:
        """Sync the file to the disk and close it; closing twice does nothing."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor == _CLOSED:
            return
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
    return decode_record(line, Annotation, place, expected=_WHAT, remedy=REMEDY)
