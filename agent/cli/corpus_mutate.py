"""Implements `agent corpus mutate`, which makes mutants of right code and proves that they are wrong."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Literal

import typer

from agent.cli.corpus_options import MutateOptions
from agent.cli.exit_codes import DONE, SOME_ERRORS
from agent.cli.interrupts import run_interruptible
from agent.cli.progress import Steps
from agent.cli.replay import build_replay_config, open_replayer
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.settings import ChosenSettings
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.corpus.labelled import LabelledPair, read_labelled
from agent.corpus.mutate import NOT_RUN, SURVIVED, Checked, MutationSummary, find_passed, mutate_codes, mutate_recorded
from agent.corpus.output import CorpusWriter, get_removed_path, open_output
from agent.errors import NotReplayable, UsageError
from agent.evaluation.recorded import group_by_sandbox
from agent.evaluation.replay import Replayer
from agent.runs.store import files
from agent.runs.store.annotations import Key
from agent.runs.store.run_view import RunView, load_run
from agent.sandbox.select import choose
from agent.streams import run_concurrently
from agent.text import build_table
from agent.types import Pair


def run(source: Path, out: Path, options: MutateOptions) -> None:
    """Write the right code and the killed mutants, and print a summary.

    Raises:
        UsageError: the source cannot be read, or an output file must not be written.
        SandboxUnavailable: no sandbox works on this machine.
        typer.Exit: with exit code 0, 1 (a sandbox failed) or 3 (the command stopped early, and wrote no files).
    """
    check_corpus_output(out, [source], force=options.force)
    notes, summary = Console(stderr=True), MutationSummary()
    with stoppable(notes, "No output was written."), open_output(out) as writer:
        if (source / files.ANNOTATIONS).is_file():
            if options.field_map:
                raise UsageError("--map: a run has no fields to map. Remove --map.")
            with load_run(source) as view:
                pairs = [*find_passed(view)]
                checks = _check_run(view, pairs, options, notes)
                run_interruptible(_write(checks, "program", len(pairs), summary, writer, notes))
        else:
            items = [*read_labelled(source, options.field_map, codes_alone=True)]
            checks = _check_codes(items, options, notes)
            run_interruptible(_write(checks, "inputs", len(items), summary, writer, notes))
    if options.as_json:
        paths = {"out": str(out), "removed_out": str(get_removed_path(out))}
        print_json({**paths, **vars(summary), "removed": dict(writer.removed.most_common())})
    else:
        _print(out, summary, writer)
    raise typer.Exit(SOME_ERRORS if writer.removed[NOT_RUN] else DONE)


async def _write(
    checks: AsyncGenerator[Checked, None],
    check: Literal["program", "inputs"],
    total: int,
    summary: MutationSummary,
    writer: CorpusWriter,
    notes: Console,
) -> None:
    with Steps(notes) as steps:
        async with aclosing(checks) as results:
            async for checked in results:
                summary.add(checked, check, writer)
                steps.detail = f"killed:{summary.killed:,} survived:{writer.removed[SURVIVED]:,}"
                steps("checking mutants", summary.read, total)


async def _check_codes(
    items: Sequence[LabelledPair], options: MutateOptions, notes: Console
) -> AsyncGenerator[Checked, None]:
    config = ChosenSettings(notes, options).config
    backend = await choose(config.sandbox, partial(print_text, notes))
    try:
        checks = mutate_codes(items, backend, limit=options.mutants, concurrency=options.concurrency)
        async with aclosing(checks) as results:
            async for checked in results:
                yield checked
    finally:
        await backend.close()


async def _check_run(
    view: RunView, pairs: Sequence[tuple[Pair, int, str]], options: MutateOptions, notes: Console
) -> AsyncGenerator[Checked, None]:
    passed, segments = dict[Key, Pair](), dict[Key, int]()
    for pair, number, reason in pairs:
        if reason:
            yield Checked(pair, reason)
        else:
            history = view.evidence(pair.id, number)
            passed[pair.id, number] = pair
            segments[pair.id, number] = 0 if history is None else history.segment or 0
    if not passed:
        raise NotReplayable(f"{view.path}: no pair has label 1 and a test that passed")
    for sandbox, keys in group_by_sandbox(view.manifest, segments):
        config = build_replay_config(options, sandbox, len(keys))
        async with open_replayer(view, sandbox, config, options.concurrency, notes) as replayer:
            for note in replayer.notes:
                print_text(notes, f"note: {one_line(note, 400)}")

            async def check(key: Key, replayer: Replayer = replayer) -> Checked:
                return await mutate_recorded(view, replayer, passed[key], key[1], options.mutants)

            checks = run_concurrently(keys, check, concurrency=options.concurrency, ordered=True)
            async with aclosing(checks) as results:
                async for checked in results:
                    yield checked


def _print(out: Path, summary: MutationSummary, writer: CorpusWriter) -> None:
    console = Console()
    rows = {
        "snippets": summary.read,
        "snippets with a check and mutants": summary.checked,
        "snippets with killed mutants": summary.with_killed,
        "mutants": summary.mutants,
        "killed": summary.killed,
        "killed by exceptions only": summary.crashes,
        **{f"killed: {kind}": count for kind, count in summary.kinds.most_common()},
        **{f"removed: {reason}": count for reason, count in writer.removed.most_common()},
    }
    print_table(console, build_table(("snippets and mutants", "count"), rows.items()))
    print_text(console, f"pairs: {out}\nremoved: {get_removed_path(out)}")
    if summary.killed:
        print_text(console, f"Next: agent retrieval score RETRIEVAL --mutants {shlex.quote(str(out))}")
