"""Implements `agent corpus decontaminate`, which removes pairs that overlap with benchmarks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agent.cli.corpus_options import DecontaminateOptions
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, print_input_notes, stoppable
from agent.cli.text import Console, one_line, print_result, print_table, print_text
from agent.corpus.decontaminate import REASONS, Decontaminator, remove_overlap
from agent.corpus.output import get_removed_path, open_output
from agent.datasets.arrow import is_dataset
from agent.datasets.formats import expand_patterns
from agent.datasets.reading import read_dataset
from agent.errors import UsageError
from agent.retrieval.benchmark import includes_codes, open_benchmark
from agent.text import build_table, plural
from agent.types import Frozen

# each count with its total
_SHARES = ("contaminated_queries", "queries"), ("contaminated_codes", "codes"), ("matching_pairs", "read")


class _Result(Frozen):
    out: str
    removed_out: str
    read: int
    kept: int
    removed: dict[str, int]
    benchmarks: list[dict[str, Any]]


def run(source: str, against: Sequence[str], out: Path, options: DecontaminateOptions) -> None:
    """Write the kept and the removed pairs, and print the overlap.

    Raises:
        UsageError: an input cannot be read, or an output file must not be written.
        typer.Exit: the command stopped early, and wrote no files.
    """
    paths = expand_patterns([source])
    benchmarks = expand_patterns(against)
    code_files = expand_patterns(options.codes or [])
    if any(path.is_dir() and not is_dataset(path) for path in paths):
        raise UsageError(f"{source}: is a folder. Pass a file of pairs. For a run, pass the output of agent export.")
    without_codes = [path for path in benchmarks if not includes_codes(path)]
    if options.codes and not without_codes:
        raise UsageError("--codes: all benchmarks include their own codes. Remove --codes.")
    check_corpus_output(out, (*paths, *benchmarks, *code_files), force=options.force)
    notes = Console(stderr=True)
    with stoppable(notes, "No output was written."):
        with notes.status(f"reading {one_line(source)}"):
            finder = Decontaminator()
            pairs = read_dataset(paths, options.field_map, codes_alone=True)
        print_input_notes(pairs, notes)
        with Steps(notes) as steps:
            for path in benchmarks:
                own_codes = code_files if path in without_codes else ()
                benchmark = open_benchmark(
                    path, own_codes, own_ids=True, language=options.language, split=options.split
                )
                finder.add(str(path), benchmark, steps)
            with open_output(out) as writer:
                remove_overlap(pairs, finder, writer, steps)
    rows = list[dict[str, Any]]()
    for name, own in finder.overlaps.items():
        counts = {**own, "read": len(pairs)}
        shares = {f"{part}_share": counts[part] / counts[whole] for part, whole in _SHARES}
        rows.append({"benchmark": name, **counts, **shares})
    result = _Result(
        out=str(out),
        removed_out=str(get_removed_path(out)),
        read=len(pairs),
        kept=writer.kept,
        removed={reason: writer.removed[reason] for reason in REASONS},
        benchmarks=rows,
    )
    next_step = "corpus split {} -o DIR" if any("label" in pair.meta for pair in pairs) else "annotate {} --model MODEL"
    if not any(pair.query for pair in pairs):
        next_step = "train {} --pairs docstrings -o MODEL"
    print_result(result, partial(_print, next_step=next_step.format(shlex.quote(str(out)))), as_json=options.as_json)


def _print(result: _Result, next_step: str) -> None:
    console = Console()
    rows = []
    for row in result.benchmarks:
        for part, whole in (*_SHARES, ("short_queries", "queries")):
            share = f"{row[part] / row[whole]:.1%}"
            rows.append((row["benchmark"], part.replace("_", " "), row[part], row[whole], share))
    print_table(console, build_table(("benchmark", "", "count", "of", "share"), rows, left=[""]))
    print_text(console, f"{result.out}: {result.kept:,} of {plural(result.read, 'pair')}")
    removed = ", ".join(f"{reason}: {count:,}" for reason, count in result.removed.items())
    print_text(console, f"{result.removed_out}: {result.read - result.kept:,} removed ({removed})")
    if result.kept:
        print_text(console, f"Next: agent {next_step}")
