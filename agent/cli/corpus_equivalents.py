"""Implements `agent corpus equivalents`, which groups functions that behave in the same way."""

from __future__ import annotations

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
from agent.corpus.equivalents import MAX_GROUPS, EquivalenceSummary, find_equivalents
from agent.corpus.labelled import read_labelled
from agent.corpus.mutate import NOT_RUN
from agent.corpus.output import get_removed_path, open_output
from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks.registry import read_columns
from agent.datasets.encoding import dumps
from agent.datasets.fields import CODES, Fields, parse_mapping
from agent.datasets.reading import read_dataset
from agent.errors import UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.judging import propose_pairs
from agent.runs.store import files
from agent.runs.store.files import replacing
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
        check_corpus_output(options.pairs, [*inputs, out, get_removed_path(out)], force=options.force)
    notes = Console(stderr=True)
    with stoppable(notes, "No output was written."):
        pairs, benchmark = _read(source, options)
        if options.pairs is not None and benchmark is None:
            raise UsageError(f"--pairs: {source} has no queries. Pass a benchmark or a run, or remove --pairs.")
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
        paths |= {"pairs_out": str(options.pairs)} if options.pairs is not None else {}
        print_json({**paths, **counts, "cut": summary.cut, "removed": dict(writer.removed.most_common())})
    else:
        rows = {**counts, **{f"removed: {reason}": count for reason, count in writer.removed.most_common()}}
        rows = {name.replace("_", " "): count for name, count in rows.items()}
        print_table(Console(), build_table(("functions, groups and pairs", "count"), rows.items()))
        print_text(Console(), f"groups: {out}\nremoved: {get_removed_path(out)}")
        if options.pairs is not None:
            print_text(Console(), f"pairs: {options.pairs}")
    for note in benchmark.notes if benchmark else ():
        print_text(notes, f"note: {note}")
    if summary.cut:
        print_text(notes, f"note: there are more than {MAX_GROUPS:,} groups. The others are missing")
    raise typer.Exit(SOME_ERRORS if writer.removed[NOT_RUN] else DONE)


def _read(source: Path, options: EquivalentsOptions) -> tuple[list[Pair], Benchmark | None]:
    """Return the snippets as pairs, and the benchmark if the source has queries."""
    is_run, fields = (source / files.ANNOTATIONS).is_file(), Fields(options.field_map)
    columns = [] if is_run or options.codes else read_columns(source)
    has_codes = fields.has("code", columns)
    if has_codes and not fields.has("query", columns):
        mapping = parse_mapping(options.field_map) if options.field_map else {}
        if "id" not in mapping:
            mapping |= [("id", name) for name in CODES["id"] if name in columns][:1]
        return list(read_dataset([source], mapping, codes_alone=True)), None
    benchmark = open_benchmark(
        source,
        options.codes or (),
        language="python",
        split=options.split,
        mapping=options.field_map,
        on_unknown_id="skip",
    )
    # of the rows of a benchmark, only the texts are kept
    labelled = read_labelled(source, options.field_map) if is_run or has_codes else ()
    known = {item.pair.code: item.pair for item in labelled}
    blank = Pair(id="", query="", code="", language=benchmark.language)
    pairs = [known.get(code, blank).model_copy(update={"id": id, "code": code}) for id, code in benchmark.codes.items()]
    return pairs, benchmark


async def _find(pairs: Sequence[Pair], options: EquivalentsOptions, notes: Console) -> EquivalenceSummary:
    config = ChosenSettings(notes, options).config
    backend = await choose(config.sandbox, partial(print_text, notes))
    try:
        with Steps(notes) as steps:
            return await find_equivalents(pairs, backend, concurrency=options.concurrency, progress=steps)
    finally:
        await backend.close()
