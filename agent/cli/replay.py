"""`agent replay`: runs recorded programs again and says whether the outcome is the same."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from agent.cli import DONE, SOME_ERRORS, STOPPED
from agent.cli.interrupts import run_interruptible
from agent.cli.options import ReplayOptions
from agent.cli.progress import bar
from agent.cli.settings import read_config
from agent.cli.show import the_annotation
from agent.cli.text import Console, one_line, print_json, say
from agent.config import Config
from agent.errors import UsageError
from agent.evaluation.recorded import (
    RecordedSandbox,
    find_segment,
    group_by_sandbox,
    keys_with_tests,
    merge_notes,
    read_execution,
    sample_keys,
)
from agent.evaluation.replay import ReplayCounts, ReplayFailure, ReplayResult, open_replayer
from agent.store.annotations import Key
from agent.store.run_view import RunView, load_run
from agent.types import TestReport
from agent.wording import plural

_LISTED = 50
_CAUSES = {
    "flaky": "flaky: it does not always end in the same way",
    "changed": "it always ends in this other way by now",
}


def run(folder: Path, pair_id: str | None, options: ReplayOptions) -> None:
    """Replay, print what came of it, exit with 0 when every outcome is the recorded one, else 1.

    Raises:
        UsageError: the options contradict each other, or the folder is no run.
        NotReplayable: the execution cannot be run again.
        SandboxUnavailable: the run's sandbox is not to be had here.
        typer.Exit: with the exit code (0 the same, 1 not so, 3 interrupted).
    """
    with load_run(folder) as view:
        if pair_id is not None and options.everything:
            raise UsageError(
                f"the pair {pair_id!r} and every pair (--all) were asked for: give one of them "
                f"(a pair's id replays it, --all --sample N a random sample)"
            )
        if pair_id is not None:
            replayed = _replay_one(view, pair_id, options)
            if options.as_json:
                print_json(_as_json(replayed))
            else:
                _print(replayed)
            raise typer.Exit(DONE if replayed.same else SOME_ERRORS)
        if not options.everything:
            raise UsageError("say which pair to replay by its id, or replay every one (--all)")
        course = _replay_all(view, options)
        if options.as_json:
            print_json(_all_as_json(view.path, course, options))
        else:
            _print_all(course, options)
        if course.interrupted:
            raise typer.Exit(STOPPED)
        raise typer.Exit(SOME_ERRORS if course.outcomes.different or course.outcomes.not_run else DONE)


def _config(options: ReplayOptions, sandbox: RecordedSandbox) -> Config:
    """Return the run's settings, with those of the command line over them."""
    held = sandbox.config
    settings: dict[str, Any] = {f"sandbox.{name}": value for name, value in held.sandbox.model_dump().items()}
    settings |= {f"pipeline.{name}": value for name, value in held.pipeline.model_dump().items()}
    settings |= {"sandbox.pool": min(4, options.concurrency) if options.everything else 1, **options.given}
    return read_config(settings, options.assignments)


@dataclass
class Course:
    """How far replaying a run has come: of `tested` pairs those `chosen`, in each round that was executed."""

    tested: int
    chosen: Mapping[Key, int]
    outcomes: ReplayCounts = field(default_factory=ReplayCounts)
    notes: Sequence[str] = ()
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def drawn(self) -> int:
        """How many pairs were chosen."""
        return len({pair_id for pair_id, _ in self.chosen})

    def executed(self, sample: int | None) -> int | None:
        """Return how many pairs were executed. None if only those were looked up that were drawn."""
        return self.drawn if sample is None or self.drawn < sample else None


def _replay_one(view: RunView, pair_id: str, options: ReplayOptions) -> ReplayResult:
    """Replay one execution; the notes of its conditions come first."""
    if options.sample is not None:
        raise UsageError("--sample draws from all pairs: give it together with --all")
    annotation = the_annotation(view, pair_id, options.round)
    key = annotation.id, annotation.round
    segment = read_execution(view, *key, options.execution).segment
    [group] = group_by_sandbox(view.manifest, {key: segment}, options.given.get("sandbox.backend"))
    config = _config(options, group.sandbox)

    async def work() -> ReplayResult:
        progress = partial(say, Console(stderr=True))
        async with open_replayer(view, group.sandbox, config=config, concurrency=1, progress=progress) as replayer:
            replayed = await replayer.replay(*key, options.execution)
            return replace(replayed, notes=(*replayer.notes, *replayed.notes))

    return run_interruptible(work())


