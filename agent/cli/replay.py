"""`agent replay`: runs recorded programs again and compares the outcomes."""

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
from agent.cli.progress import make_bar
from agent.cli.settings import read_config
from agent.cli.show import find_annotation
from agent.cli.text import Console, one_line, print_json, print_text
from agent.config import Config
from agent.errors import UsageError
from agent.evaluation.recorded import (
    RecordedSandbox,
    find_segment,
    group_by_sandbox,
    list_keys_with_tests,
    merge_notes,
    read_execution,
    sample_keys,
)
from agent.evaluation.replay import ReplayCounts, ReplayFailure, ReplayResult, open_replayer
from agent.runs.store.annotations import Key
from agent.runs.store.run_view import RunView, load_run
from agent.text import plural

_MAX_LISTED = 50
_CAUSES = {
    "flaky": "flaky: the outcome varies between executions",
    "changed": "changed: every execution now has the new outcome",
}


def run(folder: Path, pair_id: str | None, options: ReplayOptions) -> None:
    """Replay one pair or all pairs, and print the outcomes.

    Raises:
        UsageError: the options contradict each other, or the folder is not a run.
        NotReplayable: the execution cannot be repeated.
        SandboxUnavailable: the run's sandbox does not work on this machine.
        typer.Exit: with exit code 0 (same outcomes), 1 (an outcome differs or is missing) or 3 (interrupted).
    """
    with load_run(folder) as view:
        if pair_id is not None and options.everything:
            raise UsageError(
                f"the pair id {pair_id!r} and --all cannot be combined. Pass an id, --all, "
                f"or --all --sample N for a random sample."
            )
        if pair_id is not None:
            replayed = _replay_one(view, pair_id, options)
            if options.as_json:
                print_json(_as_json(replayed))
            else:
                _print(replayed)
            raise typer.Exit(DONE if replayed.same else SOME_ERRORS)
        if not options.everything:
            raise UsageError("no pair selected. Pass the id of a pair, or --all.")
        run_replay = _replay_all(view, options)
        if options.as_json:
            print_json(_run_as_json(view.path, run_replay, options))
        else:
            _print_all(run_replay, options)
        if run_replay.interrupted:
            raise typer.Exit(STOPPED)
        raise typer.Exit(SOME_ERRORS if run_replay.outcomes.different or run_replay.outcomes.not_run else DONE)


def _build_config(options: ReplayOptions, sandbox: RecordedSandbox) -> Config:
    recorded_config = sandbox.config
    settings: dict[str, Any] = {
        f"sandbox.{name}": value for name, value in recorded_config.sandbox.model_dump().items()
    }
    settings |= {f"pipeline.{name}": value for name, value in recorded_config.pipeline.model_dump().items()}
    settings |= {"sandbox.pool": min(4, options.concurrency) if options.everything else 1, **options.values}
    return read_config(settings, options.assignments)


@dataclass
class RunReplay:
    """The progress of replaying a run.

    `chosen` maps the selected pairs and rounds to the segments (sessions) of the run in which they were executed.
    `tested_pairs` counts all pairs with a test.
    """

    tested_pairs: int
    chosen: Mapping[Key, int]
    outcomes: ReplayCounts = field(default_factory=ReplayCounts)
    notes: Sequence[str] = ()
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def chosen_pairs(self) -> int:
        """The number of selected pairs."""
        return len({pair_id for pair_id, _ in self.chosen})

    def count_executed(self, sample: int | None) -> int | None:
        """Return the number of pairs with a recorded execution, or None if only the sampled pairs were looked up."""
        return self.chosen_pairs if sample is None or self.chosen_pairs < sample else None


