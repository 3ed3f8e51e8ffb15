"""What the page carries along of each pair: rows, stories and evidence in compressed pieces, as many as a size allows.

A piece is a JSON array of records, deflated (zlib) and in base64, so that a browser inflates one when it is looked at.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from agent.datasets.encoding import dumps
from agent.evaluation.statistics import bin_index
from agent.evaluation.tally import Observation
from agent.prompt_text import truncate
from agent.types import Pair
from agent.views.marks import iterate_marks
from agent.views.story import (
    TEXT_LIMIT,
    as_json,
    iterate_event_steps,
    iterate_input_fields,
    iterate_pair_steps,
    iterate_result_steps,
)

EvidenceScope = Literal["all", "tested", "none"]
# A story is found by its row's number; a piece of evidence is what is inflated when a pair is opened.
STORIES_IN_A_PIECE = 200
_ROWS_IN_A_PIECE = 2_000
_EVIDENCE_IN_A_PIECE = 40
# What a reader is likeliest to open comes first, should not all fit: what is open or disputed, then what was tested.
_CLASSES = ("evidence-a", "evidence-b", "evidence-c")
_PIECE_BYTES = 200_000
_TAG_BYTES = 80
_QUERY_LIMIT = 300
_MOST_SHARED = 200
# Names in marks come from models and may be many: what is first met after so many has none.
MOST_MARKS = 500


class PackedRecords:
    """Holds records compressed, in pieces of `records` records; `piece_bytes` ends a piece of large ones earlier.

    `pieces` are packed, each with the number of its records. Records that a page of `max_bytes` has no room for are
    dropped.
    """

    def __init__(self, name: str, max_bytes: int, *, records: int, piece_bytes: float = _PIECE_BYTES) -> None:
        self.name = name
        self.pieces: list[tuple[bytes, int]] = []
        self._room = max_bytes
        self._records = records
        self._piece_bytes = piece_bytes
        self._open: list[bytes] = []
        self._open_bytes = 0

    def add(self, record: Callable[[], Any]) -> tuple[int, int]:
        """Add what `record` returns, as JSON; return the numbers of its piece and of its place therein."""
        place = (len(self.pieces), len(self._open))
        if self._room < 0:
            return place
        self._open.append(dumps(record()))
        self._open_bytes += len(self._open[-1])
        if len(self._open) >= self._records or self._open_bytes >= self._piece_bytes:
            self.flush()
        return place

    def flush(self) -> None:
        """End the piece."""
        if self._open:
            packed = zlib.compress(b"[" + b",".join(self._open) + b"]", 9)
            self.pieces.append((packed, len(self._open)))
            self._room -= compute_page_bytes(packed)
            self._open, self._open_bytes = [], 0

    def encode_pieces(self, count: int) -> Iterator[tuple[str, str]]:
        """Yield the first `count` pieces, each with its name in the page."""
        for number, (packed, _) in enumerate(self.pieces[:count]):
            yield f"{self.name}-{number}", base64.b64encode(packed).decode("ascii")

    def records(self, count: int) -> int:
        """Return how many records the first `count` pieces hold."""
        return sum(records for _, records in self.pieces[:count])


def compute_page_bytes(packed: bytes) -> int:
    """Return the size of a piece in the page, its tag included."""
    return (len(packed) + 2) // 3 * 4 + _TAG_BYTES


def count_fitting_pieces(shelves: Sequence[PackedRecords], room: int) -> dict[str, int]:
    """Return how many pieces of each shelf fit into so many bytes; what comes first in the list is served first."""
    counts = dict.fromkeys((shelf.name for shelf in shelves), 0)
    for shelf in shelves:
        for packed, _ in shelf.pieces:
            room -= compute_page_bytes(packed)
            if room < 0:
                return counts
            counts[shelf.name] += 1
    return counts


class Archive:
    """Rows, stories and evidence, held compressed; `annotated` is how many annotations were taken in.

    What can no longer fit into a page of `max_bytes` is not held.
    """

    def __init__(self, max_bytes: int) -> None:
        self.rows = PackedRecords("rows", max_bytes, records=_ROWS_IN_A_PIECE)
        # by number of records alone: rows do not say where their story is
        self.stories = PackedRecords("stories", max_bytes, records=STORIES_IN_A_PIECE, piece_bytes=math.inf)
        self.shared = PackedRecords("shared", max_bytes, records=_MOST_SHARED, piece_bytes=math.inf)
        self.evidence = [PackedRecords(name, max_bytes, records=_EVIDENCE_IN_A_PIECE) for name in _CLASSES]
        self.columns: tuple[str, ...] = ()
        self.annotation_count = self.with_evidence = self.excluded_evidence = 0
        self._shared_numbers: dict[str, int] = {}
        self._marks: dict[str, int] = {}

    @property
    def collections(self) -> list[PackedRecords]:
        """All shelves, the dearest first."""
        return [self.rows, self.stories, self.shared, *self.evidence]

    @property
    def marks(self) -> list[str]:
        """The names of the marks that rows have by their numbers."""
        return list(self._marks)

    def add(self, seen: Observation, pair: Pair, kept: EvidenceScope, whole: Observation) -> None:
        """Take in one annotation of a pair; `whole` is the pair over all rounds."""
        self.annotation_count += 1
        place = None
        if seen.history is not None:
            if kept == "all" or (kept == "tested" and seen.annotation.test is not None):
                shelf, history = self.evidence[_get_evidence_class(seen)], seen.history
                place = (shelf.name, *shelf.add(lambda: as_json(iterate_event_steps(history), self._get_shared_number)))
                self.with_evidence += 1
            else:
                self.excluded_evidence += 1
        row = _build_row(seen, pair, place, whole) | {"marks": self._number_marks(seen)}
        self.columns = tuple(row)
        self.rows.add(lambda: [*row.values()])
        steps = [
            *reversed([*iterate_result_steps(seen.annotation, None)]),
            *iterate_pair_steps(pair),
            *iterate_input_fields(pair),
        ]
        self.stories.add(lambda: as_json(steps))

    def _number_marks(self, seen: Observation) -> list[int]:
        """Return the numbers of an annotation's marks."""
        numbers = set[int]()
        for name in iterate_marks(seen):
            if name in self._marks or len(self._marks) < MOST_MARKS:
                numbers.add(self._marks.setdefault(name, len(self._marks)))
        return sorted(numbers)

    def _get_shared_number(self, text: str) -> int | None:
        """Return the number of a system message, which is in the page once; None when there are too many."""
        text = truncate(text, TEXT_LIMIT)
        if text not in self._shared_numbers and len(self._shared_numbers) < _MOST_SHARED:
            self._shared_numbers[text] = len(self._shared_numbers)
            self.shared.add(lambda: text)
        return self._shared_numbers.get(text)


