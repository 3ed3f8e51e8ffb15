"""`annotations.jsonl` (one line per pair and round) and `labels.jsonl` (one label per pair)."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from agent.datasets.encoding import dumps
from agent.datasets.sources import open_regular
from agent.runs.store.files import append_line, decode_record, number_lines, open_run_file, reading, replacing, writing
from agent.runs.store.former import update_annotation
from agent.temp_database import TempDatabase, as_key, from_key
from agent.types import INTENT_JUDGE, Annotation, Frozen, Round, majority

Label = Literal[0, 1] | None
LabelStatus = Literal["1", "0", "undecided", "no_intent", "error"]
_LABELS: Mapping[LabelStatus, Literal[0, 1]] = {"1": 1, "0": 0}


def get_status(annotation: Annotation | RoundLabel) -> LabelStatus:
    """Return the status of an annotation: the label, `undecided`, `no_intent` or `error`.

    `no_intent` means that the query does not search for code, so the pair has no label (CoSQA paper, section 3.2).
    """
    if annotation.error is not None:
        return "error"
    if annotation.label is not None:
        return "1" if annotation.label else "0"
    return "no_intent" if annotation.decided_by == INTENT_JUDGE else "undecided"


def find_majority_round(rounds: Sequence[LabelStatus]) -> int | None:
    """Return the index of the first round with the majority status, or None if there is a tie.

    Failed rounds are ignored unless every round failed.
    """
    winner = majority([status for status in rounds if status != "error"] or rounds)
    return None if winner is None else rounds.index(winner)


def compute_vote_share(rounds: Sequence[LabelStatus], expected: int) -> float:
    """Return the share of a pair's rounds that have the most frequent status.

    `expected` is the number of rounds in the run. Failed and missing rounds agree with no other round.
    """
    counts = Counter(status for status in rounds if status != "error")
    return max(counts.values(), default=0) / expected


def measure_agreement(outcomes: Sequence[Label | LabelStatus]) -> float | None:
    """Compare every two rounds of a pair, and return the share of these comparisons in which the rounds agree.

    The result is None if there are fewer than two rounds. Two undecided rounds agree. An undecided round and a labelled
    round disagree.
    """
    compared = list(combinations(outcomes, 2))
    return sum(first == second for first, second in compared) / len(compared) if compared else None


@dataclass(frozen=True)
class PairLabel:
    """The label of a pair across all rounds: one line of `labels.jsonl`.

    `votes` are the labels of the rounds, in order. An undecided or failed round has a null vote. `errors` counts failed
    rounds. `agreement` ignores failed rounds. `status` is the majority status: `undecided` if there is a tie, and
    `error` only if every round failed.
    """

    id: str
    label: Label
    votes: tuple[Label, ...]
    agreement: float | None
    errors: int
    status: LabelStatus


class RoundLabel(Frozen):
    """The fields of a line of `annotations.jsonl` that determine the pair's label."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    id: str
    round: Round
    label: Label
    decided_by: str | None = None
    error: dict[str, Any] | None


def combine_rounds(identifier: str, rounds: Sequence[LabelStatus]) -> PairLabel:
    """Return a pair's majority label. `rounds` must be in the order of the rounds."""
    index = find_majority_round(rounds)
    status: LabelStatus = "undecided" if index is None else rounds[index]
    return PairLabel(
        id=identifier,
        label=_LABELS.get(status),
        votes=tuple(map(_LABELS.get, rounds)),
        agreement=measure_agreement([outcome for outcome in rounds if outcome != "error"]),
        errors=rounds.count("error"),
        status=status,
    )


def encode_label(label: PairLabel) -> bytes:
    """Encode a pair's label as one line of JSON, including the newline."""
    return dumps(asdict(label)) + b"\n"


def write_labels(path: Path, labels: Iterable[PairLabel]) -> None:
    """Replace the labels file atomically.

    Raises:
        StorageError: the file cannot be written. The old file is unchanged.
    """
    with replacing(path) as draft, draft.open("wb") as file:
        file.writelines(map(encode_label, labels))


Key = tuple[str, int]

