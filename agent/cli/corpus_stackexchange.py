"""Implements `agent corpus stackexchange`, which builds triples from a Stack Exchange dump."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agent.cli.progress import Steps
from agent.cli.running import check_writable, stoppable
from agent.cli.text import Console, add_row, make_table, print_json, print_text
from agent.corpus.posts import read_posts
from agent.corpus.split import PARTS
from agent.corpus.stackexchange import OTHER_TAGS, TripleTable
from agent.datasets.benchmarks.pairs import TRIPLES_SUMMARY
from agent.datasets.encoding import dumps
from agent.datasets.sources import STDIN
from agent.errors import InputError, UsageError
from agent.exports.hugging_face import choose_licence, render_front_matter, render_markdown_table
from agent.exports.target import check_target, open_target
from agent.text import plural

_ENTRIES = frozenset({*(f"{part}.jsonl" for part in PARTS), TRIPLES_SUMMARY, "README.md"})


def run(path: Path, out: Path, *, languages: str, site: str, force: bool, as_json: bool) -> None:
    """Write the triples of a dump to a folder, and print their number by language and part.

    Raises:
        UsageError: the dump cannot be read or has no triples, an option is invalid, or the folder must not be written.
        typer.Exit: the command stopped early, and wrote nothing.
    """
    notes = Console(stderr=True)
    names = list(dict.fromkeys(name.strip().lower() for name in languages.split(",") if name.strip()))
    if not names:
        raise UsageError("--languages: pass tags of languages, such as c,c++,python.")
    if not re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", site):
        raise UsageError(f"--site: {site!r} is not a host name. Pass it without https://, such as superuser.com.")
    if path != STDIN and path.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{path}: is in the output folder {out}. Choose another folder (-o).")
    check_writable(out.parent, None)
    if not os.access(out.parent, os.W_OK):
        raise UsageError(f"-o: {out.parent} is not writable. Choose another folder.")
    check_target(out, _ENTRIES, force=force)
    with (
        stoppable(notes, "No output was written."),
        Steps(notes) as steps,
        open_target(out, _ENTRIES, force=force) as draft,
    ):
        table = TripleTable(names, site)
        table.add_posts(read_posts(path, steps, table.count_dropped))
        summary = vars(table.write(draft, steps))
        if not any(map(sum, map(dict.values, summary["triples"].values()))):
            reasons = "; ".join(f"{reason}: {count:,}" for reason, count in sorted(summary["removed"].items()))
            advice = f". Check --languages ({', '.join(names)})" if OTHER_TAGS in summary["removed"] else ""
            cause = f"none of {plural(summary['questions'], 'question')} can be used"
            raise InputError(f"{cause} ({reasons}){advice}" if reasons else cause, path=path)
        document = {"source": str(path), "site": site, "version": version("test-driven-annotator"), **summary}
        (draft / TRIPLES_SUMMARY).write_bytes(dumps(document, indent=True) + b"\n")
        (draft / "README.md").write_text(_render_card(document, draft), "utf-8")
    print_json({"out": str(out), **document}) if as_json else _print(out, document)


def _list_sizes(document: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
    """Return a row for each language: its name, its number of triples, and the sizes of its parts."""
    return [(name, sum(parts.values()), *parts.values()) for name, parts in document["triples"].items()]


def _render_card(document: Mapping[str, Any], folder: Path) -> str:
    used = [part for part in PARTS if any(sizes[part] for sizes in document["triples"].values())]
    files = {part: f"{part}.jsonl" for part in used}  # `load_dataset` cannot read empty files
    fields = {"license": choose_licence(document["licences"])}
    lines = [
        f"{render_front_matter(fields, folder, {'default': files})}# Questions and accepted answers\n",
        "Each row is a question with its description (`query`) and its accepted answer (`code`) from a dump of Stack",
        "Exchange. `author`, `url` and `licence` belong to the question, and `answer_author`, `answer_url` and",
        "`answer_licence` to the answer. If you share texts, name their authors, and keep their links and licences.\n",
        *render_markdown_table(("language", "triples", *PARTS), _list_sizes(document)),
        "",
        *render_markdown_table(("licence", "texts"), list(document["licences"].items())),
    ]
    return "\n".join(lines) + "\n"


def _print(out: Path, document: Mapping[str, Any]) -> None:
    console, rows = Console(), _list_sizes(document)
    table = make_table("language", "triples", *PARTS)
    for language, *counts in rows:
        add_row(table, language, *(f"{count:,}" for count in counts))
    console.print(table)
    lines = [f"kept: {sum(row[1] for row in rows):,} of {plural(document['questions'], 'question')}"]
    folder, language = map(shlex.quote, (str(out), max(rows, key=lambda row: row[1])[0]))
    lines += [f"removed: {reason}: {count:,}" for reason, count in sorted(document["removed"].items())]
    if document["dropped_characters"]:
        lines.append(f"dropped: {plural(document['dropped_characters'], 'character')} that XML does not allow")
    lines += [
        f"kept, with tags of several languages: {plural(document['several_languages'], 'question')}",
        f"answers: {document['answers']:,}; their question is not in the dump: {document['orphans']:,}",
        f"Next: agent retrieval run {folder} --split test --language {language} --searcher bm25",
    ]
    print_text(console, "\n".join(lines))
