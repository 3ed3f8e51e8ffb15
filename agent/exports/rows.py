"""The rows of an export: the input's own fields, then what the run found, as text that every format can hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

from agent.datasets.encoding import dumps
from agent.errors import InputError, UsageError
from agent.evaluation.tally import Observation, Tally, iterate_annotated_pairs, merge_rounds
from agent.store.run_view import RunView
from agent.types import Annotation, Pair

Row = dict[str, Any]
ColumnKind = Literal["text", "integer", "number", "flag", "json"]
"""What the cells of a column are: text, 64-bit integers, 64-bit floats, true or false, or JSON as text."""

PAIR: Mapping[str, ColumnKind] = {"id": "text", "query": "text", "code": "text", "language": "text", "context": "text"}
OUTCOME: Mapping[str, ColumnKind] = {
    "label": "integer",
    "reason": "text",
    "decided_by": "text",
    "test_status": "text",
    "confidence": "number",
    "error": "text",
}
INPUT_PREFIX = "input_"
_KINDS: Mapping[type, ColumnKind] = {bool: "flag", float: "number", str: "text"}
_TAKEN = PAIR.keys() | OUTCOME.keys()


@dataclass(frozen=True)
class ExportFilter:
    """Which pairs are exported: those that pass every filter given.

    Pairs with one of the `labels`, decided by one of `decided_by` (of both, none given takes all); with `errors` those
    alone that ended in an error, with False those alone that did not; with a confidence of `min_confidence` at least.
    """

    labels: Collection[int | None] = ()
    decided_by: Collection[str] = ()
    errors: bool | None = None
    min_confidence: float | None = None

    def includes(self, annotation: Annotation) -> bool:
        """Return whether a pair, its rounds taken together, is exported."""
        confidence = annotation.confidence
        return (
            (not self.labels or annotation.label in self.labels)
            and (not self.decided_by or annotation.decided_by in self.decided_by)
            and self.errors in (None, annotation.error is not None)
            and (self.min_confidence is None or (confidence is not None and confidence >= self.min_confidence))
        )


EVERYTHING = ExportFilter()
MOST_COLUMNS = 1_000


class Export:
    """The annotated pairs of a run that are wanted, as rows in the order of the input, one pair at a time.

    A pair of several rounds has the label and confidence of their majority, as in `labels.jsonl`.

    After the rows were gone through, `tally` counts them, `left_out` says how many pairs are missing from the export
    and why, and `notes` what else readers should know.

    Args:
        progress: is called with how many annotated pairs were gone through.
    """

    def __init__(
        self, run: RunView, wanted: ExportFilter = EVERYTHING, progress: Callable[[int], None] = lambda _: None
    ):
        self.run = run
        self.wanted = wanted
        self.left_out: Counter[str] = Counter()
        self.notes: list[str] = []
        self.tally = Tally()
        self._progress = progress

    @cached_property
    def columns(self) -> dict[str, ColumnKind]:
        """The columns of all pairs of the run in their order, each with its kind. Goes through the input.

        A column with values of several kinds, or with any that is nested or too large, is of JSON; one of integers and
        other numbers, of numbers.

        Raises:
            InputError: the run's input is damaged.
            UsageError: there are more than `MOST_COLUMNS`.
        """
        kinds = {name: {kind} for name, kind in PAIR.items() if name != "context"}
        for pair in self.run.pairs():
            for name, value in _of_pair(pair).items():
                kinds.setdefault(name, set()).update(() if value is None else (_kind(value),))
            if len(kinds) > MOST_COLUMNS:
                cause = f"its pairs have more than {MOST_COLUMNS:,} different fields, too many for columns"
                raise UsageError(f"{self.run.path}: {cause}; export it as jsonl")
        ordered = dict.fromkeys(name for name in (*PAIR, *kinds) if name in kinds)
        return {**{name: _common_kind(kinds[name]) for name in ordered}, **OUTCOME}

    def iterate_rows(self, *, labelled: bool = False) -> Iterator[Row]:
        """Yield the rows, of `labelled` pairs alone where that is asked for; to be gone through once.

        Raises:
            RunFolderError: the folder is damaged.
            InputError: its input is damaged, or two fields of a pair come to have one name.
            UsageError: there are none.
        """
        deciders, number = set[str](), 0
        for number, (pair, rounds) in enumerate(iterate_annotated_pairs(self.run), start=1):
            whole = merge_rounds(rounds).annotation
            deciders.update([whole.decided_by] if whole.decided_by else ())
            if not self.wanted.includes(whole):
                self.left_out["by the filters"] += 1
            elif labelled and whole.label is None:
                self.left_out["without a label"] += 1
            else:
                self.tally.add(Observation(whole))
                yield {**_of_pair(pair), **_of_annotation(whole)}
            self._progress(number)
        if waiting := sum(1 for _ in self.run.pairs()) - number:
            self.left_out["not annotated yet"] = waiting
        if not self.tally.annotations:
            by = f"; decided by: {', '.join(sorted(deciders))}" if deciders else ""
            raise UsageError(f"{self.run.path}: nothing to export; left out: {format_left_out(self.left_out)}{by}")


def format_left_out(left_out: Mapping[str, int]) -> str:
    """Return why how many pairs were left out, for readers."""
    return " · ".join(f"{count:,} {why}" for why, count in left_out.items())


def escape_surrogates(text: str) -> str:
    """Return a text that UTF-8 can hold: a lone surrogate becomes its escape, as in `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def as_cell(value: Any, kind: ColumnKind) -> Any:
    """Return a value as the cell of a column: None, text, an integer, a float or a bool."""
    if value is None:
        return None
    if kind == "json":
        return dumps(value).decode("utf-8")
    return float(value) if kind == "number" else value


def _of_pair(pair: Pair) -> Row:
    """Return the input's own fields; those of `meta` that would hide one of ours are called `input_…`."""
    context = {} if pair.context is None else {"context": pair.context}
    own = {"id": pair.id, "query": pair.query, "code": pair.code, "language": pair.language, **context}
    renamed = {_free(name): value for name, value in pair.meta.items()}
    row: Row = _clean({**own, **renamed})
    if len(row) < len(own) + len(pair.meta):
        raise InputError(f"two fields of pair {pair.id[:60]!r} have one name once lone surrogates are escaped")
    return row


def _of_annotation(whole: Annotation) -> Row:
    return {
        "label": whole.label,
        # of a tie of rounds nobody gave the reason
        "reason": escape_surrogates(whole.reason) if whole.decided_by is not None else "",
        "decided_by": whole.decided_by,
        "test_status": None if whole.test is None else whole.test.status.value,
        "confidence": whole.confidence,
        "error": None if whole.error is None else whole.error.type,
    }


def _free(name: str) -> str:
    """Return the column of a field of `meta`: no two fields, of one pair or of several, come to share one."""
    core = re.sub(f"^({INPUT_PREFIX})+", "", name)
    return INPUT_PREFIX + name if core in _TAKEN else name


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return escape_surrogates(value)
    if isinstance(value, dict):
        return {escape_surrogates(name): _clean(inner) for name, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list) else value


def _kind(value: Any) -> ColumnKind:
    if isinstance(value, int) and not isinstance(value, bool):
        return "integer" if -(2**63) <= value < 2**63 else "json"
    return _KINDS.get(type(value), "json")


def _common_kind(kinds: Collection[ColumnKind]) -> ColumnKind:
    if len(kinds) < 2:
        return next(iter(kinds), "text")
    return "number" if kinds == {"integer", "number"} else "json"


class TextNumbers:
    """Assigns consecutive numbers to distinct texts. Stores a 128-bit hash per text."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, text: str) -> tuple[int, bool]:
        """Return the number of a text, and whether it is new."""
        digest, before = blake2b(text.encode("utf-8"), digest_size=16).digest(), len(self._numbers)
        number = self._numbers.setdefault(digest, before)
        return number, number == before
