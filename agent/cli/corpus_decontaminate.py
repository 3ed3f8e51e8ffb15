"""Implements `agent corpus decontaminate`, which removes pairs that overlap with benchmarks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.cli.corpus_options import DecontaminateOptions
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, print_input_notes, stoppable
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.corpus.decontaminate import REASONS, Decontaminator, remove_overlap
from agent.corpus.output import CorpusWriter, get_removed_path, open_output
from agent.datasets.arrow import is_dataset
from agent.datasets.formats import expand_patterns
from agent.datasets.reading import read_dataset
from agent.errors import UsageError
from agent.retrieval.benchmark import includes_codes, open_benchmark
from agent.text import build_table, plural

# each count with its total
_SHARES = ("contaminated_queries", "queries"), ("contaminated_codes", "codes"), ("matching_pairs", "read")


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
        raise UsageError("--codes: all benchmarks include their own snippets. Remove --codes.")
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
                    path,
                    own_codes,
                    own_ids=True,
                    language=options.language,
                    split=options.split,
                    on_unknown_id="skip",
                )
                finder.add(str(path), benchmark, steps)
            with open_output(out) as writer:
                remove_overlap(pairs, finder, writer, steps)
    rows = list[dict[str, Any]]()
    for name, own in finder.overlaps.items():
        counts = {**own, "read": len(pairs)}
        shares = {f"{part}_share": counts[part] / counts[whole] for part, whole in _SHARES}
        rows.append({"benchmark": name, **counts, **shares})
    if options.as_json:
        files = {"out": str(out), "removed_out": str(get_removed_path(out))}
        removed = {reason: writer.removed[reason] for reason in REASONS}
        print_json({**files, "read": len(pairs), "kept": writer.kept, "removed": removed, "benchmarks": rows})
        return
    _print(out, writer, rows)
    next_step = "corpus split {} -o DIR" if any("label" in pair.meta for pair in pairs) else "annotate {} --model MODEL"
    if not any(pair.query for pair in pairs):
        next_step = "train {} --pairs docstrings -o MODEL"
    if writer.kept:
        print_text(Console(), f"Next: agent {next_step.format(shlex.quote(str(out)))}")


def _print(out: Path, writer: CorpusWriter, benchmarks: Sequence[Mapping[str, Any]]) -> None:
    console = Console()
    rows = []
    for row in benchmarks:
        for part, whole in (*_SHARES, ("short_queries", "queries")):
            share = f"{row[part] / row[whole]:.1%}"
            name = part.replace("_codes", "_snippets").replace("_", " ")
            rows.append((row["benchmark"], name, row[part], row[whole], share))
    print_table(console, build_table(("benchmark", "", "count", "of", "share"), rows, left=[""]))
    total = writer.removed.total()
    print_text(console, f"{out}: {writer.kept:,} of {plural(writer.kept + total, 'pair')}")
    removed = ", ".join(f"{reason}: {writer.removed[reason]:,}" for reason in REASONS)
    print_text(console, f"{get_removed_path(out)}: {total:,} removed ({removed})")
