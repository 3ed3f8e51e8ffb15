"""`agent replay`: runs recorded programs again and says whether the outcome is the same."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agent.cli import DONE, SOME_ERRORS, STOPPED
from agent.cli.console import Console
from agent.cli.replayed import Course, all_as_json, as_json, tell, tell_all, tell_notes
from agent.cli.running import to_its_end
from agent.cli.settings import read_config
from agent.cli.show import the_annotation
from agent.cli.text import print_json, say
from agent.config import Config
from agent.errors import UsageError
from agent.evaluation.conditions import Conditions, grouped, told
from agent.evaluation.replay import Replayed, Tally, replaying
from agent.store.run_view import RunView, load_run

_SECONDS_BETWEEN_LINES = 10.0


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
    given = conditions.config
    told: dict[str, Any] = {f"sandbox.{name}": value for name, value in given.sandbox.model_dump().items()}
    told |= {f"pipeline.{name}": value for name, value in given.pipeline.model_dump().items()}
    told |= {"sandbox.pool": min(4, request.concurrency) if request.everything else 1}
    told |= {name: value for name, value in request.options.items() if value is not None}
    return read_config(told, request.settings)


def _replay_one(request: Request, view: RunView) -> None:
    assert request.pair_id is not None
    annotation = the_annotation(view, request.pair_id, request.round)
    [group] = grouped(view, [(annotation.id, annotation.round)], request.backend)
    config = _config(request, group.conditions)

    async def work() -> tuple[Replayed, tuple[str, ...]]:
        told = partial(say, Console(stderr=True))
        async with replaying(view, group.conditions, config=config, concurrency=1, progress=told) as replayer:
            return await replayer.replay(annotation.id, annotation.round, request.execution), replayer.notes

    try:
        found, notes = to_its_end(work())
    except KeyboardInterrupt:
        say(Console(stderr=True), "Interrupted.")
        raise typer.Exit(STOPPED) from None
    notes = (*notes, *found.notes)
    if request.as_json:
        print_json({**as_json(found), "notes": notes})
    else:
        tell_notes(notes)
        tell(found)
    raise typer.Exit(DONE if found.same else SOME_ERRORS)


def _replay_all(request: Request, view: RunView) -> None:
    course, console = Course(request.folder, request.sample, request.seed), Console(stderr=True)

    async def work() -> None:
        course.choose(view)
        groups = grouped(view, course.chosen, request.backend)
        configs = [_config(request, group.conditions) for group in groups]
        notes: list[tuple[str, ...]] = []
        course.started = time.monotonic()
        with _Bar(console, len(course.chosen)) as bar:
            for group, config in zip(groups, configs, strict=True):
                async with replaying(
                    view,
                    group.conditions,
                    config=config,
                    concurrency=request.concurrency,
                    progress=partial(say, console),
                ) as replayer:
                    notes.append(replayer.notes)
                    course.notes = tuple(told(groups, notes))
                    async with aclosing(replayer.replay_all(group.keys)) as found:
                        async for each in found:
                            course.tally.add(each)
                            bar.step(course.tally)

    interrupted = False
    try:
        to_its_end(work())
    except KeyboardInterrupt:
        interrupted = True
        say(console, "Interrupted; this is what is known so far." if course.known else "Interrupted.")
    summary = course.tally.summary()
    if request.as_json:
        print_json(all_as_json(course, summary, interrupted))
    elif course.known:
        tell_notes(course.notes)
        tell_all(course, summary)
    if interrupted:
        raise typer.Exit(STOPPED)
    raise typer.Exit(SOME_ERRORS if summary.different or summary.not_run else DONE)


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

    def step(self, tally: Tally) -> None:
        """Show one more."""
        self._done += 1
        counts = f"same:{tally.same} different:{len(tally.different)} not run:{len(tally.not_run)}"
        self._bar.update(self._task, advance=1, counts=counts)
        if not self._console.is_terminal and time.monotonic() - self._printed >= _SECONDS_BETWEEN_LINES:
            self._printed = time.monotonic()
            say(self._console, f"{self._done}/{self._total} {counts}")
