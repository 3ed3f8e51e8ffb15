"""Consoles that print text of models and datasets as it is."""

from __future__ import annotations

from typing import IO, Any

from rich.console import Console as RichConsole


class Console(RichConsole):
    """A console to which text is text: `[bold]`, `:x:` and numbers stay as they are. `options` are rich's."""

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, **options: Any) -> None:
        super().__init__(stderr=stderr, file=file, markup=False, emoji=False, highlight=False, **options)
