"""The rows of an export. Each row contains the input fields and the results of a pair.

Lone surrogates in text are escaped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from agent.corpus.labelled import read_labelled
from agent.datasets.encoding import dumps
from agent.datasets.fields import FieldMap
from agent.errors import InputError, UsageError
from agent.evaluation.certificate import StratumRate
from agent.evaluation.guarantee import Guarantee
from agent.evaluation.tally import Observation, Tally, iterate_annotated_pairs, merge_rounds
from agent.runs.store import files
from agent.runs.store.annotations import compute_vote_share, get_status
from agent.runs.store.run_view import RunView, load_run
from agent.types import Annotation, ModuleContext, Pair, Progress

Row = dict[str, Any]
ColumnKind = Literal["text", "integer", "number", "flag", "json"]
"""Type of the cells in a column: text, 64-bit integers, 64-bit floats, booleans, or JSON as text."""

PAIR_COLUMNS: Mapping[str, ColumnKind] = dict.fromkeys(("id", "query", "code", "language", "context"), "text")
RESULT_COLUMNS: Mapping[str, ColumnKind] = {
    "label": "integer",
    "reason": "text",
    "decided_by": "text",
    "test_status": "text",
    "error": "text",
}
MODULE_COLUMNS: Mapping[str, ColumnKind] = {"test_module": "text", "test_alone": "text"}
"""Columns of runs that test snippets in their modules: the import path, and why a test ran alone."""
PROBABILITY_COLUMNS: Mapping[str, ColumnKind] = dict.fromkeys(("p_correct", "p_low"), "number")
"""Columns of exports with calibrated probabilities (`agent.evaluation.certificate.StratumRate`)."""
INPUT_PREFIX = "input_"
_KINDS: Mapping[type, ColumnKind] = {bool: "flag", float: "number", str: "text"}


@dataclass(frozen=True)
class ExportFilter:
    """Selects the pairs to export. A pair must pass all filters.

    `labels` and `decided_by` keep only pairs with one of the given values, or all pairs if they are empty. `errors`
    keeps only failed pairs if it is True, and only pairs without an error if it is False. `min_agreement` keeps
    only pairs with at least this vote share (`compute_vote_share`) and counts the other pairs separately. `ids` keeps
    only these pairs, and the other pairs are not counted as excluded.
    """

    labels: Collection[int | None] = ()
    decided_by: Collection[str] = ()
    errors: bool | None = None
    min_agreement: float = 0.0
    ids: Collection[str] | None = None

    def includes(self, annotation: Annotation) -> bool:
        """Return whether a pair passes all filters. `annotation` contains the merged rounds of the pair."""
        return (
            (not self.labels or annotation.label in self.labels)
            and (not self.decided_by or annotation.decided_by in self.decided_by)
            and self.errors in (None, annotation.error is not None)
        )


EVERYTHING = ExportFilter()
MAX_COLUMNS = 1_000


class PairsFile:
    """A file of pairs. Its labels are in the field `label`, and it has no other results. See `read_labelled`."""

    def __init__(self, path: Path, mapping: FieldMap = None) -> None:
        self.path, self.mapping = path, mapping

    def pairs(self) -> Iterator[Pair]:
        """Iterate over the pairs, without their labels."""
        return (pair for pair, _ in self.iterate_annotated())

    def iterate_annotated(self) -> Iterator[tuple[Pair, Annotation]]:
        """Iterate over the pairs, and annotations that contain nothing but the labels."""
        for item in read_labelled(self.path, self.mapping):
            meta = {name: value for name, value in item.pair.meta.items() if name != "label"}
            pair, label = item.pair.model_copy(update={"meta": meta}), item.label
            yield pair, Annotation(id=pair.id, input_sha256=pair.input_sha256(), label=label)  # type: ignore[arg-type]


def open_labelled(path: Path, mapping: FieldMap = None) -> AbstractContextManager[RunView | PairsFile]:
    """Open a run folder, or otherwise a file of pairs, for exports. Raises as `load_run` does."""
    return load_run(path) if (path / files.ANNOTATIONS).is_file() else nullcontext(PairsFile(path, mapping))


@dataclass
class Export:
    """The rows of an export. They contain the pairs of a run or a file that pass a filter, in input order.

    If a pair has several rounds, its row contains the majority label, as in `labels.jsonl`.

    After iteration, `tally` counts the exported pairs, `left_out` counts the other pairs by reason, and `notes`
    contains messages for the user.

    Args:
        run: The run, or a file of pairs, whose rows have no results other than the label.
        progress: Called with the number of annotated pairs read so far, and the number of annotated pairs.
        parts: The ids of the pairs in each part of the dataset, by the name of the part. Empty if there are no parts.
        guarantee: The certificate of the labels, if only certified labels are kept.
        certified: The ids of the pairs in the certified strata. With a certificate, other pairs become undecided, and
            `uncertified` counts them by label.
        rates: The probabilities that the label of a pair is right, by id. Adds `PROBABILITY_COLUMNS` if not empty.
    """

    run: RunView | PairsFile
    pair_filter: ExportFilter = EVERYTHING
    progress: Progress = lambda *_: None
    parts: Mapping[str, Collection[str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    guarantee: Guarantee | None = None
    certified: Collection[str] = ()
    rates: Mapping[str, StratumRate] = field(default_factory=dict)
    uncertified: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._results = {"label": RESULT_COLUMNS["label"]} if isinstance(self.run, PairsFile) else RESULT_COLUMNS
        settings = {} if isinstance(self.run, PairsFile) else self.run.manifest["identity"].get("pipeline")
        if isinstance(settings, dict) and settings.get("context") == "module":
            self._results = {**RESULT_COLUMNS, **MODULE_COLUMNS}
        if self.rates:
            self._results = {**self._results, **PROBABILITY_COLUMNS}

    def iterate_parts(self, default: str) -> Iterator[tuple[str, Export]]:
        """Iterate over the parts with their names. Without parts, yield the whole export with the name `default`.

        The exports of all parts add to the same `tally`, `left_out` and `notes`.
        """
        if not self.parts:
            yield default, self
        for name, ids in self.parts.items():
            yield name, replace(self, pair_filter=replace(self.pair_filter, ids=ids), parts={})

    @cached_property
    def columns(self) -> dict[str, ColumnKind]:
        """The columns for all pairs in the run, in order, with their kinds. Reads the whole input of the run.

        A column that contains both integers and floats has the kind `number`. Other columns have the kind `json` if
        they contain values of several kinds, nested values, or integers that do not fit into 64 bits.

        Raises:
            InputError: the run's input is damaged.
            UsageError: the pairs have more than `MAX_COLUMNS` different fields.
        """
        kinds = {name: {kind} for name, kind in PAIR_COLUMNS.items() if name != "context"}
        for pair in self.run.pairs():
            for name, value in self._build_pair_fields(pair).items():
                kinds.setdefault(name, set()).update(() if value is None else (_classify(value),))
            if len(kinds) > MAX_COLUMNS:
                cause = f"the pairs have more than {MAX_COLUMNS:,} different fields, which is too many for columns"
                raise UsageError(f"{self.run.path}: {cause}. Export the run as jsonl.")
        names = dict.fromkeys(name for name in (*PAIR_COLUMNS, *kinds) if name in kinds)
        return {**{name: _merge_kinds(kinds[name]) for name in names}, **self._results}

    def iterate_rows(self, *, labelled: bool = False) -> Iterator[Row]:
        """Iterate over the rows. Skips pairs without a label if `labelled` is true. Call this only once per export.

        Raises:
            RunFolderError: the run folder is damaged.
            InputError: the run's input is damaged, or two fields of a pair have the same column name.
            UsageError: there are no pairs to export.
        """
        deciders, number = set[str](), 0
        total = None if isinstance(self.run, PairsFile) else self.run.index.pair_count
        for number, (pair, merged, vote_share) in enumerate(self._iterate_annotated(), start=1):
            deciders.update([merged.decided_by] if merged.decided_by else ())
            merged = self._drop_uncertified(merged)
            if vote_share < self.pair_filter.min_agreement:
                self.left_out["with too little agreement"] += 1
            elif get_status(merged) == "no_intent" and (labelled or not self.pair_filter.includes(merged)):
                self.left_out["without search intent"] += 1
            elif not self.pair_filter.includes(merged):
                self.left_out["by the filters"] += 1
            elif labelled and merged.label is None:
                self.left_out["without a label"] += 1
            else:
                self.tally.add(Observation(merged))
                results = {**_build_result_fields(merged), **self._build_rates(merged)}
                yield {**self._build_pair_fields(pair), **{name: results[name] for name in self._results}}
            self.progress("exporting", number, total)
        if self.pair_filter.ids is None and (pending := sum(1 for _ in self.run.pairs()) - number):
            self.left_out["not annotated yet"] = pending
        if not self.tally.annotations:
            steps = f". Steps that decided pairs: {', '.join(sorted(deciders))}" if deciders else ""
            raise UsageError(f"{self.run.path}: nothing to export. Excluded: {format_left_out(self.left_out)}{steps}")

    def _drop_uncertified(self, merged: Annotation) -> Annotation:
        if self.guarantee is None or merged.label is None or merged.id in self.certified:
            return merged
        self.uncertified[merged.label] += 1
        return merged.model_copy(update={"label": None, "reason": "The label is not in the certified set."})

    def _build_rates(self, merged: Annotation) -> Row:
        rate = None if merged.label is None else self.rates.get(merged.id)
        return (
            dict.fromkeys(PROBABILITY_COLUMNS) if rate is None else {"p_correct": rate.p_correct, "p_low": rate.p_low}
        )

    def _iterate_annotated(self) -> Iterator[tuple[Pair, Annotation, float]]:
        """Iterate over the annotated pairs with their merged rounds and their vote shares."""
        ids = self.pair_filter.ids
        if isinstance(self.run, PairsFile):
            return ((*pair, 1.0) for pair in self.run.iterate_annotated() if ids is None or pair[0].id in ids)
        expected = self.run.index.round_count
        return (
            (pair, merge_rounds(rounds).annotation, compute_vote_share([seen.label for seen in rounds], expected))
            for pair, rounds in iterate_annotated_pairs(self.run, ids=ids)
        )

    def _build_pair_fields(self, pair: Pair) -> Row:
        """Return the input fields of a pair. Reserved names of fields in `meta` are prefixed with `input_`."""
        context = {} if pair.context is None else {"context": pair.context}
        origin = {} if pair.origin is None else {"origin": pair.origin.model_dump(mode="json", exclude_none=True)}
        core = {"id": pair.id, "query": pair.query, "code": pair.code, "language": pair.language, **context, **origin}
        reserved = PAIR_COLUMNS.keys() | self._results.keys() | origin.keys()
        meta = {_choose_column(name, reserved): value for name, value in pair.meta.items()}
        row: Row = _escape_nested({**core, **meta})
        if len(row) < len(core) + len(pair.meta):
            raise InputError(f"pair {pair.id[:60]!r}: two fields have the same name after escaping lone surrogates")
        return row


def format_left_out(left_out: Mapping[str, int]) -> str:
    """Format the number of excluded pairs for each reason."""
    return " · ".join(f"{count:,} {reason}" for reason, count in left_out.items())


def escape_surrogates(text: str) -> str:
    """Replace lone surrogates with escapes such as `\\ud800`, so that the text can be encoded as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def as_cell(value: Any, kind: ColumnKind) -> Any:
    """Convert a value to the type of its column."""
    if value is None:
        return None
    if kind == "json":
        return dumps(value).decode("utf-8")
    return float(value) if kind == "number" else value


