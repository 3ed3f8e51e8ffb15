"""Packs the rows, stories and evidence of a report into compressed pieces, up to a size limit.

A piece is a JSON array of records, compressed with zlib and encoded in base64. The browser decompresses it on demand.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from agent.datasets.encoding import dumps
from agent.evaluation.tally import Observation
from agent.text import truncate
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
# The page computes the number of a story's piece from the position of the row.
STORIES_IN_A_PIECE = 200
_ROWS_IN_A_PIECE = 2_000
_EVIDENCE_IN_A_PIECE = 40
# Collections of evidence, the most important first: undecided or disputed pairs, tested pairs, all other pairs.
_CLASSES = ("evidence-a", "evidence-b", "evidence-c")
_PIECE_BYTES = 200_000
_TAG_BYTES = 80
_QUERY_LIMIT = 300
_MAX_SHARED = 200
# Models invent some of the names in marks, so the number of marks is limited. Names beyond this limit get no mark.
MAX_MARKS = 500


class PackedRecords:
    """Records in compressed pieces. A piece contains `records` records, or fewer if it reaches `piece_bytes`.

    `pieces` contains each piece and its number of records. Records beyond `max_bytes` are dropped.
    """

    def __init__(self, name: str, max_bytes: int, *, records: int, piece_bytes: float = _PIECE_BYTES) -> None:
        self.name = name
        self.pieces: list[tuple[bytes, int]] = []
        self._remaining_bytes = max_bytes
        self._records = records
        self._piece_bytes = piece_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def add(self, create_record: Callable[[], Any]) -> tuple[int, int]:
        """Add the result of `create_record` as JSON. Return its piece number and its position in that piece."""
        location = (len(self.pieces), len(self._pending))
        if self._remaining_bytes < 0:
            return location
        self._pending.append(dumps(create_record()))
        self._pending_bytes += len(self._pending[-1])
        if len(self._pending) >= self._records or self._pending_bytes >= self._piece_bytes:
            self.flush()
        return location

    def flush(self) -> None:
        """Compress the pending records into a piece."""
        if self._pending:
            piece = zlib.compress(b"[" + b",".join(self._pending) + b"]", 9)
            self.pieces.append((piece, len(self._pending)))
            self._remaining_bytes -= compute_page_bytes(piece)
            self._pending, self._pending_bytes = [], 0

    def encode_pieces(self, count: int) -> Iterator[tuple[str, str]]:
        """Iterate over the first `count` pieces. Yield the name of each piece in the page and its base64 text."""
        for number, (piece, _) in enumerate(self.pieces[:count]):
            yield f"{self.name}-{number}", base64.b64encode(piece).decode("ascii")

    def count_records(self, pieces: int) -> int:
        """Count the records in the first `pieces` pieces."""
        return sum(records for _, records in self.pieces[:pieces])


def compute_page_bytes(piece: bytes) -> int:
    """Return the number of bytes that a piece occupies in the page, including its HTML tag."""
    return (len(piece) + 2) // 3 * 4 + _TAG_BYTES


def count_fitting_pieces(collections: Sequence[PackedRecords], max_bytes: int) -> dict[str, int]:
    """Return how many pieces of each collection fit into `max_bytes`. Earlier collections take precedence."""
    counts = dict.fromkeys((collection.name for collection in collections), 0)
    for collection in collections:
        for piece, _ in collection.pieces:
            max_bytes -= compute_page_bytes(piece)
            if max_bytes < 0:
                return counts
            counts[collection.name] += 1
    return counts


class Archive:
    """Compressed rows, stories and evidence of a run. Records that cannot fit into `max_bytes` are dropped.

    `annotation_count` counts all annotations. `with_evidence` counts the annotations whose evidence was added.
    `excluded_evidence` counts the annotations whose evidence was not requested.
    """

    def __init__(self, max_bytes: int) -> None:
        self.rows = PackedRecords("rows", max_bytes, records=_ROWS_IN_A_PIECE)
        # Stories have no byte limit per piece, so every piece except the last contains the same number of stories.
        self.stories = PackedRecords("stories", max_bytes, records=STORIES_IN_A_PIECE, piece_bytes=math.inf)
        self.shared = PackedRecords("shared", max_bytes, records=_MAX_SHARED, piece_bytes=math.inf)
        self.evidence = [PackedRecords(name, max_bytes, records=_EVIDENCE_IN_A_PIECE) for name in _CLASSES]
        self.columns: tuple[str, ...] = ()
        self.annotation_count = self.with_evidence = self.excluded_evidence = 0
        self._shared_numbers: dict[str, int] = {}
        self._marks: dict[str, int] = {}

    @property
    def collections(self) -> list[PackedRecords]:
        """All collections, the most important first."""
        return [self.rows, self.stories, self.shared, *self.evidence]

    @property
    def marks(self) -> list[str]:
        """The names of the marks. Rows refer to a mark by its index in this list."""
        return list(self._marks)

    def add(self, observation: Observation, pair: Pair, scope: EvidenceScope, merged: Observation) -> None:
        """Add one annotation of a pair. `merged` combines the pair's rounds (see `merge_rounds`)."""
        self.annotation_count += 1
        location = None
        if observation.history is not None:
            if scope == "all" or (scope == "tested" and observation.annotation.test is not None):
                collection, history = self.evidence[_get_evidence_class(observation)], observation.history
                position = collection.add(lambda: as_json(iterate_event_steps(history), self._get_shared_number))
                location = (collection.name, *position)
                self.with_evidence += 1
            else:
                self.excluded_evidence += 1
        row = _build_row(observation, pair, location, merged) | {"marks": self._number_marks(observation)}
        self.columns = tuple(row)
        self.rows.add(lambda: [*row.values()])
        result = reversed([*iterate_result_steps(observation.annotation, None)])
        steps = [*result, *iterate_pair_steps(pair), *iterate_input_fields(pair)]
        self.stories.add(lambda: as_json(steps))

    def _number_marks(self, observation: Observation) -> list[int]:
        numbers = set[int]()
        for name in iterate_marks(observation):
            if name in self._marks or len(self._marks) < MAX_MARKS:
                numbers.add(self._marks.setdefault(name, len(self._marks)))
        return sorted(numbers)

    def _get_shared_number(self, text: str) -> int | None:
        """Return the number of a system message that the page stores once, or None if no more can be stored."""
        text = truncate(text, TEXT_LIMIT)
        if text not in self._shared_numbers and len(self._shared_numbers) < _MAX_SHARED:
            self._shared_numbers[text] = len(self._shared_numbers)
            self.shared.add(lambda: text)
        return self._shared_numbers.get(text)


