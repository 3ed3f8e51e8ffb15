"""Implements `agent corpus decontaminate`, which removes pairs that overlap with benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, explain_stop, print_input_notes
from agent.cli.text import Console, one_line, print_json, print_text
from agent.corpus.decontaminate import REASONS, Decontaminator, Overlap, remove_overlap
from agent.corpus.output import get_removed_path, open_output
from agent.datasets import read_pairs
from agent.datasets.formats import expand_patterns
from agent.errors import RunStopped, UsageError
from agent.retrieval.benchmark import includes_codes, open_benchmark
from agent.wording import plural

_COUNTS = "contaminated_queries", "contaminated_codes", "matching_pairs"


def run(
    source: str, against: Sequence[str], out: Path, *, codes: Sequence[str], force: bool, as_json: bool, **options: Any
) -> None:
    """Write the kept and the removed pairs, and print the overlap. `options` are passed to `open_benchmark`.

    Raises:
        UsageError: an input cannot be read, or an output file must not be written.
        typer.Exit: the command stopped early, and wrote no files.
    """
    paths, benchmarks, code_files = (expand_patterns(names) for names in ([source], against, codes))
    without_codes = [path for path in benchmarks if not includes_codes(path)]
    if codes and not without_codes:
        raise UsageError("--codes: all benchmarks include their own codes. Remove --codes.")
    check_corpus_output(out, (*paths, *benchmarks, *code_files), force=force)
    notes = Console(stderr=True)
    try:
        with notes.status(f"reading {one_line(source)}"):
            finder, pairs = Decontaminator(), read_pairs(paths)
        print_input_notes(pairs, notes)
        with Steps(notes) as steps:
            for path in benchmarks:
                benchmark = open_benchmark(path, code_files if path in without_codes else (), **options)
                finder.add(str(path), benchmark, steps)
            with open_output(out) as writer:
                remove_overlap(pairs, finder, writer, steps)
    except (KeyboardInterrupt, RunStopped) as error:
        explain_stop(notes, error, "No output was written.")
    document: dict[str, Any] = {"out": str(out), "removed_out": str(get_removed_path(out)), "read": len(pairs)}
    document |= {"kept": writer.kept, "removed": {reason: writer.removed[reason] for reason in REASONS}}
    document["benchmarks"] = [_describe(overlap, len(pairs)) for overlap in finder.overlaps]
    print_json(document) if as_json else _print(document)


def _describe(overlap: Overlap, pairs: int) -> dict[str, Any]:
    counts, totals = asdict(overlap), (overlap.queries, overlap.codes, pairs)
    return counts | {f"{name}_share": counts[name] / total for name, total in zip(_COUNTS, totals, strict=True)}


def _print(document: dict[str, Any]) -> None:
    console = Console()
    for row in document["benchmarks"]:
        counts = (f"{name.replace('_', ' ')}: {row[name]:,} ({row[f'{name}_share']:.1%})" for name in _COUNTS)
        print_text(console, f"{row['benchmark']}: {', '.join(counts)}, short queries: {row['short_queries']:,}")
    print_text(console, f"{document['out']}: {document['kept']:,} of {plural(document['read'], 'pair')}")
    removed = ", ".join(f"{reason}: {count:,}" for reason, count in document["removed"].items())
    print_text(console, f"{document['removed_out']}: {document['read'] - document['kept']:,} removed ({removed})")
