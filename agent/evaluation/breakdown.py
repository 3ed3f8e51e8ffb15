"""Accuracy by group of pairs, and audits of the screener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from agent.evaluation.measures import Confusion, confusion_cell
from agent.evaluation.statistics import Interval, wilson_interval
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
    what the node relied on: the outcome of the test, or the screener's clear verdict. `overrides` contains only
    labelled pairs whose test also implies a label. A pair is in the `followed` group if its label agrees with its test.
    Otherwise, its group is `passed, but 0` or `failed, but 1`.
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
