"""Makes text of models and datasets safe to print: no escape reaches the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from agent.wording import hidden

if TYPE_CHECKING:
    from agent.cli.console import Console

_KEPT = frozenset("\n\t")


def plain(text: str, *, limit: int | None = None) -> str:
    """Return text with control, format and surrogate characters as visible escapes, cut to `limit` characters."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(
        character if character in _KEPT or not hidden(character) else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def one_line(text: str, limit: int = 100) -> str:
    """Return text on one line, white space folded."""
    return plain(" ".join(text.split()), limit=limit)


def print_json(document: Any) -> None:
    """Print one JSON document on one line.

    Raises:
        ValueError: it holds NaN or infinity, which JSON does not have.
    """
    typer.echo(json.dumps(document, allow_nan=False))


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text made plain, in lines as long as they are: a path or a command that was wrapped cannot be copied."""
    console.print(plain(text), style=style, soft_wrap=True)
