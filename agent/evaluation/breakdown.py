"""Accuracy by group of pairs, calibration of confidences, and audits of the screener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.evaluation.labels import Labels
from agent.evaluation.measures import Confusion, confusion_cell, name_clusters
from agent.evaluation.statistics import (
    BINS,
    DEFAULTS,
    BootstrapSettings,
    ClusterBootstrap,
    Interval,
    bin_index,
    divide,
    format_bin,
    wilson_interval,
)
from agent.evaluation.tally import LabelAndGold, Observation, Tally, assign_groups
from agent.types import Frozen, Pair, Verdict


class BreakdownGroup(Frozen):
    """Accuracy for a group of pairs. Null labels count as wrong. `interval` is the Wilson interval for the accuracy."""

    name: str
    pairs: int
    confusion: Confusion
    accuracy: float
    interval: Interval


class Breakdown(Frozen):
    """Accuracy on a run's pairs with a gold label, in several groupings.

    Each grouping except `overrides` contains every pair with a gold label. `evidence` groups by deciding node and by
    what the node relied on: the outcome of the test, or the screener's clear verdict. `tests` has a separate group for
    passing tests that prove nothing. `overrides` contains only labelled pairs whose test also implies a label. A pair
    is in the `followed` group if its label agrees with its test. Otherwise, its group is `passed, but 0` or
    `failed, but 1`.
    """

    decided_by: tuple[BreakdownGroup, ...]
    evidence: tuple[BreakdownGroup, ...]
    tests: tuple[BreakdownGroup, ...]
    stand_ins: tuple[BreakdownGroup, ...]
    overrides: tuple[BreakdownGroup, ...]


def break_down(tally: Tally) -> Breakdown:
    """Group a tally's pairs that have a gold label. The largest group of each grouping comes first."""
    return Breakdown(**{grouping: _make_groups(groups) for grouping, groups in tally.judgements.items()})


def _make_groups(counts_by_group: Mapping[str, Mapping[LabelAndGold, int]]) -> tuple[BreakdownGroup, ...]:
    groups = []
    for name, counts in counts_by_group.items():
        confusion = Confusion(**{confusion_cell(*labels): count for labels, count in counts.items()})
        correct, pairs = confusion.tp + confusion.tn, confusion.pairs
        interval = wilson_interval(correct, pairs)
        groups.append(
            BreakdownGroup(name=name, pairs=pairs, confusion=confusion, accuracy=correct / pairs, interval=interval)
        )
    return tuple(sorted(groups, key=lambda group: (-group.pairs, group.name)))


class Mistake(Frozen):
    """A pair whose label contradicts its gold label: a false match (`gold` 0) or a missed match (`gold` 1).

    An undecided or failed pair with gold label 1 is a missed match too, as in `Confusion`'s recall. `test` is the
    outcome of the test and its cause, as in `Breakdown.tests`.
    """

    id: str
    query: str
    gold: int
    label: int | None
    decided_by: str
    test: str
    reason: str


def find_mistake(pair: Pair, observation: Observation) -> Mistake | None:
    """Return the mistake in an annotation, or None if there is none or the pair has no gold label."""
    annotation, gold = observation.annotation, observation.gold
    if gold is None or (annotation.label or 0) == gold:
        return None
    groups = assign_groups(annotation)
    return Mistake(
        id=pair.id,
        query=pair.query,
        gold=gold,
        label=annotation.label,
        decided_by=groups["decided_by"],
        test=groups["tests"],
        reason=annotation.reason,
    )


class ReliabilityBin(Frozen):
    """Statistics for the labels whose confidence falls into a bin (`bin_index`).

    `confidence` is the mean confidence. `accuracy` is the proportion of correct labels, and `interval` is the Wilson
    interval for `accuracy`. All three are None if the bin is empty.
    """

    name: str
    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None
    interval: Interval | None


class Calibration(Frozen):
    """Calibration, measured on the labels that have both a confidence and a gold label.

    `brier_interval` comes from a cluster bootstrap with queries as clusters. `ece` has no interval, because sampling
    noise biases it upwards and resampling would add more noise. Each bin in `table` has its own interval.
    """

    labels: int
    brier: float
    brier_interval: Interval | None
    ece: float
    table: tuple[ReliabilityBin, ...]


