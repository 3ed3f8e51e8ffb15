"""Implements `agent corpus code`, which extracts functions from folders, notebooks and datasets."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.cli.corpus_options import CodeOptions
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.corpus.code import CodeSummary, extract_codes, format_place
from agent.corpus.filters import FILTERS, NOT_PARSED, TRANSCRIPT
from agent.corpus.output import get_removed_path, open_output
from agent.corpus.sources import SKIPPED, TESTS, Found, SourceFile, find_file_language, find_languages, list_sources
from agent.errors import ConfigError, UsageError
from agent.text import build_table, plural
from agent.types import normalise_language


def run(paths: Sequence[str], out: Path, options: CodeOptions) -> None:
    """Extract the functions, and print what was kept and what was removed.

    Raises:
        UsageError: a path or a filter does not exist, the output exists, or nothing was found.
        typer.Exit: the command stopped early. No output was written.
    """
    notes = Console(stderr=True)
    filters = options.filters or []
    for name in filters:
        if name not in FILTERS:
            raise ConfigError(f"--filter: unknown filter {name!r}. Choose from {', '.join(FILTERS)}")
    language = _check_language(options.language)
    with stoppable(notes, "No output was written."):
        with notes.status("listing files"):
            excluded = SKIPPED | dict.fromkeys(options.exclude or [], "excluded")
            listed, left_out = list_sources(paths, excluded if options.with_tests else excluded | TESTS)
            sources = [source for source in listed if _may_contain(source, language)]
            left_out += Counter({"other language": len(listed) - len(sources)})
        if left_out and not sources:
            counts = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.items())
            raise UsageError(f"all files were left out ({counts}). Pass --with-tests, or fewer options.")
        files = [source.path for source in sources if isinstance(source, SourceFile)]
        check_corpus_output(out, files, force=options.force)
        with open_output(out) as writer, Steps(notes) as steps:
            summary = extract_codes(
                sources,
                writer,
                steps,
                filters=filters,
                language=language,
                clusters=options.clusters,
                jobs=options.jobs or os.cpu_count() or 1,
                mapping=options.field_map,
            )
    if options.as_json:
        paths_out = {"out": str(out), "removed_out": str(get_removed_path(out))}
        print_json({**paths_out, "files": len(files), "files_left_out": left_out, **vars(summary)})
    else:
        _print(out, len(files), left_out, summary)


def _check_language(name: str | None) -> str | None:
    language = name and normalise_language(name)
    if language and language not in find_languages():
        raise ConfigError(f"--language: unknown language {name!r}. Choose from {', '.join(find_languages())}")
    return language


def _may_contain(source: SourceFile | Found, language: str | None) -> bool:
    own = find_file_language(source.path) if isinstance(source, SourceFile) else None
    return own is None or language in (None, own)


def _print(out: Path, files: int, left_out: Mapping[str, int], summary: CodeSummary) -> None:
    console = Console()
    rows = {
        f"found in {plural(files, 'file')}": summary.functions,
        **{f"files left out: {reason}": count for reason, count in left_out.items()},
        **{f"removed: {reason}": count for reason, count in summary.removed.most_common()},
        **{f"removed, may be {name}": count for name, count in summary.recognised.most_common()},
        "merged with an equal function": summary.merged,
        "kept": summary.kept,
        **({} if summary.clusters is None else {"clusters of near duplicates": summary.clusters}),
        "without a licence": summary.without_licence,
        **{f"not read: {reason}": count for reason, count in summary.damaged.most_common()},
    }
    print_table(console, build_table(("functions", "count"), rows.items()))
    for place in summary.first_damaged:
        print_text(console, one_line(f"{format_place(place)}: {place['cause']}", 160))
    removed_out = get_removed_path(out)
    if more := summary.damaged.total() - len(summary.first_damaged):
        print_text(console, f"and {plural(more, 'more problem')}, listed in {removed_out}")
    if summary.removed.keys() & {NOT_PARSED, TRANSCRIPT} and not summary.recognised:
        print_text(console, "To learn the language of code that does not parse, install the extra 'detect'.")
    print_text(console, f"functions: {out}\nremoved: {removed_out}")
    if summary.kept:
        names = shlex.join(str(out.with_name(name)) for name in ("queries.jsonl", out.name))
        pairs = shlex.quote(str(out.with_name("pairs.jsonl")))
        print_text(console, f"Next: agent corpus candidates {names} --searcher bm25 --combine rrf -o {pairs}")