def _build_row(seen: Observation, pair: Pair, place: tuple[str, int, int] | None, whole: Observation) -> dict[str, Any]:
    """Return an annotation's row by its columns; `place` says where its evidence is."""
    annotation, test = seen.annotation, seen.annotation.test
    return {
        "id": annotation.id,
        "round": annotation.round,
        "query": truncate(pair.query, _QUERY_LIMIT),
        "label": seen.label,
        "majority": whole.label,
        "standing": int(annotation.round == whole.annotation.round),
        "decided_by": annotation.decided_by,
        "screened": None if annotation.screen_verdict is None else annotation.screen_verdict.value,
        "status": None if test is None else test.outcome,
        "cause": None if test is None or test.cause is None else test.cause.value,
        "error": None if annotation.error is None else annotation.error.type,
        "stand_ins": len(annotation.stand_ins),
        "repairs": annotation.repairs,
        "confidence": annotation.confidence,
        "confidence_bin": None if whole.annotation.confidence is None else bin_index(whole.annotation.confidence),
        "strength": annotation.strength,
        "strength_bin": None if annotation.strength is None else bin_index(annotation.strength),
        "seconds": annotation.seconds,
        "calls": annotation.usage.calls,
        "tokens": annotation.usage.input_tokens + annotation.usage.output_tokens,
        "cost": annotation.usage.cost_usd,
        "against": int(annotation.against_test),
        "gold": seen.gold,
        "evidence": place,
    }


def _get_evidence_class(seen: Observation) -> int:
    annotation = seen.annotation
    if seen.label in ("undecided", "error") or annotation.against_test or seen.gold not in (None, annotation.label):
        return 0
    return 1 if annotation.test is not None else 2
