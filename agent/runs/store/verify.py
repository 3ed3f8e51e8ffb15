"""Checks whether a run folder is complete and consistent. The check is read-only, lock-free and memory-bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.datasets.encoding import loads
from agent.datasets.pair_store import PairStore, iter_normalised
from agent.datasets.sources import open_regular
from agent.errors import RunFolderError, UsageError
from agent.runs.store import files
from agent.runs.store.annotations import REMEDY, AnnotationIndex, decode_annotation, encode_label
from agent.runs.store.evidence import EvidenceStore
from agent.runs.store.files import number_lines, reading
from agent.runs.store.former import update_label
from agent.runs.store.run_view import load_run
from agent.types import Annotation, Progress

MAX_LISTED = 1_000
_PROGRESS_INTERVAL = 500
_COPY = "Copy the complete file from the machine that created the run."
_AGAIN = "Resume the run to repair it."


@dataclass(frozen=True)
class Problem:
    """A problem with a file in a run folder: a description, a remedy, and the location in the file."""

    file: str
    what: str
    remedy: str
    line: int | None = None
    pair: str | None = None
    round: int | None = None


@dataclass
class Findings:
    """The result of a check: the first 1,000 problems, the number of problems per file, and the size of the run.

    `missing` is the number of combinations of pair and round without an annotation. `closed` is True if the last
    session ended normally, and None if the manifest is damaged.
    """

    run: str
    problems: list[Problem] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    annotations: int = 0
    missing: int = 0
    closed: bool | None = None

    def add(self, file: str, cause: object, remedy: str, **position: Any) -> None:
        """Add a problem."""
        self.counts[file] = self.counts.get(file, 0) + 1
        if len(self.problems) < MAX_LISTED:
            self.problems.append(Problem(file, str(cause), remedy, **position))

    @contextmanager
    def checking(self, file: str, remedy: str = _COPY) -> Iterator[None]:
        """Catch an error in the block and add it as a problem with `file`."""
        try:
            yield
        except UsageError as error:
            self.add(file, error, remedy, line=getattr(error, "line", None))


def verify(path: Path, progress: Progress = lambda _check, _done, _total: None) -> Findings:
    """Check a run folder.

    Raises:
        RunFolderError: the folder is not a run.
    """
    findings, sha256 = Findings(str(path)), None
    if not (path / files.ANNOTATIONS).is_file() and not (path / files.MANIFEST).is_file():
        load_run(path)  # raises an error that describes the folder
    with findings.checking(files.MANIFEST), load_run(path) as view:
        sha256, segments = view.manifest["identity"].get("input_sha256"), view.manifest["segments"]
        findings.closed = bool(segments) and segments[-1]["ended"] is not None
    pairs = _read_pairs(path / files.INPUT, sha256, findings)
    with findings.checking(files.ANNOTATIONS):
        index = AnnotationIndex(path / files.ANNOTATIONS)
        _check_annotations(path, index, pairs, findings, progress)
        if findings.closed and pairs is not None:
            with findings.checking(files.LABELS, _AGAIN):
                _check_labels(path / files.LABELS, index, pairs, findings)
    return findings


def _read_pairs(path: Path, sha256: str | None, findings: Findings) -> PairStore | None:
    """Return the pairs, or None if they are damaged or are not the input of this run."""
    pairs = PairStore()
    with findings.checking(files.INPUT):
        for pair in iter_normalised(path):
            pairs.add(pair)
        findings.pairs = len(pairs)
        if sha256 in (None, pairs.sha256):
            return pairs
        findings.add(files.INPUT, "is not the input of this run (its hash differs from the manifest)", _COPY)
    return None


def _check_annotations(
    path: Path, index: AnnotationIndex, pairs: PairStore | None, findings: Findings, progress: Progress
) -> None:
    findings.annotations = len(index)
    findings.missing = max(0, findings.pairs * max(index.round_count, 1) - len(index))
    if findings.closed and (index.superseded_lines or index.end != index.path.stat().st_size):
        findings.add(
            files.ANNOTATIONS, "several lines have the same pair and round, or the last line is truncated", _AGAIN
        )
    store = _open_evidence(path / files.EVIDENCE, findings) if len(index) else None
    for done, (line, content) in enumerate(index.iterate_lines(), start=1):
        annotation = decode_annotation(content, f"{index.path}:{line}")
        position = {"pair": annotation.id, "round": annotation.round}
        if pairs is not None:
            place = pairs.place(annotation.id)
            if place is None or pairs[place].input_sha256() != annotation.input_sha256:
                message = "the pair is missing from the input or has changed"
                findings.add(files.ANNOTATIONS, message, REMEDY, line=line, **position)
        if store and (problem := _check_evidence(store, annotation)):
            remedy = f"Delete line {line} of {files.ANNOTATIONS} to have its pair annotated again."
            findings.add(files.EVIDENCE, problem, remedy, **position)
        if done % _PROGRESS_INTERVAL == 0:
            progress("annotations and evidence", done, len(index))
    if store:
        store.close()


def _open_evidence(path: Path, findings: Findings) -> EvidenceStore | None:
    with findings.checking(files.EVIDENCE):
        store = EvidenceStore(path, read_only=True)
        store.spent_usd()
        for (result,) in store.execute("PRAGMA integrity_check(20)"):
            if result != "ok":
                findings.add(files.EVIDENCE, f"is damaged: {result}", EvidenceStore.remedy)
        return store
    return None


def _check_evidence(store: EvidenceStore, annotation: Annotation) -> str:
    try:
        history = store.get(annotation.id, annotation.round)
    except RunFolderError as error:
        return str(error)
    if history is None:
        return "the evidence is missing"
    if history.pair.id != annotation.id or history.pair.input_sha256() != annotation.input_sha256:
        return "the evidence belongs to another pair"
    if annotation.label is not None and all(node_run.label != annotation.label for node_run in history.node_runs):
        return "the evidence belongs to another attempt: none of its steps led to this label"
    return ""


def _check_labels(path: Path, index: AnnotationIndex, pairs: PairStore, findings: Findings) -> None:
    seen = bytearray(len(pairs))
    with reading(path), open_regular(path) as file:
        for number, line in number_lines(file, path):
            record = _parse_label(line)
            pair_id = record.get("id")
            place = None if pair_id is None else pairs.place(pair_id)
            label = None if pair_id is None or place is None or seen[place] else index.get_label(pair_id)
            if place is not None:
                seen[place] = True
            if label is None or record != loads(encode_label(label)):
                findings.add(files.LABELS, "differs from the annotations", _AGAIN, line=number, pair=pair_id)
    for pair_id, is_listed in zip(pairs.ids(), seen, strict=True):
        if not is_listed and index.get_label(pair_id) is not None:
            findings.add(files.LABELS, "the label of the pair is missing", _AGAIN, pair=pair_id)


def _parse_label(line: bytes) -> dict[str, Any]:
    """Parse a line of the labels file. Return an empty record for a line that is not a pair's label."""
    try:
        record = loads(line)
    except ValueError:
        return {}
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        return {}
    update_label(record)
    return record