def _replay_all(view: RunView, options: ReplayOptions) -> Course:
    if options.execution is not None or options.round is not None:
        raise UsageError("--execution and --round choose among the executions of one pair: give its id, and not --all")
    started, console = time.monotonic(), Console(stderr=True)
    keys = keys_with_tests(view)
    chosen = sample_keys(keys, options.sample, options.seed, partial(find_segment, view))
    course = Course(len({pair_id for pair_id, _ in keys}), chosen)

    async def work() -> None:
        groups = group_by_sandbox(view.manifest, course.chosen, options.given.get("sandbox.backend"))
        configs = [_config(options, group.sandbox) for group in groups]
        notes: list[Sequence[str]] = []
        with bar(console) as shown:
            task = shown.add_task("", total=len(course.chosen))
            for group, config in zip(groups, configs, strict=True):
                async with open_replayer(
                    view,
                    group.sandbox,
                    config=config,
                    concurrency=options.concurrency,
                    progress=partial(say, console),
                ) as replayer:
                    notes.append(replayer.notes)
                    course.notes = tuple(merge_notes(groups, notes))
                    async with aclosing(replayer.replay_all(group.keys)) as outcomes:
                        async for outcome in outcomes:
                            course.outcomes.add(outcome)
                            shown.update(task, advance=1, description=str(course.outcomes))

    try:
        run_interruptible(work())
    except KeyboardInterrupt:
        course.interrupted = True
        say(console, "Interrupted; this is what is known so far.")
    course.seconds = time.monotonic() - started
    return course


def _print_notes(notes: Sequence[str]) -> None:
    """Print what has to be known of the conditions, beside the output."""
    console = Console(stderr=True)
    for note in notes:
        say(console, f"note: {one_line(note, 400)}")


def _print(outcome: ReplayResult) -> None:
    """Print what came of one execution."""
    _print_notes(outcome.notes)
    console = Console()
    say(console, "the same outcome" if outcome.same else "another outcome than recorded", style="bold")
    if outcome.cause is not None:
        say(console, _CAUSES[outcome.cause])
    which = f"execution {outcome.execution}" + (f" of round {outcome.round}" if outcome.round else "")
    say(console, f"{which}: {_outcome(outcome.report)}, in {outcome.seconds:.2f} s")
    for each in outcome.differences:
        then, now = each.then or "none", each.now or "none"
        say(console, f"  {one_line(each.subject)}\n    then  {one_line(then, 300)}\n    now   {one_line(now, 300)}")


def _outcome(report: TestReport) -> str:
    cause = "" if report.cause is None else f" (cause: {report.cause.value})"
    return f"{report.status.value}{cause}, {report.passed} of {plural(len(report.cases), 'case')} passed"


def _print_all(course: Course, options: ReplayOptions) -> None:
    """Print what came of a run's executions, and list those that were otherwise."""
    _print_notes(course.notes)
    out, outcomes, counts = partial(say, Console()), course.outcomes, course.outcomes.summarise()
    done = outcomes.same + len(outcomes.different) + len(outcomes.not_run)
    executed = course.executed(options.sample)
    number, which = (course.tested, "tested") if executed is None else (executed, "executed")
    pairs = plural(number, f"pair that was {which}", f"pairs that were {which}")
    of, alike, over = f"{done:,} of {pairs}", f"{outcomes.same:,}", ""
    if course.drawn < len(course.chosen):
        of, over = f"{plural(done, 'round')} of {course.drawn:,} of {pairs}", " over pairs"
        alike = f"{plural(outcomes.same, 'round')}; every round of {plural(counts['pairs_same'], 'pair')}"
    drawn = "" if options.sample is None else f" (a random sample, seed {options.seed})"
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
    return f" ({counts['share']:.1%} of those that ran; 95% interval{over} {counts['low']:.1%} to {counts['high']:.1%})"


def _line(outcome: ReplayResult | ReplayFailure) -> str:
    where = one_line(outcome.id, 40) + (f", round {outcome.round}" if outcome.round else "")
    if isinstance(outcome, ReplayFailure):
        return f"  {where}: not run: {outcome.error.type}: {one_line(outcome.error.message, 200)}"
    first, *rest = outcome.differences
    more = f" and {len(rest)} more" if rest else ""
    change = (
        f"{one_line(first.subject, 60)}: {one_line(first.then or 'none', 80)} → {one_line(first.now or 'none', 80)}"
    )
    return f"  {where}: {outcome.cause}: {change}{more}"


def _as_json(outcome: ReplayResult) -> dict[str, Any]:
    """Return what came of one execution."""
    return {
        "id": outcome.id,
        "round": outcome.round,
        "execution": outcome.execution,
        "same": outcome.same,
        "cause": outcome.cause,
        "differences": [asdict(each) for each in outcome.differences],
        "recorded": outcome.recorded.model_dump(mode="json"),
        "replayed": outcome.report.model_dump(mode="json"),
        "notes": outcome.notes,
        "seconds": round(outcome.seconds, 4),
    }


def _all_as_json(run: Path, course: Course, options: ReplayOptions) -> dict[str, Any]:
    """Return what came of a run's executions; pairs whose outcome was the same are counted alone."""
    return {
        "run": str(run),
        "tested": course.tested,
        "executions": None if course.executed(options.sample) is None else len(course.chosen),
        "chosen": len(course.chosen),
        "sample": options.sample,
        "seed": options.seed,
        "interrupted": course.interrupted,
        **course.outcomes.summarise(),
        "level": 0.95,
        "pairs": [_as_json(each) for each in course.outcomes.different],
        "pairs_not_run": [asdict(each) | {"error": each.error.model_dump()} for each in course.outcomes.not_run],
        "notes": course.notes,
        "seconds": round(course.seconds, 3),
    }
