"""What a reader of scores has to know, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.scoring.annotators import Agreement
from agent.scoring.gold import Gold
from agent.scoring.results import AnnotatorReport
from agent.scoring.sources import RunSource, Sources
from agent.wording import counted

FEW_PAIRS = 100
# Percentile intervals over few clusters are too narrow: Cameron, Gelbach and Miller, Rev. Econ. Stat. 90(3) (2008).
FEW_QUERIES = 30


def notes_of(
    annotators: Sequence[AnnotatorReport], agreement: Sequence[Agreement], sources: Sources, gold: Gold | None
) -> Iterator[str]:
    """Yield warnings: what was left out, what flatters, and how little there is to go by."""
    for run in sources.runs:
        yield from _errors(run)
    for annotator in annotators:
        if annotator.scores is not None and annotator.kind != "round":
            yield from _left_out(annotator)
    if gold is not None and any(path.resolve() == gold.path.resolve() for path in sources.paths):
        yield f"{gold.path} is both labels and gold: where gold was made from these labels, scores flatter them"
    yield from _few_pairs(annotators, agreement)
    yield from _queries(annotators, agreement)
    if sources.differing:
        pairs = counted(len(sources.differing), "pair")
        yield f"the query of {pairs} differs between files: are these ids of one dataset?"
    for run in sources.runs:
        yield from _reviews(run)


def _errors(run: RunSource) -> Iterator[str]:
    errors = run.labels.errors
    if errors:
        listed = ", ".join(f"{count} {name}" for name, count in errors.most_common())
        pairs = counted(errors.total(), "pair")
        yield f"{run.name}: {pairs} ended in errors ({listed}), and counted as without a label"


def _left_out(annotator: AnnotatorReport) -> Iterator[str]:
    scores = annotator.scores
    assert scores is not None
    if scores.gold_only:
        yield f"{annotator.name}: left out, as the labels lack them: {counted(scores.gold_only, 'pair')} of gold"
    if scores.predicted_only:
        yield f"{annotator.name}: left out, as gold lacks them: {counted(scores.predicted_only, 'pair')}"


def _few_pairs(annotators: Sequence[AnnotatorReport], agreement: Sequence[Agreement]) -> Iterator[str]:
    scored = [each.scores for each in annotators if each.scores is not None and each.scores.pairs]
    fewest = min((scores.pairs for scores in scored), default=min((each.comparable for each in agreement), default=0))
    if fewest >= FEW_PAIRS:
        return
    example = ""
    for scores in scored:
        if scores.pairs == fewest:
            interval = scores.wilson["accuracy"]
            example = (
                f": an accuracy of {scores.accuracy:.2f} on so many may be {interval.low:.2f} to {interval.high:.2f}"
            )
            break
    yield f"{counted(fewest, 'pair')} {'is' if fewest == 1 else 'are'} too few for a claim{example}"


def _queries(annotators: Sequence[AnnotatorReport], agreement: Sequence[Agreement]) -> Iterator[str]:
    scored = [each.scores for each in annotators if each.scores is not None and each.scores.pairs]
    fewest = min([scores.queries for scores in scored] + [each.queries for each in agreement])
    if fewest < FEW_QUERIES:
        queries = counted(fewest, "query", "queries")
        yield f"with {queries}, intervals over queries are too narrow: {FEW_QUERIES} or more are needed"
    unknown = max((scores.without_query for scores in scored), default=0)
    if unknown:
        yield f"the query of {counted(unknown, 'pair')} is not known: each counts as a query of its own"


def _reviews(run: RunSource) -> Iterator[str]:
    reviewed = run.reviewed
    if reviewed.not_blind:
        were = "was" if reviewed.not_blind == 1 else "were"
        yield f"{run.name}: {counted(reviewed.not_blind, 'review')} {were} given with the run's label in view"
    if reviewed.is_stale:
        yield (
            f"{run.name}: the run is not what its sample was drawn from (pairs were added or labelled again): "
            "nothing is estimated from it; draw another (agent review --new-sample)"
        )
