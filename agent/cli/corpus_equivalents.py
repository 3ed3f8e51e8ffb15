"""Implements `agent corpus equivalents`, which groups functions that behave in the same way."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from agent.cli.corpus_options import EquivalentsOptions
from agent.cli.exit_codes import DONE, SOME_ERRORS
from agent.cli.interrupts import run_interruptible
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.settings import ChosenSettings
from agent.cli.text import Console, print_json, print_table, print_text
from agent.corpus.equivalents import MAX_CLIQUES, EquivalenceSummary, find_equivalents
from agent.corpus.mutate import NOT_RUN
from agent.corpus.output import get_removed_path, open_output
from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks.registry import read_columns
from agent.datasets.encoding import dumps
from agent.datasets.fields import Fields
from agent.datasets.reading import read_dataset
from agent.errors import UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.judging import propose_pairs
from agent.runs.store import files
from agent.runs.store.files import replacing
from agent.runs.store.run_view import load_run
from agent.sandbox.select import choose
from agent.text import build_table
from agent.types import Pair


def run(source: Path, out: Path, options: EquivalentsOptions) -> None:
    """Write the groups and the proposed pairs, and print a summary.

    Raises:
        UsageError: the source cannot be read, or an output file must not be written.
        SandboxUnavailable: no sandbox works on this machine.
        typer.Exit: with exit code 0, 1 (a sandbox failed) or 3 (the command stopped early, and wrote no files).
    """
    inputs = [source, *map(Path, options.codes or ())]
    check_corpus_output(out, inputs, force=options.force)
    if options.pairs is not None:
        check_corpus_output(options.pairs, [*inputs, out], force=options.force)
    notes = Console(stderr=True)
    with stoppable(notes, "No output was written."):
        pairs, benchmark = _read(source, options)
        if options.pairs is not None and not (benchmark and benchmark.grades):
            raise UsageError(f"--pairs: {source} has no queries with relevant snippets. Remove --pairs.")
        with open_output(out) as writer:
            summary = run_interruptible(_find(pairs, options, notes))
            for group in summary.groups:
                writer.keep(group.model_dump(mode="json"))
            for pair in pairs:
                if reason := summary.removed.get(pair.id):
                    writer.remove(reason, {"id": pair.id, "code": pair.code})
            proposed = list(propose_pairs(benchmark, summary.groups)) if benchmark else []
            if options.pairs is not None:
                with replacing(options.pairs) as draft:
                    draft.write_bytes(b"".join(dumps(line) + b"\n" for line in proposed))
    counts = {
        "read": summary.read,
        "informative": summary.informative,
        "groups": len(summary.groups),
        "members": len({member.id for group in summary.groups for member in group.members}),
        "proposed_pairs": len(proposed),
        "queries": len({line["meta"]["query_id"] for line in proposed}),
    }
    if options.as_json:
        paths = {"out": str(out), "removed_out": str(get_removed_path(out))}
        print_json({**paths, **counts, "cut": summary.cut, "removed": dict(writer.removed.most_common())})
    else:
        _print(out, counts, writer.removed.most_common(), options)
    if summary.cut:
        print_text(notes, f"note: more than {MAX_CLIQUES:,} groups with equally many arguments. The others are missing")
    raise typer.Exit(SOME_ERRORS if writer.removed[NOT_RUN] else DONE)


def _read(source: Path, options: EquivalentsOptions) -> tuple[list[Pair], Benchmark | None]:
    """Return the snippets as pairs without queries, and the benchmark if the source has queries."""
    is_run, fields = (source / files.ANNOTATIONS).is_file(), Fields(options.field_map)
    columns = [] if is_run else read_columns(source)
    if not options.codes and columns and not fields.has("query", columns) and fields.has("code", columns):
        return [*read_dataset([source], options.field_map, codes_alone=True)], None
    benchmark = open_benchmark(
        source, options.codes or (), language="python", split=options.split, mapping=options.field_map
    )
    known = dict[str, Pair]()
    if is_run:
        with load_run(source) as view:
            known = {pair.code: pair for pair in view.pairs()}
    elif fields.has("query", columns) and fields.has("code", columns):
        known = {pair.code: pair for pair in read_dataset([source], options.field_map)}
    blank = Pair(id="", query="", code="", language=benchmark.language)
    return [
        known.get(code, blank).model_copy(update={"id": id, "query": "", "code": code})
        for id, code in benchmark.codes.items()
    ], benchmark


async def _find(pairs: Sequence[Pair], options: EquivalentsOptions, notes: Console) -> EquivalenceSummary:
    config = ChosenSettings(notes, options).config
    backend = await choose(config.sandbox, partial(print_text, notes))
    try:
        with Steps(notes) as steps:
            return await find_equivalents(pairs, backend, concurrency=options.concurrency, progress=steps)
    finally:
        await backend.close()


def _print(out: Path, counts: dict[str, int], removed: list[tuple[str, int]], options: EquivalentsOptions) -> None:
    console = Console()
    names = {"read": "functions", "informative": "with informative results", "members": "functions in groups"}
    rows = {names.get(name, name.replace("_", " ")): count for name, count in counts.items()}
    rows |= {f"removed: {reason}": count for reason, count in removed}
    print_table(console, build_table(("functions and groups", "count"), rows.items()))
    print_text(console, f"groups: {out}\nremoved: {get_removed_path(out)}")
    if options.pairs is not None:
        pairs = shlex.quote(str(options.pairs))
        print_text(console, f"pairs: {options.pairs}\nNext: agent retrieval judge RETRIEVAL --pairs {pairs}")
