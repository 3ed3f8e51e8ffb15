"""Scores generated answers with ROUGE-1, ROUGE-2 and ROUGE-L (Lin, 2004), as in Table 5 of the ProCQA paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.datasets.benchmarks.building import read_rows
from agent.errors import InputError, needs_extra
from agent.evaluation.statistics import BootstrapSettings, ClusterBootstrap

MEASURES = ("rouge1", "rouge2", "rougeL")
MAX_CHARACTERS = 20_000
"""Number of characters of a text that are scored. ROUGE-L needs memory for the product of both lengths."""


def is_answers_file(path: Path) -> bool:
    """Return whether the first record of a file has a `reference` and an `answer`."""
    row = next(read_rows(path), None) if path.is_file() else None
    return row is not None and {"reference", "answer"} <= row.fields.keys()


def score_answers(path: Path, settings: BootstrapSettings, progress: Callable[..., None]) -> dict[str, Any]:
    """Score a file of `agent corpus answer`. Return a JSON-serialisable report.

    `statuses` counts the questions by status. `scores` contains the mean F1 of each measure over the questions with an
    answer, and its bootstrap interval, which is null if all resamples have the same mean.

    Raises:
        InputError: the file is malformed, or has no answers.
        ExtraMissing: rouge-score or NumPy is not installed.
    """
    with needs_extra("corpus"):
        from rouge_score.rouge_scorer import RougeScorer
    scorer = RougeScorer(MEASURES, use_stemmer=True)
    statuses, models, ids, rows = Counter[str](), dict[str, None](), list[str](), list[list[float]]()
    for row in read_rows(path):
        statuses[row.get_text("status")] += 1
        models[row.get_text("model")] = None
        progress(f"scoring {path.name}", statuses.total(), None)
        if row.fields.get("answer") is not None:
            scores = scorer.score(*(row.get_text(name)[:MAX_CHARACTERS] for name in ("reference", "answer")))
            ids.append(row.get_id("id"))
            rows.append([float(scores[name].fmeasure) for name in MEASURES])
    if not rows:
        raise InputError("contains no answers", path=path)
    bootstrap, measures = ClusterBootstrap(ids, settings), dict[str, Any]()
    resamples = bootstrap.resample_sums(rows, len(MEASURES)) / len(rows)
    for column, name in enumerate(MEASURES):
        interval = bootstrap.percentile_interval(resamples[:, column])
        measures[name] = {"f1": sum(row[column] for row in rows) / len(rows), "interval": interval and asdict(interval)}
    return {"file": str(path), "models": list(models), "statuses": dict(statuses), "scores": measures}
