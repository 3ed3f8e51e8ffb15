"""Implements `agent corpus decontaminate`, which removes pairs that overlap with benchmarks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, print_input_notes, stoppable
from agent.cli.text import Console, add_row, make_table, one_line, print_json, print_text
from agent.corpus.decontaminate import REASONS, Decontaminator, remove_overlap
from agent.corpus.output import get_removed_path, open_output
from agent.datasets.arrow import is_dataset
from agent.datasets.formats import expand_patterns
from agent.datasets.reading import read_dataset
from agent.errors import UsageError
from agent.retrieval.benchmark import includes_codes, open_benchmark
from agent.text import plural

# each count with its total
_SHARES = ("contaminated_queries", "queries"), ("contaminated_codes", "codes"), ("matching_pairs", "read")


def run(
    source: str,
    against: Sequence[str],
    out: Path,
    field_map: str | None,
    *,
    codes: Sequence[str],
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the kept and the removed pairs, and print the overlap. `options` are passed to `open_benchmark`.

    Raises:
        UsageError: an input cannot be read, or an output file must not be written.
        typer.Exit: the command stopped early, and wrote no files.
    """
    paths, benchmarks, code_files = (expand_patterns(names) for names in ([source], against, codes))
    if any(path.is_dir() and not is_dataset(path) for path in paths):
        raise UsageError(f"{source}: is a folder. Pass a file of pairs. For a run, pass the output of agent export.")
    without_codes = [path for path in benchmarks if not includes_codes(path)]
    if codes and not without_codes:
        raise UsageError("--codes: all benchmarks include their own codes. Remove --codes.")
    check_corpus_output(out, (*paths, *benchmarks, *code_files), force=force)
    notes = Console(stderr=True)
    with stoppable(notes, "No output was written."):
        with notes.status(f"reading {one_line(source)}"):
            finder, pairs = Decontaminator(), read_dataset(paths, field_map, codes_alone=True)
        print_input_notes(pairs, notes)
        with Steps(notes) as steps:
            for path in benchmarks:
                own_codes = code_files if path in without_codes else ()
                benchmark = open_benchmark(path, own_codes, own_ids=True, **options)
                finder.add(str(path), benchmark, steps)
            with open_output(out) as writer:
                remove_overlap(pairs, finder, writer, steps)
    document: dict[str, Any] = {"out": str(out), "removed_out": str(get_removed_path(out)), "read": len(pairs)}
    document |= {"kept": writer.kept, "removed": {reason: writer.removed[reason] for reason in REASONS}}
    document["benchmarks"] = [{"benchmark": name, **own, "read": len(pairs)} for name, own in finder.overlaps.items()]
    for row in document["benchmarks"]:
        row |= {f"{part}_share": row[part] / row[whole] for part, whole in _SHARES}
    next_step = "corpus split {} -o DIR" if any("label" in pair.meta for pair in pairs) else "annotate {} --model MODEL"
    if not any(pair.query for pair in pairs):
        next_step = "train {} --pairs docstrings -o MODEL"
    print_json(document) if as_json else _print(document, next_step.format(shlex.quote(str(out))))


def _print(document: dict[str, Any], next_step: str) -> None:
    console, table = Console(), make_table("benchmark", "", "count", "of", "share")
    for row in document["benchmarks"]:
        for part, whole in _SHARES:
            share = f"{row[f'{part}_share']:.1%}"
            add_row(table, row["benchmark"], part.replace("_", " "), f"{row[part]:,}", f"{row[whole]:,}", share)
        add_row(table, row["benchmark"], "short queries", f"{row['short_queries']:,}", f"{row['queries']:,}")
    console.print(table)
    print_text(console, f"{document['out']}: {document['kept']:,} of {plural(document['read'], 'pair')}")
    removed = ", ".join(f"{reason}: {count:,}" for reason, count in document["removed"].items())
    print_text(console, f"{document['removed_out']}: {document['read'] - document['kept']:,} removed ({removed})")
    if document["kept"]:
        print_text(console, f"Next: agent {next_step}")
