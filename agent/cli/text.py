"""Prints text from models and datasets safely, without control characters or markup."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import IO, Any

import typer
from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from agent.text import escape_hidden as escape_hidden
from agent.text import one_line as one_line


class Console(RichConsole):
    """A rich console that does not interpret markup or emoji codes, and does not highlight numbers.

    `piped_width` is the width if standard output is not a terminal. `options` are passed to rich.
    """

    def __init__(
        self, *, stderr: bool = False, file: IO[str] | None = None, piped_width: int | None = None, **options: Any
    ) -> None:
        if piped_width is not None and not sys.stdout.isatty():
            options["width"] = piped_width
        super().__init__(stderr=stderr, file=file, markup=False, emoji=False, highlight=False, **options)


def print_json(document: Any) -> None:
    """Print one JSON document on one line.

    Raises:
        ValueError: the document contains NaN or infinity, which JSON does not support.
    """
    typer.echo(json.dumps(document, allow_nan=False))


def print_text(console: Console, text: str, style: str | None = None) -> None:
    """Print escaped text without wrapping, so that paths and commands can be copied."""
    console.print(escape_hidden(text), style=style, soft_wrap=True)


def make_rows_table(rows: Mapping[str, str]) -> Table:
    """Return a table with a bold name and a text in each row."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in rows.items():
        table.add_row(name, Text(text))
    return table


def make_table(*headings: str) -> Table:
    """Return a table with a left-aligned first column. All other columns are right-aligned."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="")
    for number, heading in enumerate(headings):
        table.add_column(Text(one_line(heading)), justify="right" if number else "left", overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of cells, each on one line."""
    table.add_row(*(Text(one_line(cell)) for cell in cells))
