"""Implements `agent corpus code`, which extracts functions from folders, notebooks and datasets."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.text import Console, add_row, make_table, one_line, print_json, print_text
from agent.corpus.code import extract_codes, format_place
from agent.corpus.filters import FILTERS
from agent.corpus.output import get_removed_path, open_output
from agent.corpus.sources import TESTS, SourceFile, list_sources
from agent.errors import ConfigError, UsageError
from agent.text import plural


def run(
    paths: Sequence[str],
    out: Path,
    field_map: str | None,
    filters: Sequence[str],
    *,
    language: str | None,
    exclude: Sequence[str],
    with_tests: bool,
    clusters: bool,
    jobs: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Extract the codes, and print what was kept and what was removed.

    Raises:
        UsageError: a path or a filter does not exist, the output exists, or nothing was found.
        typer.Exit: the command stopped early. No output was written.
    """
    notes = Console(stderr=True)
    for name in filters:
        if name not in FILTERS:
            raise ConfigError(f"--filter: unknown filter {name!r}. Choose from {', '.join(FILTERS)}")
    with stoppable(notes, "No output was written."):
        with notes.status("listing files"):
            excluded = dict.fromkeys(exclude, "excluded") | ({} if with_tests else TESTS)
            sources, left_out = list_sources(paths, excluded)
        if left_out and not sources:
            counts = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.items())
            raise UsageError(f"all files were left out ({counts}). Pass --with-tests, or remove --exclude.")
        files = [source.path for source in sources if isinstance(source, SourceFile)]
        check_corpus_output(out, files, force=force)
        with open_output(out) as writer, Steps(notes) as steps:
            cores = jobs or os.cpu_count() or 1
            summary = extract_codes(
                sources,
                writer,
                steps,
                filters=filters,
                language=language,
                clusters=clusters,
                jobs=cores,
                mapping=field_map,
            )
    removed = writer.removed - summary.damaged
    numbers: dict[str, Any] = {
        "files": len(files),
        "files_left_out": dict(left_out),
        "functions": writer.kept + summary.merged + removed.total(),
        "merged": summary.merged,
        "kept": writer.kept,
        "clusters": summary.clusters,
        "without_licence": summary.without_licence,
        "removed": dict(removed.most_common()),
        "damaged": dict(summary.damaged.most_common()),
    }
    if as_json:
        places = {"out": str(out), "removed_out": str(get_removed_path(out))}
        print_json({**places, **numbers, "first_damaged": summary.first_damaged})
    else:
        _print(out, numbers, summary.first_damaged)


def _print(out: Path, numbers: dict[str, Any], damaged: Sequence[Any]) -> None:
    console = Console()
    table = make_table("codes", "count")
    add_row(table, f"found in {plural(numbers['files'], 'file')}", f"{numbers['functions']:,}")
    for reason, count in numbers["files_left_out"].items():
        add_row(table, f"files left out: {reason}", f"{count:,}")
    for reason, count in numbers["removed"].items():
        add_row(table, f"removed: {reason}", f"{count:,}")
    add_row(table, "merged with an equal code", f"{numbers['merged']:,}")
    add_row(table, "kept", f"{numbers['kept']:,}")
    if numbers["clusters"] is not None:
        add_row(table, "clusters of near duplicates", f"{numbers['clusters']:,}")
    add_row(table, "without a licence", f"{numbers['without_licence']:,}")
    for reason, count in numbers["damaged"].items():
        add_row(table, f"not read: {reason}", f"{count:,}")
    console.print(table)
    for place in damaged:
        print_text(console, one_line(f"{format_place(place)}: {place['cause']}", 160))
    if more := sum(numbers["damaged"].values()) - len(damaged):
        print_text(console, f"and {plural(more, 'more problem')}, listed in {get_removed_path(out)}")
    print_text(console, f"codes: {out}\nremoved: {get_removed_path(out)}")
    if numbers["kept"]:
        files = shlex.join(str(out.with_name(name)) for name in ("queries.jsonl", out.name))
        pairs = shlex.quote(str(out.with_name("pairs.jsonl")))
        print_text(console, f"Next: agent corpus candidates {files} --searcher bm25 --combine rrf -o {pairs}")