def _replay_one(view: RunView, pair_id: str, options: ReplayOptions) -> ReplayResult:
    """Replay one execution. Notes on the recorded environment precede the other notes in the result."""
    if options.sample is not None:
        raise UsageError("--sample selects a random sample of all pairs. Pass --all instead of a pair id.")
    annotation = find_annotation(view, pair_id, options.round)
    key = annotation.id, annotation.round
    segment = read_execution(view, *key, options.execution).segment
    [group] = group_by_sandbox(view.manifest, {key: segment}, options.values.get("sandbox.backend"))
    config = _build_config(options, group.sandbox)

    async def replay() -> ReplayResult:
        progress = partial(print_text, Console(stderr=True))
        async with open_replayer(view, group.sandbox, config=config, concurrency=1, progress=progress) as replayer:
            replayed = await replayer.replay(*key, options.execution)
            return replace(replayed, notes=(*replayer.notes, *replayed.notes))

    return run_interruptible(replay())


def _replay_all(view: RunView, options: ReplayOptions) -> RunReplay:
    if options.execution is not None or options.round is not None:
        raise UsageError(
            "--execution and --round select an execution of one pair. Pass the id of the pair instead of --all."
        )
    started_at, console = time.monotonic(), Console(stderr=True)
    keys = list_keys_with_tests(view)
    chosen = sample_keys(keys, options.sample, options.seed, partial(find_segment, view))
    run_replay = RunReplay(len({pair_id for pair_id, _ in keys}), chosen)

    async def replay() -> None:
        groups = group_by_sandbox(view.manifest, run_replay.chosen, options.values.get("sandbox.backend"))
        configs = [_build_config(options, group.sandbox) for group in groups]
        notes: list[Sequence[str]] = []
        with make_bar(console) as bar:
            task = bar.add_task("", total=len(run_replay.chosen))
            for group, config in zip(groups, configs, strict=True):
                async with open_replayer(
                    view,
                    group.sandbox,
                    config=config,
                    concurrency=options.concurrency,
                    progress=partial(print_text, console),
                ) as replayer:
                    notes.append(replayer.notes)
                    run_replay.notes = tuple(merge_notes(groups, notes))
                    async with aclosing(replayer.replay_all(group.keys)) as outcomes:
                        async for outcome in outcomes:
                            run_replay.outcomes.add(outcome)
                            bar.update(task, advance=1, description=str(run_replay.outcomes))

    try:
        run_interruptible(replay())
    except KeyboardInterrupt:
        run_replay.interrupted = True
        print_text(console, "Interrupted. Results so far:")
    run_replay.seconds = time.monotonic() - started_at
    return run_replay


def _print_notes(notes: Sequence[str]) -> None:
    console = Console(stderr=True)
    for note in notes:
        print_text(console, f"note: {one_line(note, 400)}")


def _print(outcome: ReplayResult) -> None:
    _print_notes(outcome.notes)
    console = Console()
    print_text(console, "same outcome" if outcome.same else "different outcome", style="bold")
    if outcome.cause is not None:
        print_text(console, _CAUSES[outcome.cause])
    which = f"execution {outcome.execution}" + (f" of round {outcome.round}" if outcome.round else "")
    report = outcome.report
    cause = "" if report.cause is None else f" (cause: {report.cause.value})"
    passed = f"{report.passed} of {plural(len(report.cases), 'case')} passed"
    print_text(console, f"{which}: {report.status.value}{cause}, {passed}, in {outcome.seconds:.2f} s")
    for difference in outcome.differences:
        then, now = difference.then or "none", difference.now or "none"
        print_text(
            console,
            f"  {one_line(difference.subject)}\n    then  {one_line(then, 300)}\n    now   {one_line(now, 300)}",
        )


