"""How replaying a run went, told on a terminal and as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from agent.cli.console import Console
from agent.cli.text import one_line, say
from agent.evaluation.recorded import Key, sampled, tested, was_executed
from agent.evaluation.replay import NotRun, Replayed, Reproducibility, Tally
from agent.store.run_view import RunView
from agent.types import TestReport
from agent.wording import counted

_LISTED = 50
_CAUSES = {
    "flaky": "flaky: it does not always end in the same way",
    "changed": "it always ends in this other way by now",
}


@dataclass
class Course:
    """How far replaying a run has come: of `tested` pairs those `chosen`, in each round that was executed.

    Until they are `known` nothing can be said of them. `sample` is how many pairs were asked for, None for all.
    `executed` counts pairs, None where it was only looked whether those were executed that were drawn.
    """

    folder: Path
    sample: int | None
    seed: int
    tally: Tally = field(default_factory=Tally)
    known: bool = False
    tested: int = 0
    executed: int | None = None
    chosen: Sequence[Key] = ()
    notes: tuple[str, ...] = ()
    started: float = field(default_factory=time.monotonic)

    def choose(self, view: RunView) -> None:
        """Choose what is replayed."""
        keys = tested(view)
        self.tested = len({pair_id for pair_id, _ in keys})
        size = self.tested if self.sample is None else self.sample
        self.chosen = sampled(keys, size, self.seed, partial(was_executed, view))
        if self.sample is None or self.drawn < size:
            self.executed = self.drawn
        self.known = True

    @property
    def drawn(self) -> int:
        """How many pairs were chosen."""
        return len({pair_id for pair_id, _ in self.chosen})

    @property
    def rounds(self) -> bool:
        """Whether some of these are in several rounds."""
        return self.drawn < len(self.chosen)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return time.monotonic() - self.started


def tell_notes(notes: Sequence[str]) -> None:
    """Print what has to be known of the conditions, beside the output."""
    console = Console(stderr=True)
    for note in notes:
        say(console, f"note: {one_line(note, 400)}")


def tell(found: Replayed) -> None:
    """Print what came of one execution."""
    console = Console()
    say(console, "the same outcome" if found.same else "another outcome than recorded", style="bold")
    if found.cause is not None:
        say(console, _CAUSES[found.cause])
    which = f"execution {found.execution}" + (f" of round {found.round}" if found.round else "")
    say(console, f"{which}: {_outcome(found.report)}, in {found.seconds:.2f} s")
    for each in found.differences:
        then, now = each.then or "none", each.now or "none"
        say(console, f"  {one_line(each.what)}\n    then  {one_line(then, 300)}\n    now   {one_line(now, 300)}")


def _outcome(report: TestReport) -> str:
    cause = "" if report.cause is None else f" (cause: {report.cause.value})"
    return f"{report.status.value}{cause}, {report.passed} of {counted(len(report.cases), 'case')} passed"


def tell_all(course: Course, summary: Reproducibility) -> None:
    """Print what came of a run's executions, and list those that were otherwise."""
    out = partial(say, Console())
    done = summary.replayed + len(course.tally.not_run)
    if course.executed is None:
        pairs = counted(course.tested, "pair that was tested", "pairs that were tested")
    else:
        pairs = counted(course.executed, "pair that was executed", "pairs that were executed")
    of, alike = f"{done:,} of {pairs}", f"{summary.same:,}"
    if course.rounds:
        of = f"{counted(done, 'round')} of {course.drawn:,} of {pairs}"
        alike = f"{counted(summary.same, 'round')}; every round of {counted(summary.pairs_same, 'pair')}"
    out(f"replayed    {of}" + ("" if course.sample is None else f" (a random sample, seed {course.seed})"))
    out(f"same        {alike}{_share(summary, ' over pairs' * course.rounds)}")
    more = f" ({summary.flaky} flaky, {summary.only_messages} in messages alone)" if summary.different else ""
    out(f"different   {summary.different}{more}")
    if summary.not_run:
        listed = " · ".join(f"{count} {one_line(name, 60)}" for name, count in summary.not_run.items())
        out(f"not run     {len(course.tally.not_run)}: {listed}")
    out(f"time        {course.seconds:.1f} s")
    lines = [*map(_line, course.tally.different), *map(_line, course.tally.not_run)]
    for line in lines[:_LISTED]:
        out(line)
    if len(lines) > _LISTED:
        out(f"and {len(lines) - _LISTED} more: --json lists them all")


def _share(summary: Reproducibility, over: str) -> str:
    if summary.share is None:
        return ""
    if summary.low is None or summary.high is None:
        return f" ({summary.share:.1%}; its interval needs pip install 'test-driven-annotator[stats]')"
    return f" ({summary.share:.1%} of those that ran; 95% interval{over} {summary.low:.1%} to {summary.high:.1%})"


def _line(found: Replayed | NotRun) -> str:
    where = one_line(found.id, 40) + (f", round {found.round}" if found.round else "")
    if isinstance(found, NotRun):
        return f"  {where}: not run: {found.error.type}: {one_line(found.error.message, 200)}"
    first, *rest = found.differences
    more = f" and {len(rest)} more" if rest else ""
    told = f"{one_line(first.what, 60)}: {one_line(first.then or 'none', 80)} → {one_line(first.now or 'none', 80)}"
    return f"  {where}: {found.cause}: {told}{more}"


def as_json(found: Replayed) -> dict[str, Any]:
    """Return what came of one execution."""
    return {
        "id": found.id,
        "round": found.round,
        "execution": found.execution,
        "same": found.same,
        "cause": found.cause,
        "differences": [asdict(each) for each in found.differences],
        "recorded": found.recorded.model_dump(mode="json"),
        "replayed": found.report.model_dump(mode="json"),
        "notes": found.notes,
        "seconds": round(found.seconds, 4),
    }


def all_as_json(course: Course, summary: Reproducibility, interrupted: bool) -> dict[str, Any]:
    """Return what came of a run's executions; pairs whose outcome was the same are counted alone.

    `tested` and `chosen` are null where it was interrupted before that was known.
    """
    return {
        "run": str(course.folder),
        "tested": course.tested if course.known else None,
        "executions": None if course.executed is None else len(course.chosen),
        "chosen": len(course.chosen) if course.known else None,
        "sample": course.sample,
        "seed": course.seed,
        "interrupted": interrupted,
        **asdict(summary),
        "level": 0.95,
        "pairs": [as_json(each) for each in course.tally.different],
        "pairs_not_run": [asdict(each) | {"error": each.error.model_dump()} for each in course.tally.not_run],
        "notes": course.notes,
        "seconds": round(course.seconds, 3),
    }
