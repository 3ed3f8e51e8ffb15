"""Puts together everything that `agent score` tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.errors import UsageError
from agent.scoring.annotators import Agreement, agree
from agent.scoring.breakdown import break_down
from agent.scoring.confidence import calibrate
from agent.scoring.estimates import Words, estimate_run
from agent.scoring.gold import Gold, read_gold
from agent.scoring.notes import notes_of
from agent.scoring.results import AnnotatorReport, GoldReport, RunReport, ScoreReport
from agent.scoring.scores import score
from agent.scoring.sources import RunSource, Sources, Voice
from agent.types import Frozen


class Settings(Frozen):
    """How intervals are made."""

    seed: int = 0
    resamples: int = 2000
    level: float = 0.95


def report(
    labels: Sequence[Path],
    gold: Path | None,
    *,
    round: int | None = None,
    reviews: Words = "blind",
    settings: Settings | None = None,
) -> ScoreReport:
    """Score the labels of run folders and files against gold, or compare them with each other.

    `reviews` says which reviews of the runs count.

    Raises:
        UsageError: something cannot be read, or there is nothing to compare.
        ExtraMissing: NumPy or SciPy is not installed.
    """
    settings = settings or Settings()
    sources = Sources(reviews)
    for path in labels:
        sources.add(path, round)
    if round is not None and not sources.runs:
        raise UsageError("--round chooses among the rounds of a run: give a run's folder")
    read = None if gold is None else read_gold(gold)
    if read is not None:
        sources.learn(read.queries)
    annotators = tuple(_annotator(voice, read, sources, settings) for voice in sources.voices())
    agreement = tuple(
        agree(members, sources.queries, of=name, **settings.model_dump()) for name, members in sources.panels()
    )
    _check_comparable(annotators, agreement, read, sources)
    runs = tuple(_run(run, read, sources, settings) for run in sources.runs)
    return ScoreReport(
        gold=None if read is None else _gold(read),
        annotators=annotators,
        agreement=agreement,
        runs=runs,
        notes=tuple(notes_of(annotators, agreement, runs, sources, read)),
    )


def _gold(gold: Gold) -> GoldReport:
    return GoldReport(path=str(gold.path), labels=len(gold.labels), without_label=gold.without_label)


def _annotator(voice: Voice, gold: Gold | None, sources: Sources, settings: Settings) -> AnnotatorReport:
    labels = voice.annotator.labels
    return AnnotatorReport(
        name=voice.annotator.name,
        kind=voice.kind,
        pairs=len(labels),
        labelled=sum(label is not None for label in labels.values()),
        scores=None if gold is None else score(labels, gold.labels, sources.queries, **settings.model_dump()),
    )


def _run(run: RunSource, gold: Gold | None, sources: Sources, settings: Settings) -> RunReport:
    decisions, queries = run.labels.decisions, sources.queries
    against: dict[str, Any] = {}
    if gold is not None:
        against["breakdown"] = break_down(decisions, gold.labels, level=settings.level)
        against["calibration"] = calibrate(decisions, gold.labels, queries, **settings.model_dump())
    return RunReport(
        name=run.name,
        errors=dict(run.labels.errors.most_common()),
        reviews=run.reviewed.words,
        reviews_left_out=run.reviewed.left_out,
        estimates=estimate_run(run.annotator.labels, run.reviewed, seed=settings.seed, level=settings.level),
        **against,
    )


def _check_comparable(
    annotators: Sequence[AnnotatorReport], agreement: Sequence[Agreement], gold: Gold | None, sources: Sources
) -> None:
    if gold is None and not agreement:
        left_out = sum(run.reviewed.left_out for run in sources.runs)
        seen = f"; {left_out} reviews are not blind, and left out (--reviews last counts them)" if left_out else ""
        raise UsageError(
            "one annotator and nothing to compare with: give --gold GOLD, or labels of others "
            f"(agent review adds yours){seen}"
        )
    if gold is not None and not any(each.scores and each.scores.pairs for each in annotators):
        raise UsageError(f"{gold.path}: none of its pairs is among those labelled: are these ids of one dataset?")