def _build_row(
    observation: Observation, pair: Pair, location: tuple[str, int, int] | None, merged: Observation
) -> dict[str, Any]:
    """Return an annotation's row. `location` is the collection, piece and position of its evidence."""
    annotation, test = observation.annotation, observation.annotation.test
    return {
        "id": annotation.id,
        "round": annotation.round,
        "query": truncate(pair.query, _QUERY_LIMIT),
        "label": observation.label,
        "majority": merged.label,
        "standing": int(annotation.round == merged.annotation.round),
        "decided_by": annotation.decided_by,
        "screened": None if annotation.screen_verdict is None else annotation.screen_verdict.value,
        "status": None if test is None else test.status.value,
        "cause": None if test is None or test.cause is None else test.cause.value,
        "error": None if annotation.error is None else annotation.error.type,
        "stand_ins": len(annotation.stand_ins),
        "repairs": annotation.repairs,
        "seconds": annotation.seconds,
        "calls": annotation.usage.calls,
        "tokens": annotation.usage.input_tokens + annotation.usage.output_tokens,
        "cost": annotation.usage.cost_usd,
        "against": int(annotation.against_test),
        "gold": observation.gold,
        "evidence": location,
    }


def _get_evidence_class(observation: Observation) -> int:
    annotation, gold = observation.annotation, observation.gold
    if observation.label in ("undecided", "error") or annotation.against_test or gold not in (None, annotation.label):
        return 0
    return 1 if annotation.test is not None else 2