_EXPECTED = "an annotation"
_CLOSED = -1
REMEDY = "Delete that line to have its pair annotated again."
_TABLES = """
CREATE TABLE lines (
    line INTEGER PRIMARY KEY, position INTEGER, size INTEGER, id BLOB, round INTEGER, status TEXT,
    UNIQUE (id, round)
)
"""


class AnnotationIndex:
    """An index of the last line for each pair and round, built on construction. Ignores a truncated last line.

    Large indexes spill to disk (`TempDatabase`). The file stays open, so a run can replace it without affecting the
    index.

    Raises:
        RunFolderError: the file cannot be read, or a complete line is not an annotation. The message names the line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = self._count = 0
        self._scratch = TempDatabase(_TABLES)
        with reading(path):
            self._file = open_regular(path)
            weakref.finalize(self, self._file.close)
            self._insert(self._parse_lines())

    def add(self, annotation: Annotation, size: int) -> None:
        """Add an annotation that was appended to the file as a line of `size` bytes."""
        self._insert([(annotation, size)])

    def __len__(self) -> int:
        return int(self._fetch_value("SELECT count(*) FROM lines"))

    def is_finished(self, key: Key, *, retry_errors: bool = False) -> bool:
        """Whether a pair is annotated in a round. With `retry_errors`, annotations with an error are ignored."""
        rows = self._scratch.execute("SELECT status FROM lines WHERE id = ? AND round = ?", _encode_key(key))
        return bool(rows) and not (retry_errors and rows[0][0] == "error")

    @property
    def superseded_lines(self) -> int:
        """The number of lines superseded by a later line for the same pair and round."""
        return self._count - len(self)

    @property
    def pair_count(self) -> int:
        """The number of annotated pairs."""
        return int(self._fetch_value("SELECT count(DISTINCT id) FROM lines"))

    @property
    def round_count(self) -> int:
        """The highest round number plus one, or 0 if there are no annotations."""
        return int(self._fetch_value("SELECT ifnull(max(round) + 1, 0) FROM lines"))

    def iterate_keys(self, *, failed: bool = False) -> Iterator[Key]:
        """Iterate over the annotated pairs and rounds, sorted.

        With `failed`, include only annotations with an error.
        """
        condition = "WHERE status = 'error'" if failed else ""
        for key, number in self._scratch.iterate(f"SELECT id, round FROM lines {condition} ORDER BY id, round"):
            yield from_key(key), number

    def list_rounds(self, pair_id: str) -> list[int]:
        """Return the annotated rounds of a pair, in order."""
        rows = self._scratch.execute("SELECT round FROM lines WHERE id = ? ORDER BY round", (as_key(pair_id),))
        return [number for (number,) in rows]

    def iterate_backwards(self) -> Iterator[tuple[int, Key]]:
        """Iterate over the byte offsets and keys of the indexed lines, starting at the end of the file."""
        for position, key, number in self._scratch.iterate("SELECT position, id, round FROM lines ORDER BY line DESC"):
            yield position, (from_key(key), number)

    def get(self, key: Key) -> Annotation | None:
        """Return the last annotation for a pair and round, or None."""
        rows = self._scratch.execute(
            "SELECT line, position, size FROM lines WHERE id = ? AND round = ?", _encode_key(key)
        )
        return self._read_annotation(*rows[0]) if rows else None

    def __iter__(self) -> Iterator[Annotation]:
        """Iterate over the last annotation for each pair and round, in file order."""
        return (decode_annotation(content, f"{self.path}:{line}") for line, content in self.iterate_lines())

    def group_by_pair(self) -> Iterator[list[Annotation]]:
        """For each pair, sorted by id, yield the last annotation of each round."""
        rows = self._scratch.iterate("SELECT id, line, position, size FROM lines ORDER BY id, round")
        for _, pair_rows in groupby(rows, key=itemgetter(0)):
            yield [self._read_annotation(*location) for _, *location in pair_rows]

    def iterate_labels(self) -> Iterator[PairLabel]:
        """Iterate over the majority labels of all pairs, sorted by id."""
        rows = self._scratch.iterate("SELECT id, status FROM lines ORDER BY id, round")
        for key, pair_rows in groupby(rows, key=itemgetter(0)):
            yield combine_rounds(from_key(key), [status for _, status in pair_rows])

    def get_label(self, pair_id: str) -> PairLabel | None:
        """Return a pair's majority label, or None if the pair has no annotation."""
        rows = self._scratch.execute("SELECT status FROM lines WHERE id = ? ORDER BY round", (as_key(pair_id),))
        return combine_rounds(pair_id, [status for (status,) in rows]) if rows else None

    def iterate_lines(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over the last line for each pair and round with its line number, in file order."""
        for line, position, size in self._scratch.iterate("SELECT line, position, size FROM lines ORDER BY line"):
            yield line, os.pread(self._file.fileno(), size, position)

    def _parse_lines(self) -> Iterator[tuple[RoundLabel, int]]:
        for number, line in number_lines(self._file, self.path):
            if line.endswith(b"\n"):
                location = f"{self.path}:{number}"
                yield decode_record(line, RoundLabel, location, expected=_EXPECTED, remedy=REMEDY), len(line)

    def _insert(self, lines: Iterable[tuple[Annotation | RoundLabel, int]]) -> None:
        self._scratch.execute_many("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?, ?)", self._build_rows(lines))

    def _build_rows(self, lines: Iterable[tuple[Annotation | RoundLabel, int]]) -> Iterator[tuple[Any, ...]]:
        for annotation, size in lines:
            self._count += 1
            yield self._count, self.end, size, as_key(annotation.id), annotation.round, get_status(annotation)
            self.end += size

    def _fetch_value(self, query: str) -> Any:
        return self._scratch.execute(query)[0][0]

    def _read_annotation(self, line: int, position: int, size: int) -> Annotation:
        return decode_annotation(os.pread(self._file.fileno(), size, position), f"{self.path}:{line}")


def _encode_key(key: Key) -> tuple[bytes, int]:
    return as_key(key[0]), key[1]


class AnnotationLog:
    """Appends annotations to a file. Opening the file removes a truncated last line left by a killed writer.

    The caller must hold the run folder's lock to prevent concurrent writes.

    Raises (constructor and methods):
        RunFolderError: a complete line is not an annotation, or the path is not a regular file.
        StorageError: the file cannot be written, for example because the disk is full. The file is unchanged.
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
        """Append an annotation, either completely or not at all."""
        line = encode_annotation(annotation) + b"\n"
        with writing(self.path):
            append_line(self._descriptor, self.index.end, line)
        self.index.add(annotation, len(line))

    def truncate(self, keep: Callable[[Key], bool]) -> int:
        """Remove trailing annotations until `keep` accepts one, and return the number of removed annotations."""
        removed = list(takewhile(lambda last: not keep(last[1]), self.index.iterate_backwards()))
        if removed:
            with writing(self.path):
                os.ftruncate(self._descriptor, removed[-1][0])
            self.sync()
            self.index = AnnotationIndex(self.path)
        return len(removed)

    def sync(self) -> None:
        """Sync the file to disk."""
        with writing(self.path):
            os.fsync(self._descriptor)

    def compact(self) -> None:
        """Close the file. If it has superseded lines, rewrite it without them."""
        self.close()
        if self.index.superseded_lines:
            with replacing(self.path) as draft, draft.open("wb") as file:
                file.writelines(line for _, line in self.index.iterate_lines())
            self.index = AnnotationIndex(self.path)

    def close(self) -> None:
        """Sync the file to disk and close it. Calling it again does nothing."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor == _CLOSED:
            return
        with writing(self.path):
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def encode_annotation(annotation: Annotation) -> bytes:
    """Encode an annotation as one line of JSON, without the newline.

    Raises:
        TypeError: `meta` contains a value that JSON cannot represent.
    """
    # `meta` bypasses pydantic, which would replace lone surrogates in its keys.
    return dumps({**annotation.model_dump(mode="json", by_alias=True, exclude={"meta"}), "meta": annotation.meta})


def decode_annotation(line: bytes, location: str) -> Annotation:
    """Parse an annotation from a line of the file. `location` identifies the line in error messages.

    Raises:
        RunFolderError: the line is not an annotation.
    """
    return decode_record(line, Annotation, location, expected=_EXPECTED, remedy=REMEDY, update=update_annotation)
