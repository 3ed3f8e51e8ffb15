"""Implements `agent corpus stackexchange`, which builds triples from a Stack Exchange dump."""

from __future__ import annotations

import os
import re
import shlex
from importlib.metadata import version
from pathlib import Path

from agent.cli.corpus_options import StackExchangeOptions
from agent.cli.progress import Steps
from agent.cli.running import check_writable, stoppable
from agent.cli.text import Console, print_json, print_table, print_text
from agent.corpus.split import PARTS
from agent.corpus.stackexchange import OTHER_TAGS, DumpSummary, TripleTable, read_posts
from agent.datasets.benchmarks.pairs import TRIPLES_SUMMARY
from agent.datasets.encoding import dumps
from agent.datasets.sources import STDIN
from agent.errors import InputError, UsageError
from agent.exports.hugging_face import choose_licence, render_front_matter
from agent.exports.target import check_target, open_target
from agent.text import Table, build_table, plural, render_markdown_table

_ENTRIES = frozenset({*(f"{part}.jsonl" for part in PARTS), TRIPLES_SUMMARY, "README.md"})


def run(path: Path, out: Path, options: StackExchangeOptions) -> None:
    """Write the triples of a dump to a folder, and print their number by language and part.

    Raises:
        UsageError: the dump cannot be read or has no triples, an option is invalid, or the folder must not be written.
        typer.Exit: the command stopped early, and wrote nothing.
    """
    notes = Console(stderr=True)
    names = list(dict.fromkeys(name.strip().lower() for name in options.languages.split(",") if name.strip()))
    if not names:
        raise UsageError("--languages: pass tags of languages, such as c,c++,python.")
    if not re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", options.site):
        remedy = "Pass it without https://, such as superuser.com."
        raise UsageError(f"--site: {options.site!r} is not a host name. {remedy}")
    if path != STDIN and path.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{path}: is in the output folder {out}. Choose another folder (-o).")
    check_writable(out.parent, None)
    if not os.access(out.parent, os.W_OK):
        raise UsageError(f"-o: {out.parent} is not writable. Choose another folder.")
    check_target(out, _ENTRIES, force=options.force)
    with (
        stoppable(notes, "No output was written."),
        Steps(notes) as steps,
        open_target(out, _ENTRIES, force=options.force) as draft,
    ):
        table = TripleTable(names, options.site)
        table.add_posts(read_posts(path, steps, table.count_dropped))
        summary = table.write(draft, steps)
        if not any(summary.count_triples().values()):
            reasons = "; ".join(f"{reason}: {count:,}" for reason, count in sorted(summary.removed.items()))
            advice = f". Check --languages ({', '.join(names)})" if OTHER_TAGS in summary.removed else ""
            cause = f"none of {plural(summary.questions, 'question')} can be used"
            raise InputError(f"{cause} ({reasons}){advice}" if reasons else cause, path=path)
        origin = {"source": str(path), "site": options.site, "version": version("test-driven-annotator")}
        document = {**origin, **vars(summary)}
        (draft / TRIPLES_SUMMARY).write_bytes(dumps(document, indent=True) + b"\n")
        (draft / "README.md").write_text(_render_card(summary, draft), "utf-8")
    if options.as_json:
        print_json({"out": str(out), **document})
    else:
        _print(out, summary)


def _tabulate_sizes(summary: DumpSummary) -> Table:
    rows = ((name, sum(parts.values()), *parts.values()) for name, parts in summary.triples.items())
    return build_table(("language", "triples", *PARTS), rows)


def _render_card(summary: DumpSummary, folder: Path) -> str:
    used = [part for part in PARTS if any(sizes[part] for sizes in summary.triples.values())]
    files = {part: f"{part}.jsonl" for part in used}  # `load_dataset` cannot read empty files
    fields = {"license": choose_licence(summary.licences)}
    lines = [
        f"{render_front_matter(fields, folder, {'default': files})}# Questions and accepted answers\n",
        "Each row is a question with its description (`query`) and its accepted answer (`code`) from a dump of Stack",
        "Exchange. `author`, `url` and `licence` belong to the question, and `answer_author`, `answer_url` and",
        "`answer_licence` to the answer. If you share texts, name their authors, and keep their links and licences.\n",
        render_markdown_table(_tabulate_sizes(summary)),
        "",
        render_markdown_table(build_table(("licence", "texts"), summary.licences.items())),
    ]
    return "\n".join(lines) + "\n"


def _print(out: Path, summary: DumpSummary) -> None:
    console = Console()
    sizes = summary.count_triples()
    print_table(console, _tabulate_sizes(summary))
    lines = [f"kept: {sum(sizes.values()):,} of {plural(summary.questions, 'question')}"]
    folder, language = map(shlex.quote, (str(out), max(sizes, key=sizes.__getitem__)))
    lines += [f"removed: {reason}: {count:,}" for reason, count in sorted(summary.removed.items())]
    if summary.dropped_characters:
        lines.append(f"dropped: {plural(summary.dropped_characters, 'character')} that XML does not allow")
    lines += [
        f"kept, with tags of several languages: {plural(summary.several_languages, 'question')}",
        f"answers: {summary.answers:,}; their question is not in the dump: {summary.orphans:,}",
        f"Next: agent retrieval run {folder} --split test --language {language} --searcher bm25",
    ]
    print_text(console, "\n".join(lines))
