"""The screener's error, estimated from the pairs that it settled and that were tested all the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from agent.evaluation.statistics import Interval, wilson
from agent.evaluation.tally import Tally
from agent.types import Verdict

_SAYS = {Verdict.MATCH.value: "1", Verdict.NON_MATCH.value: "0"}


@dataclass(frozen=True)
class Audit:
    """How many annotations the screener settled, and of a random sample of these how many were tested otherwise.

    `wrong` of the `labelled` ones have another label by test; `audited` ones without a label are `undecided` or
    `errors`, and say nothing of the screener. What it settled alone is `settled` without `audited`.
    """

    settled: int
    audited: int
    labelled: int
    wrong: int
    undecided: int
    errors: int

    @property
    def share(self) -> float | None:
        """The estimated share of the screener's labels that are wrong; None where no audited pair has a label."""
        return self.wrong / self.labelled if self.labelled else None

    @property
    def interval(self) -> Interval:
        """Wilson's interval of that share, at 95%."""
        return wilson(self.wrong, self.labelled)

    def as_json(self) -> dict[str, Any]:
        """Return counts and estimate; `unaudited` labels rest on the screener alone."""
        interval = [round(end, 4) for end in (self.interval.low, self.interval.high)]
        share = None if self.share is None else round(self.share, 4)
        return {**asdict(self), "share": share, "interval": interval, "unaudited": self.of_labels(1)}

    def of_labels(self, share: float) -> int:
        """Return how many labels such a share of those is that rest on the screener alone."""
        return round(share * (self.settled - self.audited))


def audits(tally: Tally) -> dict[str, Audit]:
    """Return the audit of `all` verdicts and of each; nothing where no annotation was audited."""
    found = {verdict: _audit(tally, verdict) for verdict in _SAYS} if tally.audits else {}
    return {"all": _audit(tally, *_SAYS), **found} if found else {}


def _audit(tally: Tally, *verdicts: str) -> Audit:
    ends = sum((tally.audits[each] for each in verdicts), Counter[str]())
    right = sum(tally.audits[each][_SAYS[each]] for each in verdicts)
    labelled = ends["0"] + ends["1"]
    return Audit(
        settled=sum(tally.stages["screened"][each] for each in verdicts),
        audited=ends.total(),
        labelled=labelled,
        wrong=labelled - right,
        undecided=ends["undecided"],
        errors=ends["error"],
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
    wrong, low, high = map(whole.of_labels, (whole.share, whole.interval.low, whole.interval.high))
    alone = f"the {whole.of_labels(1):,} labels by the screener alone"
    by_verdict = " · ".join(f"{name}: {_share(each)}" for name, each in found.items() if name != "all")
    of_run = f"about {wrong:,} ({low:,} to {high:,}) of {alone} are wrong"
    return f"{sample}: tests contradict {_share(whole)}; {of_run} · {by_verdict}"


def _share(audit: Audit) -> str:
    if audit.share is None:
        return "not known"
    low, high = audit.interval.low, audit.interval.high
    return f"{audit.wrong:,} of {audit.labelled:,}, {audit.share:.1%} (95%: {low:.1%} to {high:.1%})"
