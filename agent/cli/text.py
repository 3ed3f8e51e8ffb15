"""Prints text from models and datasets safely, without control characters or markup."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import IO, Any, Literal

import typer
from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.table import Table as RichTable
from rich.text import Text

from agent.text import Figure, Table
from agent.text import escape_hidden as escape_hidden
from agent.text import one_line as one_line

# spaces between columns
_GAP = 2
_HEADING_WIDTH = 12
_MAX_CELL_LENGTH = 1000


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


def make_rows_table(rows: Mapping[str, str]) -> RichTable:
    """Return a table with a bold name and a text in each row."""
    table = RichTable.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in rows.items():
        table.add_row(name, Text(text))
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table, with one line for each row. If the terminal is too narrow, split the columns into several tables.

    Numbers are never wrapped or truncated.
    """
    rows = [[one_line(cell, _MAX_CELL_LENGTH) for cell in row] for row in (table["columns"], *table["rows"])]
    if sum(widths := _measure_columns(table, rows, console)) > console.width + _GAP:
        rows[0] = ["\n".join(wrap(text, _HEADING_WIDTH, break_long_words=False)) for text in rows[0]]
        widths = _measure_columns(table, rows, console)
    parts = [[0]]
    for number in range(1, len(widths)):
        if len(parts[-1]) > 1 and sum(widths[n] for n in (*parts[-1], number)) > console.width + _GAP:
            parts.append([0])
        parts[-1].append(number)
    for part in parts:
        grid = RichTable(box=None, padding=(0, _GAP // 2), pad_edge=False)
        for number in part:
            numeric = number in table["numeric"]
            justify: Literal["left", "right"] = "right" if numeric else "left"
            grid.add_column(Text(rows[0][number]), justify=justify, no_wrap=numeric, overflow="fold")
        for row in rows[1:]:
            grid.add_row(*(Text(row[number]) for number in part))
        console.print(grid)


def print_figures(console: Console, figures: Iterable[Figure]) -> None:
    """Print the titles, tables and texts of figures. Skip figures that consist of a chart."""
    for figure in (figure for figure in figures if figure["tables"] or figure["text"]):
        print_text(console, figure["title"], "bold")
        for table in figure["tables"]:
            print_table(console, table)
            console.print()
        if figure["text"]:
            print_text(console, f"{figure['text']}\n")


def _measure_columns(table: Table, rows: Sequence[Sequence[str]], console: Console) -> list[int]:
    """Return the width that each column needs, with a gap. Columns of text can be narrower than their texts."""
    widths = [max(cell_len(line) for text in column for line in text.split("\n")) for column in zip(*rows, strict=True)]
    return [
        _GAP + (width if number in table["numeric"] else min(width, console.width // 4))
        for number, width in enumerate(widths)
    ]