def _build_result_fields(merged: Annotation) -> Row:
    context = merged.module_context or ModuleContext()
    return {
        "label": merged.label,
        # tied rounds have no common reason
        "reason": escape_surrogates(merged.reason) if merged.decided_by is not None else "",
        "decided_by": merged.decided_by,
        "test_status": None if merged.test is None else merged.test.status.value,
        "error": None if merged.error is None else merged.error.type,
        "test_module": context.module and escape_surrogates(context.module),
        "test_alone": escape_surrogates(context.reason) or None,
    }


def _choose_column(name: str, reserved: Collection[str]) -> str:
    """Return the column name for a field in `meta`. Different fields get different column names."""
    base = re.sub(f"^({INPUT_PREFIX})+", "", name)
    return INPUT_PREFIX + name if base in reserved else name


def _escape_nested(value: Any) -> Any:
    if isinstance(value, str):
        return escape_surrogates(value)
    if isinstance(value, dict):
        return {escape_surrogates(name): _escape_nested(item) for name, item in value.items()}
    return [_escape_nested(item) for item in value] if isinstance(value, list) else value


def _classify(value: Any) -> ColumnKind:
    if isinstance(value, int) and not isinstance(value, bool):
        return "integer" if -(2**63) <= value < 2**63 else "json"
    return _KINDS.get(type(value), "json")


def _merge_kinds(kinds: Collection[ColumnKind]) -> ColumnKind:
    if len(kinds) < 2:
        return next(iter(kinds), "text")
    return "number" if kinds == {"integer", "number"} else "json"


class TextNumbers:
    """Assigns consecutive numbers to distinct texts. Stores a 128-bit hash per text."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def assign(self, text: str) -> tuple[int, bool]:
        """Return the number of a text, and whether the text is new."""
        digest, before = blake2b(text.encode("utf-8"), digest_size=16).digest(), len(self._numbers)
        number = self._numbers.setdefault(digest, before)
        return number, number == before
