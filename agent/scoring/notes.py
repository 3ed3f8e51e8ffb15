"""What a reader of scores has to know, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.scoring.results import AnnotatorReport
from agent.scoring.sources import RunSource, Sources

FEW_PAIRS = 100
# Percentile intervals over few clusters are too narrow: Cameron, Gelbach and Miller, Rev. Econ. Stat. 90(3) (2008).
FEW_QUERIES = 30


def notes_of(annotators: Sequence[AnnotatorReport], sources: Sources) -> Iterator[str]:
    """Yield warnings: what was left out, and how little there is to go by."""
    for annotator in annotators:
        if annotator.scores is not None and annotator.kind != "round":
            yield from _left_out(annotator)
    yield from _few(annotators)
    if sources.differing:
        yield f"{_pairs(len(sources.differing))} with different queries in different files: are these ids of one dataset?"
    for run in sources.runs:
        yield from _reviews(run)


def _left_out(annotator: AnnotatorReport) -> Iterator[str]:
    scores = annotator.scores
    assert scores is not None
    if scores.gold_only:
        yield f"{annotator.name}: {_pairs(scores.gold_only)} of gold are not among the labels, and left out"
    if scores.predicted_only:
        yield f"{annotator.name}: {_pairs(scores.predicted_only)} have no gold, and are left out"


def _few(annotators: Sequence[AnnotatorReport]) -> Iterator[str]:
    scored = [each.scores for each in annotators if each.scores is not None and each.scores.pairs]
    if not scored:
        return
    fewest = min(scored, key=lambda scores: scores.pairs)
    if fewest.pairs < FEW_PAIRS:
        interval = fewest.wilson["accuracy"]
        yield (
            f"{_pairs(fewest.pairs)} are too few for a claim: an accuracy of {fewest.accuracy:.2f} on so many has an "
            f"interval of {interval.low:.2f} to {interval.high:.2f}"
        )
    queries = min(scores.queries for scores in scored)
    if queries < FEW_QUERIES:
        yield f"with {queries} queries, intervals over queries are too narrow; {FEW_QUERIES} or more are needed"
    unknown = max(scores.without_query for scores in scored)
    if unknown:
        yield f"the query of {_pairs(unknown)} is not known: each counts as a query of its own"


def _reviews(run: RunSource) -> Iterator[str]:
    reviewed = run.reviewed
    if reviewed.not_blind:
        yield f"{run.name}: {reviewed.not_blind} reviews were given with the run's label in view"
    if reviewed.is_stale:
        yield (
            f"{run.name}: the run is not what its sample was drawn from (pairs were added or labelled again): "
            "nothing is estimated from it; draw another (agent review --new-sample)"
        )


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"
