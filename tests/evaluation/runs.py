"""Creates run folders with annotations and reviews."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.runs.store.files import write_document
from agent.runs.store.reviews import Review, ReviewLog
from agent.runs.store.run_folder import RunFolder
from agent.runs.store.samples import draw_sample, read_sample
from agent.types import Annotation, Cause, Pair, Status, TestReport
from tests.runs.store.samples import make_annotation, make_error, make_evidence

__all__ = ["add_reviews", "annotate", "draw_review_sample", "make_error", "write_lines", "write_run"]


def annotate(
    pair_id: str, label: int | None, status: str | None = None, cause: str | None = None, **more: Any
) -> Annotation:
    """Return an annotation, with a test report if `status` is not None."""
    if status is not None:
        more["test"] = TestReport(status=Status(status), cause=None if cause is None else Cause(cause))
    return make_annotation(
        pair_id, **{"label": label, "decided_by": "screen" if status is None else "arbitrate", **more}
    )


def write_run(
    path: Path, annotations: Iterable[Annotation], queries: Mapping[str, str] | None = None, **identity: Any
) -> Path:
    """Create a run folder. Pairs without a query use the first letter of their id."""
    annotations = list(annotations)
    ids = dict.fromkeys((*(queries or {}), *(annotation.id for annotation in annotations)))
    pairs = [Pair(id=pair_id, query=(queries or {}).get(pair_id, pair_id[0]), code="pass") for pair_id in ids]
    with RunFolder(path, identity={"model": "m", **identity}, pairs=pairs, environment={}) as folder:
        for annotation in annotations:
            folder.commit(annotation, make_evidence(annotation.id))
    return path


def add_reviews(run: Path, reviewer: str, labels: Mapping[str, int | None], **more: Any) -> None:
    """Add reviews to a run folder, blind by default."""
    log, sample = ReviewLog(run / "reviews.jsonl"), read_sample(run / "review_sample.json")
    if sample is not None and more.get("source", "sample") == "sample":
        more = {"sample": sample.fingerprint, **more}
    for pair, label in labels.items():
        fields = {"reviewer": reviewer, "at": datetime(2026, 1, 1, tzinfo=UTC), "blind": True, "source": "sample"}
        fields |= more
        log.append(Review(id=pair, label=label, **fields))


def draw_review_sample(
    run: Path, annotations: Iterable[Annotation], by: Sequence[str], n: int, seed: int = 1
) -> list[str]:
    """Draw a review sample of a run and return its ids in review order."""
    sample = draw_sample(annotations, by, n, seed)
    write_document(run / "review_sample.json", sample)
    return sample.shuffle_ids()


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON Lines, in a new folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path
