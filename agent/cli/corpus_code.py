"""Implements `agent corpus code`, which extracts functions from folders, notebooks and datasets."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.cli.corpus_options import CodeOptions
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.text import Console, one_line, print_result, print_table, print_text
from agent.corpus.code import extract_codes, format_place
from agent.corpus.filters import FILTERS
from agent.corpus.output import get_removed_path, open_output
from agent.corpus.sources import TESTS, SourceFile, list_sources
from agent.errors import ConfigError, UsageError
from agent.text import build_table, plural
from agent.types import Frozen


class _Result(Frozen):
    out: str
    removed_out: str
    files: int
    files_left_out: dict[str, int]
    functions: int
    merged: int
    kept: int
    clusters: int | None
    without_licence: int
    removed: dict[str, int]
    damaged: dict[str, int]
    first_damaged: list[Mapping[str, Any]]


def run(paths: Sequence[str], out: Path, options: CodeOptions) -> None:
    """Extract the codes, and print what was kept and what was removed.

    Raises:
        UsageError: a path or a filter does not exist, the output exists, or nothing was found.
        typer.Exit: the command stopped early. No output was written.
    """
    notes = Console(stderr=True)
    filters = options.filters or []
    for name in filters:
        if name not in FILTERS:
            raise ConfigError(f"--filter: unknown filter {name!r}. Choose from {', '.join(FILTERS)}")
    with stoppable(notes, "No output was written."):
        with notes.status("listing files"):
            excluded = dict.fromkeys(options.exclude or [], "excluded") | ({} if options.with_tests else TESTS)
            sources, left_out = list_sources(paths, excluded)
        if left_out and not sources:
            counts = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.items())
            raise UsageError(f"all files were left out ({counts}). Pass --with-tests, or remove --exclude.")
        files = [source.path for source in sources if isinstance(source, SourceFile)]
        check_corpus_output(out, files, force=options.force)
        with open_output(out) as writer, Steps(notes) as steps:
            summary = extract_codes(
                sources,
                writer,
                steps,
                filters=filters,
                language=options.language,
                clusters=options.clusters,
                jobs=options.jobs or os.cpu_count() or 1,
                mapping=options.field_map,
            )
    removed = writer.removed - summary.damaged
    result = _Result(
        out=str(out),
        removed_out=str(get_removed_path(out)),
        files=len(files),
        files_left_out=left_out,
        functions=writer.kept + summary.merged + removed.total(),
        merged=summary.merged,
        kept=writer.kept,
        clusters=summary.clusters,
        without_licence=summary.without_licence,
        removed=dict(removed.most_common()),
        damaged=dict(summary.damaged.most_common()),
        first_damaged=summary.first_damaged,
    )
    print_result(result, _print, as_json=options.as_json)


def _print(result: _Result) -> None:
    console = Console()
    rows = {
        f"found in {plural(result.files, 'file')}": result.functions,
        **{f"files left out: {reason}": count for reason, count in result.files_left_out.items()},
        **{f"removed: {reason}": count for reason, count in result.removed.items()},
        "merged with an equal code": result.merged,
        "kept": result.kept,
        **({} if result.clusters is None else {"clusters of near duplicates": result.clusters}),
        "without a licence": result.without_licence,
        **{f"not read: {reason}": count for reason, count in result.damaged.items()},
    }
    print_table(console, build_table(("codes", "count"), rows.items()))
    for place in result.first_damaged:
        print_text(console, one_line(f"{format_place(place)}: {place['cause']}", 160))
    if more := sum(result.damaged.values()) - len(result.first_damaged):
        print_text(console, f"and {plural(more, 'more problem')}, listed in {result.removed_out}")
    print_text(console, f"codes: {result.out}\nremoved: {result.removed_out}")
    if result.kept:
        out = Path(result.out)
        files = shlex.join(str(out.with_name(name)) for name in ("queries.jsonl", out.name))
        pairs = shlex.quote(str(out.with_name("pairs.jsonl")))
        print_text(console, f"Next: agent corpus candidates {files} --searcher bm25 --combine rrf -o {pairs}")
