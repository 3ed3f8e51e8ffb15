"""Implements `agent corpus describe`, which prints the statistics of a dataset."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from agent.cli.text import Console, one_line, print_figures, print_json, print_text
from agent.corpus.describe import describe
from agent.errors import UsageError
from agent.text import render_markdown
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
    figures = build_dataset_figures(description)
    if markdown:
        print_text(console, render_markdown(figures))
    else:
        print_figures(console, figures)
