"""`agent replay`: runs recorded programs again and says whether the outcome is the same."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agent.cli import DONE, SOME_ERRORS, STOPPED
from agent.cli.running import run_interruptible
from agent.cli.settings import read_config
from agent.cli.show import the_annotation
from agent.cli.text import Console, one_line, print_json, say
from agent.config import Config
from agent.errors import UsageError
from agent.evaluation.conditions import Conditions, all_notes, grouped
from agent.evaluation.recorded import Key, executed_in, keys_with_tests, recorded, sampled
from agent.evaluation.replay import NotRun, Outcomes, Replayed, replaying
from agent.store.run_view import RunView, load_run
from agent.types import TestReport
from agent.wording import counted

_SECONDS_BETWEEN_LINES = 10.0
_LISTED = 50
_CAUSES = {
    "flaky": "flaky: it does not always end in the same way",
    "changed": "it always ends in this other way by now",
}


@dataclass(frozen=True)
class Request:
    """What the command line asked for: one pair, or `everything`."""

    folder: Path
    pair_id: str | None
    round: int | None
    execution: int | None
    everything: bool
    sample: int | None
    seed: int
    concurrency: int
    backend: str | None
    options: Mapping[str, Any]
    settings: Sequence[str]
    as_json: bool


def run(request: Request) -> None:
    """Replay, print what came of it, exit with 0 when every outcome is the recorded one, else 1.

    Raises:
        UsageError: the options contradict each other, or the folder is no run.
        NotReplayable: the execution cannot be run again.
        SandboxUnavailable: the run's sandbox is not to be had here.
        typer.Exit: with the exit code (0 the same, 1 not so, 3 interrupted).
    """
    with load_run(request.folder) as view:
        _check(request)
        (_replay_all if request.everything else _replay_one)(request, view)


def _check(request: Request) -> None:
    if request.everything and request.pair_id is not None:
        raise UsageError(
            f"the pair {request.pair_id!r} and every pair (--all) were asked for: give one of them "
            f"(a pair's id replays it, --all --sample N a random sample)"
        )
    if not request.everything and request.pair_id is None:
        raise UsageError("say which pair to replay by its id, or replay every one (--all)")
    if request.everything and (request.execution is not None or request.round is not None):
        raise UsageError("--execution and --round choose among the executions of one pair: give its id, and not --all")
    if request.sample is not None and not request.everything:
        raise UsageError("--sample draws from all pairs: give it together with --all")


def _config(request: Request, conditions: Conditions) -> Config:
    """Return the run's settings, with those of the command line over them."""
    settings: dict[str, Any] = {
        f"sandbox.{name}": value for name, value in conditions.config.sandbox.model_dump().items()
    }
    settings |= {f"pipeline.{name}": value for name, value in conditions.config.pipeline.model_dump().items()}
    settings |= {"sandbox.pool": min(4, request.concurrency) if request.everything else 1}
    settings |= {name: value for name, value in request.options.items() if value is not None}
    return read_config(settings, request.settings)


