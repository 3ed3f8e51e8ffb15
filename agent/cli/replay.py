"""`agent replay`: runs recorded programs again and compares the outcomes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import typer

from agent.cli.exit_codes import DONE, SOME_ERRORS, STOPPED
from agent.cli.interrupts import run_interruptible
from agent.cli.options import ReplayOptions
from agent.cli.progress import Steps
from agent.cli.settings import read_config
from agent.cli.show import find_annotations
from agent.cli.text import Console, one_line, print_json, print_text
from agent.config import Config
from agent.errors import NotReplayable
from agent.evaluation.recorded import RecordedSandbox, group_by_sandbox
from agent.evaluation.replay import Replayer, ReplayFailure, ReplayResult
from agent.runs.store.annotations import Key
from agent.runs.store.run_view import RunView, load_run
from agent.sandbox.select import LOCKED_BACKENDS, choose
from agent.text import plural

_MAX_LISTED = 50


@dataclass
class _Outcomes:
    """The outcomes so far. The keys of `notes` are distinct notes on the sandboxes."""

    same: int = 0
    different: list[ReplayResult] = field(default_factory=list)
    not_run: list[ReplayFailure] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    interrupted: bool = False

    def add(self, outcome: ReplayResult | ReplayFailure) -> None:
        if isinstance(outcome, ReplayFailure):
            self.not_run.append(outcome)
        elif outcome.differences:
            self.different.append(outcome)
        else:
            self.same += 1

    def __str__(self) -> str:
        return f"same:{self.same} different:{len(self.different)} not run:{len(self.not_run)}"


def run(folder: Path, pair_ids: Sequence[str], options: ReplayOptions) -> None:
    """Replay the last execution of the given pairs, or of all pairs, and print the outcomes.

    Raises:
        UsageError: the folder is not a run, or does not contain a pair.
        NotReplayable: no program was executed, or the recorded sandbox cannot be used.
        SandboxUnavailable: the run's sandbox does not work on this machine.
        typer.Exit: with exit code 0 (same outcomes), 1 (an outcome differs or is missing) or 3 (interrupted).
    """
    started_at, console = time.monotonic(), Console(stderr=True)
    with load_run(folder) as view:
        segments = _find_segments(view, pair_ids)
        pairs = plural(len({pair_id for pair_id, _ in segments}), "pair")
        print_text(console, f"Replaying {plural(len(segments), 'execution')} of {pairs}")
        outcomes = _replay(view, group_by_sandbox(view.manifest, segments), options, console)
    for note in outcomes.notes:
        print_text(console, f"note: {one_line(note, 400)}")
    document = _as_json(outcomes, run=str(folder), chosen=len(segments), seconds=time.monotonic() - started_at)
    if options.as_json:
        print_json(document)
    else:
        _print(document)
    if outcomes.interrupted:
        raise typer.Exit(STOPPED)
    raise typer.Exit(SOME_ERRORS if outcomes.different or outcomes.not_run else DONE)


def _find_segments(view: RunView, pair_ids: Sequence[str]) -> dict[Key, int]:
    if pair_ids:
        keys = [(found.id, found.round) for pair_id in pair_ids for found in find_annotations(view, pair_id)]
    else:
        keys = sorted((annotation.id, annotation.round) for annotation in view.annotations() if annotation.test)
    recorded = ((key, view.evidence(*key)) for key in keys)
    segments = {key: history.segment or 0 for key, history in recorded if history is not None and history.tests}
    unexecuted = set(pair_ids) - {pair_id for pair_id, _ in segments}
    if unexecuted or not segments:
        which = f"pair {min(unexecuted)!r}" if unexecuted else f"{view.path}"
        raise NotReplayable(f"{which}: no program was executed")
    return segments


def _replay(
    view: RunView, groups: Sequence[tuple[RecordedSandbox, list[Key]]], options: ReplayOptions, console: Console
) -> _Outcomes:
    outcomes = _Outcomes()
    configs = [build_replay_config(options, sandbox, len(keys)) for sandbox, keys in groups]

    async def replay() -> None:
        done, total = 0, sum(len(keys) for _, keys in groups)
        with Steps(console) as steps:
            for (sandbox, keys), config in zip(groups, configs, strict=True):
                async with open_replayer(view, sandbox, config, options.concurrency, console) as replayer:
                    outcomes.notes |= dict.fromkeys(replayer.notes)
                    async with aclosing(replayer.replay_all(keys)) as results:
                        async for result in results:
                            outcomes.add(result)
                            done, steps.detail = done + 1, str(outcomes)
                            steps("replaying", done, total)

    try:
        run_interruptible(replay())
    except KeyboardInterrupt:
        outcomes.interrupted = True
        print_text(console, "Interrupted. Results so far:")
    return outcomes


@asynccontextmanager
async def open_replayer(
    view: RunView, sandbox: RecordedSandbox, config: Config, concurrency: int, console: Console
) -> AsyncIterator[Replayer]:
    """Start a backend for the executions of a recorded sandbox, and stop it at the end of the block."""
    backend = await choose(config.sandbox, partial(print_text, console), backends=LOCKED_BACKENDS)
    try:
        await sandbox.require_toolchains(backend)
        yield Replayer(view, backend, sandbox, config=config, concurrency=concurrency)
    finally:
        await backend.close()


def build_replay_config(options: ReplayOptions, sandbox: RecordedSandbox, executions: int) -> Config:
    """Return the recorded settings, changed by the assignments on the command line."""
    recorded = sandbox.config
    settings: dict[str, Any] = {f"sandbox.{name}": value for name, value in recorded.sandbox.model_dump().items()}
    settings |= {f"pipeline.{name}": value for name, value in recorded.pipeline.model_dump().items()}
    settings["sandbox.pool"] = min(4, options.concurrency, executions)
    config = read_config(settings, options.assignments or ()).to_config()
    sandbox.check(config)
    return config


def _as_json(outcomes: _Outcomes, *, seconds: float, **more: Any) -> dict[str, Any]:
    """Return the results as JSON. Executions with the same outcome are counted but not listed."""
    return {
        **more,
        "same": outcomes.same,
        "different": len(outcomes.different),
        "flaky": sum(result.cause == "flaky" for result in outcomes.different),
        "not_run": dict(Counter(failure.error.type for failure in outcomes.not_run).most_common()),
        "interrupted": outcomes.interrupted,
        "pairs": [
            {
                "id": result.id,
                "round": result.round,
                "cause": result.cause,
                "differences": [asdict(difference) for difference in result.differences],
                "recorded": result.recorded.model_dump(mode="json"),
                "replayed": result.report.model_dump(mode="json"),
                "notes": result.notes,
                "seconds": round(result.seconds, 4),
            }
            for result in outcomes.different
        ],
        "pairs_not_run": [asdict(failure) | {"error": failure.error.model_dump()} for failure in outcomes.not_run],
        "notes": list(outcomes.notes),
        "seconds": round(seconds, 3),
    }


def _print(document: Mapping[str, Any]) -> None:
    out, not_run = partial(print_text, Console()), len(document["pairs_not_run"])
    done = document["same"] + document["different"] + not_run
    out(f"replayed    {done:,} of {plural(document['chosen'], 'execution')}")
    out(f"same        {document['same']:,}")
    out(f"different   {document['different']:,}" + (f" ({document['flaky']:,} flaky)" if document["flaky"] else ""))
    if not_run:
        reasons = " · ".join(f"{count} {one_line(name, 60)}" for name, count in document["not_run"].items())
        out(f"not run     {not_run:,}: {reasons}")
    out(f"time        {document['seconds']:.1f} s")
    lines = [line for pair in (*document["pairs"], *document["pairs_not_run"]) for line in _describe(pair)]
    for line in lines[:_MAX_LISTED]:
        out(line)
    if len(lines) > _MAX_LISTED:
        out(f"and {len(lines) - _MAX_LISTED} more lines. Pass --json to list everything.")


def _describe(pair: Mapping[str, Any]) -> Iterator[str]:
    place = one_line(pair["id"], 40) + (f", round {pair['round']}" if pair["round"] else "")
    if "error" in pair:
        yield f"  {place}: not run: {pair['error']['type']}: {one_line(pair['error']['message'], 200)}"
        return
    yield f"  {place}: {pair['cause']}"
    for difference in pair["differences"]:
        then, now = (one_line(difference[name] or "none", 80) for name in ("then", "now"))
        what = " of ".join(filter(None, (difference["kind"], one_line(difference["case"], 60))))
        yield f"    {what}: {then} → {now}"
    for note in pair["notes"]:
        yield f"    note: {one_line(note, 200)}"
