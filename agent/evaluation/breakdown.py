"""Where a run is right: by what decided, by test and by stand-ins, by its confidence, and by audits of the screener."""

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
    bin_name,
    bin_of,
    ratio,
    wilson_interval,
)
from agent.evaluation.tally import LabelAndGold, Tally
from agent.types import Frozen, Verdict


class BreakdownGroup(Frozen):
    """The pairs of a group; `accuracy` counts null as wrong, `interval` is its Wilson interval."""

    name: str
    pairs: int
    confusion: Confusion
    accuracy: float
    interval: Interval


class Breakdown(Frozen):
    """A run's pairs that have gold, grouped in several ways; each way holds every pair but `overrides`.

    `tests` separates a pass that proves nothing from the others. `overrides` are the labels beside a test that says 0
    or 1: `passed, but 0` and `failed, but 1` go against it, `followed` agree with it.
    """

    decided_by: tuple[BreakdownGroup, ...]
    tests: tuple[BreakdownGroup, ...]
    stand_ins: tuple[BreakdownGroup, ...]
    overrides: tuple[BreakdownGroup, ...]


def break_down(tally: Tally) -> Breakdown:
    """Group the pairs of a tally that have gold; the largest group first."""
    return Breakdown(**{way: _groups(groups) for way, groups in tally.judgements.items()})


def _groups(groups: Mapping[str, Mapping[LabelAndGold, int]]) -> tuple[BreakdownGroup, ...]:
    made = []
    for name, counts in groups.items():
        confusion = Confusion(**{confusion_cell(*labels): count for labels, count in counts.items()})
        right, pairs = confusion.tp + confusion.tn, confusion.pairs
        interval = wilson_interval(right, pairs)
        made.append(
            BreakdownGroup(name=name, pairs=pairs, confusion=confusion, accuracy=right / pairs, interval=interval)
        )
    return tuple(sorted(made, key=lambda group: (-group.pairs, group.name)))


class ReliabilityBin(Frozen):
    """Labels whose confidence is in the bin `name`, from `low` to `high` (`bin_of`); what has no items is None.

    `confidence` is their mean confidence, `accuracy` the share that is right, `interval` its Wilson interval.
    """

    name: str
    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None
    interval: Interval | None


class Calibration(Frozen):
    """Calibration of the labels that have a confidence and gold.

    `brier_interval` is by bootstrap over queries. `ece` has none: noise alone makes gaps between confidence and
    accuracy, and resampling adds noise; the bins of `table`, of which it is the mean gap, have intervals.
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
    """Compare confidence with being right; None where no label has both a confidence and gold.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    judged = {
        pair: (confidence, labels[pair] == gold[pair])
        for pair, confidence in confidences.items()
        if labels.get(pair) is not None and pair in gold
    }
    if not judged:
        return None
    table = reliability(*zip(*judged.values(), strict=True))
    distances = [(confidence - is_right) ** 2 for confidence, is_right in judged.values()]
    resampling = ClusterBootstrap(name_clusters(judged, queries), settings)
    sums = resampling.resample_sums([(1, distance) for distance in distances], 2)
    return Calibration(
        labels=len(judged),
        brier=sum(distances) / len(distances),
        brier_interval=resampling.percentile_interval(ratio(sums[:, 1], sums[:, 0])),
        ece=ece(table),
        table=tuple(table),
    )


def reliability(confidences: Sequence[float], right: Sequence[bool]) -> list[ReliabilityBin]:
    """Return a reliability table of equally wide bins.

    Source: Guo et al., On calibration of modern neural networks, ICML 2017, section 2; their bins have the upper edge.

    Raises:
        ValueError: sequences of different length.
    """
    members: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for confidence, is_right in zip(confidences, right, strict=True):
        members[bin_of(confidence)].append((confidence, is_right))
    return [_bin(number, inside) for number, inside in enumerate(members)]


def ece(table: Sequence[ReliabilityBin]) -> float:
    """Return the expected calibration error of a reliability table: the mean gap of its bins, weighted by items.

    It depends on the number of bins: give it too.
    Source: Guo et al. (2017), equation 3.
    """
    gaps = [
        each.count * abs(each.accuracy - each.confidence)
        for each in table
        if each.accuracy is not None and each.confidence is not None
    ]
    return sum(gaps) / max(1, sum(each.count for each in table))


def _bin(number: int, inside: Sequence[tuple[float, bool]]) -> ReliabilityBin:
    count = len(inside)
    hits = sum(is_right for _, is_right in inside)
    return ReliabilityBin(
        name=bin_name(number),
        low=number / BINS,
        high=(number + 1) / BINS,
        count=count,
        confidence=sum(confidence for confidence, _ in inside) / count if count else None,
        accuracy=hits / count if count else None,
        interval=wilson_interval(hits, count) if count else None,
    )


_SAYS = {Verdict.MATCH.value: "1", Verdict.NON_MATCH.value: "0"}
_VERDICTS = {"all": [*_SAYS], **{verdict: [verdict] for verdict in _SAYS}}


@dataclass(frozen=True)
class Audit:
    """How many annotations the screener settled, and of a random sample of these how many were tested otherwise.

    `wrong` of the `labelled` ones have another label by test: a `share` (None of none) with Wilson's 95% `interval`.
    Audited ones without a label are `undecided` or `errors`, and say nothing of the screener.
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
    """Return the audit of `all` verdicts and of each; nothing where no annotation was audited."""
    return {name: _audit(tally, each) for name, each in _VERDICTS.items()} if tally.audits else {}


def _audit(tally: Tally, verdicts: list[str]) -> Audit:
    ends = sum((tally.audits[each] for each in verdicts), Counter[str]())
    labelled = ends["0"] + ends["1"]
    wrong = labelled - sum(tally.audits[each][_SAYS[each]] for each in verdicts)
    return Audit(
        settled=sum(tally.stages["screened"][each] for each in verdicts),
        audited=ends.total(),
        undecided=ends["undecided"],
        errors=ends["error"],
        labelled=labelled,
        wrong=wrong,
        share=wrong / labelled if labelled else None,
        interval=wilson_interval(wrong, labelled),
    )


def describe_audits(audits: dict[str, Audit]) -> str:
    """Return the estimate in words, of all verdicts and of each, and what it means for labels; empty without audits."""
    if not audits:
        return ""
    whole = audits["all"]
    ends = {"undecided": whole.undecided, "ended in errors": whole.errors}
    apart = ", ".join(f"{number:,} {what}" for what, number in ends.items() if number)
    sample = f"{whole.audited:,} of {whole.settled:,} verdicts audited{f' ({apart})' if apart else ''}"
    if whole.share is None:
        return f"{sample}: no label, and so no estimate"
    alone = whole.settled - whole.audited
    wrong, low, high = (round(end * alone) for end in (whole.share, whole.interval.low, whole.interval.high))
    of_run = f"about {wrong:,} ({low:,} to {high:,}) of the {alone:,} labels by the screener alone are wrong"
    by_verdict = " · ".join(f"{name}: {_share(each)}" for name, each in audits.items() if name != "all")
    return f"{sample}: tests contradict {_share(whole)}; {of_run} · {by_verdict}"


def _share(audit: Audit) -> str:
    if audit.share is None:
        return "not known"
    low, high = audit.interval.low, audit.interval.high
    return f"{audit.wrong:,} of {audit.labelled:,}, {audit.share:.1%} (95%: {low:.1%} to {high:.1%})"