def _print_all(run_replay: RunReplay, options: ReplayOptions) -> None:
    """Print the totals of a replayed run, and list the executions that differ or did not run."""
    _print_notes(run_replay.notes)
    out, outcomes, counts = partial(print_text, Console()), run_replay.outcomes, run_replay.outcomes.summarise()
    done = outcomes.same + len(outcomes.different) + len(outcomes.not_run)
    executed = run_replay.count_executed(options.sample)
    number, which = (run_replay.tested_pairs, "tested") if executed is None else (executed, "executed")
    pairs = plural(number, f"{which} pair")
    total, unchanged, scope = f"{done:,} of {pairs}", f"{outcomes.same:,}", ""
    if run_replay.chosen_pairs < len(run_replay.chosen):
        total, scope = f"{plural(done, 'round')} from {run_replay.chosen_pairs:,} of {pairs}", " over pairs"
        unchanged = f"{plural(outcomes.same, 'round')}, including all rounds of {plural(counts['pairs_same'], 'pair')}"
    sampling = "" if options.sample is None else f" (a random sample, seed {options.seed})"
    out(f"replayed    {total}{sampling}")
    out(f"same        {unchanged}{_format_share(counts, scope)}")
    more = f" ({counts['flaky']} flaky, {counts['only_messages']} only in the messages)" if outcomes.different else ""
    out(f"different   {len(outcomes.different)}{more}")
    if outcomes.not_run:
        reasons = " · ".join(f"{count} {one_line(name, 60)}" for name, count in counts["not_run"].items())
        out(f"not run     {len(outcomes.not_run)}: {reasons}")
    out(f"time        {run_replay.seconds:.1f} s")
    lines = [*map(_format_line, outcomes.different), *map(_format_line, outcomes.not_run)]
    for line in lines[:_MAX_LISTED]:
        out(line)
    if len(lines) > _MAX_LISTED:
        out(f"and {len(lines) - _MAX_LISTED} more. Pass --json to list all.")


def _format_share(counts: Mapping[str, Any], scope: str) -> str:
    if counts["share"] is None:
        return ""
    interval = f"95% interval{scope}: {counts['low']:.1%} to {counts['high']:.1%}"
    return f" ({counts['share']:.1%} of executed replays; {interval})"


def _format_line(outcome: ReplayResult | ReplayFailure) -> str:
    place = one_line(outcome.id, 40) + (f", round {outcome.round}" if outcome.round else "")
    if isinstance(outcome, ReplayFailure):
        return f"  {place}: not run: {outcome.error.type}: {one_line(outcome.error.message, 200)}"
    first, *rest = outcome.differences
    more = f" and {len(rest)} more" if rest else ""
    change = (
        f"{one_line(first.subject, 60)}: {one_line(first.then or 'none', 80)} → {one_line(first.now or 'none', 80)}"
    )
    return f"  {place}: {outcome.cause}: {change}{more}"


def _as_json(outcome: ReplayResult) -> dict[str, Any]:
    return {
        "id": outcome.id,
        "round": outcome.round,
        "execution": outcome.execution,
        "same": outcome.same,
        "cause": outcome.cause,
        "differences": [asdict(difference) for difference in outcome.differences],
        "recorded": outcome.recorded.model_dump(mode="json"),
        "replayed": outcome.report.model_dump(mode="json"),
        "notes": outcome.notes,
        "seconds": round(outcome.seconds, 4),
    }


def _run_as_json(run: Path, run_replay: RunReplay, options: ReplayOptions) -> dict[str, Any]:
    """Return the results of replaying a run as JSON. Pairs with the same outcome are counted but not listed."""
    return {
        "run": str(run),
        "tested": run_replay.tested_pairs,
        "executions": None if run_replay.count_executed(options.sample) is None else len(run_replay.chosen),
        "chosen": len(run_replay.chosen),
        "sample": options.sample,
        "seed": options.seed,
        "interrupted": run_replay.interrupted,
        **run_replay.outcomes.summarise(),
        "level": 0.95,
        "pairs": [_as_json(outcome) for outcome in run_replay.outcomes.different],
        "pairs_not_run": [asdict(pair) | {"error": pair.error.model_dump()} for pair in run_replay.outcomes.not_run],
        "notes": run_replay.notes,
        "seconds": round(run_replay.seconds, 3),
    }
