"""What a reader of scores has to know, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.scoring.annotators import Agreement
from agent.scoring.gold import Gold
from agent.scoring.results import AnnotatorReport, RunReport
from agent.scoring.scores import Scores
from agent.scoring.sources import RunSource, Sources
from agent.wording import counted

FEW_PAIRS = 100
# Percentile intervals over few clusters are too narrow: Cameron, Gelbach and Miller, Rev. Econ. Stat. 90(3) (2008).
FEW_QUERIES = 30


def notes_of(
    annotators: Sequence[AnnotatorReport],
    agreement: Sequence[Agreement],
    runs: Sequence[RunReport],
    sources: Sources,
    gold: Gold | None,
) -> Iterator[str]:
    """Yield warnings: what was left out, what flatters, and how little there is to go by."""
    for run in sources.runs:
        yield from _errors(run)
        if run.labels.criterion != "exact":
            criterion = run.labels.criterion[:20]
            yield f"{run.name}: labels by the criterion {criterion!r}; gold and labels beside them should be by it, too"
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
    for told in runs:
        yield from _ahead(told)


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
    scored = _scored(annotators)
    counts = {name: scores.pairs for name, scores in scored.items()} or {
        f"agreement, {each.of}": each.comparable for each in agreement
    }
    few = [name for name, count in counts.items() if count < FEW_PAIRS]
    if not few:
        return
    name = min(few, key=lambda each: counts[each])
    example = ""
    if name in scored:
        accuracy, interval = scored[name].accuracy, scored[name].wilson["accuracy"]
        example = f": an accuracy of {accuracy:.3f} on so many may be {interval.low:.3f} to {interval.high:.3f}"
    more = len(few) - 1
    others = f"; so they are for {counted(more, 'other')}" if more else ""
    pairs = f"{counted(counts[name], 'pair')} {'is' if counts[name] == 1 else 'are'}"
    yield f"{name}: {pairs} too few for a claim{example}{others}"


def _queries(annotators: Sequence[AnnotatorReport], agreement: Sequence[Agreement]) -> Iterator[str]:
    scored = _scored(annotators)
    queries = {name: scores.queries for name, scores in scored.items()}
    queries |= {f"agreement, {each.of}": each.queries for each in agreement}
    name = min(queries, key=lambda each: queries[each])
    if queries[name] < FEW_QUERIES:
        yield (
            f"{name}: with {counted(queries[name], 'query', 'queries')}, intervals over queries are too narrow: "
            f"{FEW_QUERIES} or more are needed"
        )
    unknown = {name: scores.without_query for name, scores in scored.items()}
    most = max(unknown, key=lambda each: unknown[each], default=None)
    if most is not None and unknown[most]:
        yield f"{most}: the query of {counted(unknown[most], 'pair')} is not known: each counts as a query of its own"


def _scored(annotators: Sequence[AnnotatorReport]) -> dict[str, Scores]:
    """Return the scores of those who have any, by their names, which are no two alike; a run stands for its rounds."""
    others = (each for each in annotators if each.kind != "round")
    return {each.name: each.scores for each in others if each.scores is not None and each.scores.pairs}


def _reviews(run: RunSource) -> Iterator[str]:
    reviewed = run.reviewed
    if reviewed.in_sight:
        yield f"{run.name}: {_reviews_given(reviewed.in_sight)} with the run's label in view, and count: that flatters"
    if reviewed.left_out:
        parts = {"corrections of blind ones": reviewed.corrections, "without a blind one": reviewed.never_blind}
        told = ", ".join(f"{name}: {count}" for name, count in parts.items() if count)
        yield (
            f"{run.name}: {_reviews_given(reviewed.left_out)} with the run's label in view, and left out ({told}); "
            "--reviews last counts each reviewer's last word"
        )
    if reviewed.is_stale:
        yield (
            f"{run.name}: the run is not what its sample was drawn from (pairs were added or labelled again): "
            "nothing is estimated from it; draw another (agent review --new-sample)"
        )


def _ahead(run: RunReport) -> Iterator[str]:
    if run.estimates is not None and run.estimates.ahead:
        count = run.estimates.ahead
        yield (
            f"{run.name}: {counted(count, 'pair')} of the sample {'was' if count == 1 else 'were'} reviewed in a queue "
            "ahead of the sample's order, and left out of the estimates: what a queue holds is not random. Go on with "
            "the sample (agent review without --queue): what it has passed counts"
        )


def _reviews_given(count: int) -> str:
    return f"{counted(count, 'review')} {'was' if count == 1 else 'were'} given"
