"""The names of what a run's folder holds."""

from __future__ import annotations

LOCK = ".lock"
MANIFEST = "manifest.json"
INPUT = "input.jsonl.gz"
ANNOTATIONS = "annotations.jsonl"
EVIDENCE = "evidence.sqlite"
LABELS = "labels.jsonl"
REVIEWS = "reviews.jsonl"
REVIEW_SAMPLE = "review_sample.json"
ABLATION = "ablation.json"
"""In the folder that holds the runs of an ablation."""
ABLATION_CSV = "ablation.csv"
ABLATION_MARKDOWN = "ablation.md"

OWN = frozenset({LOCK, MANIFEST, INPUT, ANNOTATIONS, EVIDENCE, LABELS, REVIEWS, REVIEW_SAMPLE, ABLATION})
"""What is read again, and nothing else may take the place of."""

# What a run that was killed while it was made may have left (hidden files besides; `.tmp`: by earlier versions).
UNFINISHED = frozenset(
    {INPUT, f"{INPUT}.tmp", f"{MANIFEST}.tmp", ANNOTATIONS, LABELS, EVIDENCE, f"{EVIDENCE}-wal", f"{EVIDENCE}-shm"}
)