@dataclass
class Course:
    """How far replaying a run has come: of `tested` pairs those `chosen`, in each round that was executed.

    Until they are `known` nothing can be said of them. `executed` counts pairs, None where it was only looked whether
    those were executed that were drawn.
    """

    request: Request
    outcomes: Outcomes = field(default_factory=Outcomes)
    known: bool = False
    tested: int = 0
    executed: int | None = None
    chosen: Mapping[Key, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    started: float = field(default_factory=time.monotonic)

    def choose(self, view: RunView) -> None:
        """Choose what is replayed."""
        keys = keys_with_tests(view)
        self.tested = len({pair_id for pair_id, _ in keys})
        size = self.request.sample
        self.chosen = sampled(keys, size, self.request.seed, partial(executed_in, view))
        if size is None or self.drawn < size:
            self.executed = self.drawn
        self.known, self.started = True, time.monotonic()

    @property
    def drawn(self) -> int:
        """How many pairs were chosen."""
        return len({pair_id for pair_id, _ in self.chosen})

    @property
    def seconds(self) -> float:
        """How long it took."""
        return time.monotonic() - self.started


def _replay_one(request: Request, view: RunView) -> None:
    assert request.pair_id is not None
    annotation = the_annotation(view, request.pair_id, request.round)
    key = annotation.id, annotation.round
    segment = recorded(view, *key, request.execution).segment
    [group] = grouped(view.manifest, {key: segment}, request.backend)
    config = _config(request, group.conditions)

    async def work() -> tuple[Replayed, Sequence[str]]:
        progress = partial(say, Console(stderr=True))
        async with replaying(view, group.conditions, config=config, concurrency=1, progress=progress) as replayer:
            return await replayer.replay(*key, request.execution), replayer.notes

    try:
        found, notes = run_interruptible(work())
    except KeyboardInterrupt:
        say(Console(stderr=True), "Interrupted.")
        raise typer.Exit(STOPPED) from None
    notes = (*notes, *found.notes)
    if request.as_json:
        print_json({**_as_json(found), "notes": notes})
    else:
        _print_notes(notes)
        _print(found)
    raise typer.Exit(DONE if found.same else SOME_ERRORS)


def _replay_all(request: Request, view: RunView) -> None:
    course, console = Course(request), Console(stderr=True)

    async def work() -> None:
        course.choose(view)
        groups = grouped(view.manifest, course.chosen, request.backend)
        configs = [_config(request, group.conditions) for group in groups]
        notes: list[Sequence[str]] = []
        with _Bar(console, len(course.chosen)) as bar:
            for group, config in zip(groups, configs, strict=True):
                running = replaying(
                    view,
                    group.conditions,
                    config=config,
                    concurrency=request.concurrency,
                    progress=partial(say, console),
                )
                async with running as replayer:
                    notes.append(replayer.notes)
                    course.notes = tuple(all_notes(groups, notes))
                    async with aclosing(replayer.replay_all(group.keys)) as found:
                        async for each in found:
                            course.outcomes.add(each)
                            bar.step(course.outcomes)

    interrupted = False
    try:
        run_interruptible(work())
    except KeyboardInterrupt:
        interrupted = True
        say(console, "Interrupted; this is what is known so far." if course.known else "Interrupted.")
    if request.as_json:
        print_json(_all_as_json(course, interrupted))
    elif course.known:
        _print_notes(course.notes)
        _print_all(course)
    if interrupted:
        raise typer.Exit(STOPPED)
    raise typer.Exit(SOME_ERRORS if course.outcomes.different or course.outcomes.not_run else DONE)


class _Bar:
    """A bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._done = 0
        self._printed = time.monotonic()
        columns = (MofNCompleteColumn(), TextColumn("{task.fields[counts]}", markup=False), TimeRemainingColumn())
        self._bar = Progress(
            BarColumn(bar_width=24), *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._bar.add_task("", total=total, counts="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bar.stop()

    def step(self, outcomes: Outcomes) -> None:
        """Show one more."""
        self._done += 1
        counts = f"same:{outcomes.same} different:{len(outcomes.different)} not run:{len(outcomes.not_run)}"
        self._bar.update(self._task, advance=1, counts=counts)
        if not self._console.is_terminal and time.monotonic() - self._printed >= _SECONDS_BETWEEN_LINES:
            self._printed = time.monotonic()
            say(self._console, f"{self._done}/{self._total} {counts}")


def _print_notes(notes: Sequence[str]) -> None:
    """Print what has to be known of the conditions, beside the output."""
    console = Console(stderr=True)
    for note in notes:
        say(console, f"note: {one_line(note, 400)}")


def _print(found: Replayed) -> None:
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


def _print_all(course: Course) -> None:
    """Print what came of a run's executions, and list those that were otherwise."""
    out, outcomes, counts = partial(say, Console()), course.outcomes, course.outcomes.counts()
    done = outcomes.same + len(outcomes.different) + len(outcomes.not_run)
    number, which = (course.tested, "tested") if course.executed is None else (course.executed, "executed")
    pairs = counted(number, f"pair that was {which}", f"pairs that were {which}")
    of, alike, over = f"{done:,} of {pairs}", f"{outcomes.same:,}", ""
    if course.drawn < len(course.chosen):
        of, over = f"{counted(done, 'round')} of {course.drawn:,} of {pairs}", " over pairs"
        alike = f"{counted(outcomes.same, 'round')}; every round of {counted(counts['pairs_same'], 'pair')}"
    drawn = "" if course.request.sample is None else f" (a random sample, seed {course.request.seed})"
    out(f"replayed    {of}{drawn}")
    out(f"same        {alike}{_share(counts, over)}")
    more = f" ({counts['flaky']} flaky, {counts['only_messages']} in messages alone)" if outcomes.different else ""
    out(f"different   {len(outcomes.different)}{more}")
    if outcomes.not_run:
        listed = " · ".join(f"{count} {one_line(name, 60)}" for name, count in counts["not_run"].items())
        out(f"not run     {len(outcomes.not_run)}: {listed}")
    out(f"time        {course.seconds:.1f} s")
    lines = [*map(_line, outcomes.different), *map(_line, outcomes.not_run)]
    for line in lines[:_LISTED]:
        out(line)
    if len(lines) > _LISTED:
        out(f"and {len(lines) - _LISTED} more: --json lists them all")


def _share(counts: Mapping[str, Any], over: str) -> str:
    if counts["share"] is None:
        return ""
    if counts["low"] is None:
        return f" ({counts['share']:.1%}; its interval needs pip install 'test-driven-annotator[stats]')"
    return f" ({counts['share']:.1%} of those that ran; 95% interval{over} {counts['low']:.1%} to {counts['high']:.1%})"


def _line(found: Replayed | NotRun) -> str:
    where = one_line(found.id, 40) + (f", round {found.round}" if found.round else "")
    if isinstance(found, NotRun):
        return f"  {where}: not run: {found.error.type}: {one_line(found.error.message, 200)}"
    first, *rest = found.differences
    more = f" and {len(rest)} more" if rest else ""
    change = f"{one_line(first.what, 60)}: {one_line(first.then or 'none', 80)} → {one_line(first.now or 'none', 80)}"
    return f"  {where}: {found.cause}: {change}{more}"


def _as_json(found: Replayed) -> dict[str, Any]:
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


def _all_as_json(course: Course, interrupted: bool) -> dict[str, Any]:
    """Return what came of a run's executions; pairs whose outcome was the same are counted alone.

    `tested` and `chosen` are null where it was interrupted before that was known.
    """
    return {
        "run": str(course.request.folder),
        "tested": course.tested if course.known else None,
        "executions": None if course.executed is None else len(course.chosen),
        "chosen": len(course.chosen) if course.known else None,
        "sample": course.request.sample,
        "seed": course.request.seed,
        "interrupted": interrupted,
        **course.outcomes.counts(),
        "level": 0.95,
        "pairs": [_as_json(each) for each in course.outcomes.different],
        "pairs_not_run": [asdict(each) | {"error": each.error.model_dump()} for each in course.outcomes.not_run],
        "notes": course.notes,
        "seconds": round(course.seconds, 3),
    }
