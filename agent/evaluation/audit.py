"""The screener's error, estimated from the pairs that it settled and that were tested all the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from agent.evaluation.statistics import Interval, wilson
from agent.evaluation.tally import Tally
from agent.types import Verdict

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


def audits(tally: Tally) -> dict[str, Audit]:
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
        interval=wilson(wrong, labelled),
    )


def in_words(found: dict[str, Audit]) -> str:
    """Return the estimate in words, of all verdicts and of each, and what it means for labels; empty without audits."""
    if not found:
        return ""
    whole = found["all"]
    ends = {"undecided": whole.undecided, "ended in errors": whole.errors}
    apart = ", ".join(f"{number:,} {what}" for what, number in ends.items() if number)
    sample = f"{whole.audited:,} of {whole.settled:,} verdicts audited{f' ({apart})' if apart else ''}"
    if whole.share is None:
        return f"{sample}: no label, and so no estimate"
    alone = whole.settled - whole.audited
    wrong, low, high = (round(end * alone) for end in (whole.share, whole.interval.low, whole.interval.high))
    of_run = f"about {wrong:,} ({low:,} to {high:,}) of the {alone:,} labels by the screener alone are wrong"
    by_verdict = " · ".join(f"{name}: {_share(each)}" for name, each in found.items() if name != "all")
    return f"{sample}: tests contradict {_share(whole)}; {of_run} · {by_verdict}"


def _share(audit: Audit) -> str:
    if audit.share is None:
        return "not known"
    low, high = audit.interval.low, audit.interval.high
    return f"{audit.wrong:,} of {audit.labelled:,}, {audit.share:.1%} (95%: {low:.1%} to {high:.1%})"