def calibrate(
    labels: Labels,
    confidences: Mapping[str, float],
    gold: Mapping[str, int],
    queries: Mapping[str, str],
    settings: BootstrapSettings = DEFAULTS,
) -> Calibration | None:
    """Measure calibration, or return None if no label has both a confidence and a gold label.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    scored = {
        pair: (confidence, labels[pair] == gold[pair])
        for pair, confidence in confidences.items()
        if labels.get(pair) is not None and pair in gold
    }
    if not scored:
        return None
    table = reliability_table(*zip(*scored.values(), strict=True))
    errors = [(confidence - is_correct) ** 2 for confidence, is_correct in scored.values()]
    resampling = ClusterBootstrap(name_clusters(scored, queries), settings)
    sums = resampling.resample_sums([(1, error) for error in errors], 2)
    return Calibration(
        labels=len(scored),
        brier=sum(errors) / len(errors),
        brier_interval=resampling.percentile_interval(divide(sums[:, 1], sums[:, 0])),
        ece=expected_calibration_error(table),
        table=tuple(table),
    )


def reliability_table(confidences: Sequence[float], correct: Sequence[bool]) -> list[ReliabilityBin]:
    """Compute a reliability table with equal-width bins.

    Source: Guo et al., On calibration of modern neural networks, ICML 2017, section 2. The bins in the
    paper include the upper edge instead of the lower edge.

    Raises:
        ValueError: the sequences differ in length.
    """
    members: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for confidence, is_correct in zip(confidences, correct, strict=True):
        members[bin_index(confidence)].append((confidence, is_correct))
    return [_make_bin(number, labels) for number, labels in enumerate(members)]


def expected_calibration_error(table: Sequence[ReliabilityBin]) -> float:
    """Compute the expected calibration error.

    This is the mean absolute difference between confidence and accuracy, weighted by the number of labels in each bin.
    The value depends on the number of bins, so report both.
    Source: Guo et al. (2017), equation 3.
    """
    gaps = [
        row.count * abs(row.accuracy - row.confidence)
        for row in table
        if row.accuracy is not None and row.confidence is not None
    ]
    return sum(gaps) / max(1, sum(row.count for row in table))


def _make_bin(number: int, labels: Sequence[tuple[float, bool]]) -> ReliabilityBin:
    count = len(labels)
    hits = sum(is_correct for _, is_correct in labels)
    return ReliabilityBin(
        name=format_bin(number),
        low=number / BINS,
        high=(number + 1) / BINS,
        count=count,
        confidence=sum(confidence for confidence, _ in labels) / count if count else None,
        accuracy=hits / count if count else None,
        interval=wilson_interval(hits, count) if count else None,
    )


_IMPLIED_LABELS = {Verdict.MATCH.value: "1", Verdict.NON_MATCH.value: "0"}
_VERDICTS = {"all": [*_IMPLIED_LABELS], **{verdict: [verdict] for verdict in _IMPLIED_LABELS}}


@dataclass(frozen=True)
class Audit:
    """An estimate of the screener's error rate from a random sample of its verdicts.

    `settled` is the number of annotations in which the screener's verdict was match or no match. `audited` is the
    number of these that were sampled and then tested. `labelled` is the number of audited annotations that have a
    label. `wrong` is the number of labels that contradict the verdict. `share` is `wrong` divided by `labelled`, or
    None if `labelled` is 0. `interval` is the Wilson 95% interval for `share`. Audited annotations that are `undecided`
    or failed (`errors`) are excluded.
    """

    settled: int
    audited: int
    undecided: int
    errors: int
    labelled: int
    wrong: int
    share: float | None
    interval: Interval


def audit_screener(tally: Tally) -> dict[str, Audit]:
    """Return an audit of all verdicts (key `all`) and one of each verdict, or an empty dict if nothing was audited."""
    return {name: _audit_verdicts(tally, verdicts) for name, verdicts in _VERDICTS.items()} if tally.audits else {}


def _audit_verdicts(tally: Tally, verdicts: list[str]) -> Audit:
    outcomes = sum((tally.audits[verdict] for verdict in verdicts), Counter[str]())
    labelled = outcomes["0"] + outcomes["1"]
    wrong = labelled - sum(tally.audits[verdict][_IMPLIED_LABELS[verdict]] for verdict in verdicts)
    return Audit(
        settled=sum(tally.stages["screened"][verdict] for verdict in verdicts),
        audited=outcomes.total(),
        undecided=outcomes["undecided"],
        errors=outcomes["error"],
        labelled=labelled,
        wrong=wrong,
        share=wrong / labelled if labelled else None,
        interval=wilson_interval(wrong, labelled),
    )


def describe_audits(audits: dict[str, Audit]) -> str:
    """Describe the screener's estimated error rate, overall and by verdict, or return `""` if nothing was audited."""
    if not audits:
        return ""
    total = audits["all"]
    unlabelled = {"undecided": total.undecided, "failed": total.errors}
    excluded = ", ".join(f"{count:,} {outcome}" for outcome, count in unlabelled.items() if count)
    sample = f"{total.audited:,} of {total.settled:,} verdicts audited{f' ({excluded})' if excluded else ''}"
    if total.share is None:
        return f"{sample}: no estimate, because no audited pair has a label"
    unaudited = total.settled - total.audited
    wrong, low, high = (round(rate * unaudited) for rate in (total.share, total.interval.low, total.interval.high))
    labels = f"{unaudited:,} labels decided by the screener alone"
    in_run = f"about {wrong:,} ({low:,} to {high:,}) of the {labels} are wrong"
    by_verdict = " · ".join(f"{name}: {_format_share(audit)}" for name, audit in audits.items() if name != "all")
    return f"{sample}: tests contradict {_format_share(total)}; {in_run} · {by_verdict}"


def _format_share(audit: Audit) -> str:
    if audit.share is None:
        return "unknown"
    low, high = audit.interval.low, audit.interval.high
    return f"{audit.wrong:,} of {audit.labelled:,}, {audit.share:.1%} (95%: {low:.1%} to {high:.1%})"
