"""Implements `agent corpus describe`, which prints the statistics of a dataset."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from agent.cli.text import Console, add_row, make_table, one_line, print_json, print_text
from agent.corpus.describe import describe
from agent.errors import UsageError
from agent.exports.hugging_face import render_markdown_table
from agent.views.dataset import build_dataset_figures


def run(path: Path, field_map: str | None, *, markdown: bool, as_json: bool) -> None:
    """Print the statistics as text, Markdown or JSON. Raises `UsageError` for both, and the errors of `describe`."""
    if markdown and as_json:
        raise UsageError("--markdown and --json exclude each other. Pass one of them.")
    console = Console()
    with Console(stderr=True).status(f"reading {one_line(str(path))}"):
        description = describe(path, field_map)
    if as_json:
        print_json({"path": str(path), **asdict(description)})
        return
    for figure in build_dataset_figures(description):
        (table,), text = figure["tables"], f"\n{figure['text']}\n" if figure["text"] else ""
        if markdown:
            lines = render_markdown_table(table["columns"], table["rows"])
            print_text(console, "\n".join([f"## {figure['title']}", "", *lines, text]))
            continue
        rendered = make_table(*table["columns"])
        for row in table["rows"]:
            add_row(rendered, *row)
        print_text(console, figure["title"], "bold")
        console.print(rendered)
        print_text(console, text)
