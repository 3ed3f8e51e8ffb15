"""`agent graph`: pipelines as Mermaid."""

from __future__ import annotations

import typer

from agent.graph import check, load_variant, mermaid, variant_names
from agent.nodes import BUILT_IN


def run(name: str | None, without: tuple[str, ...]) -> None:
    """Print a variant's flowchart, or the list of variants."""
    if name is None:
        for each in variant_names():
            variant = load_variant(each)
            typer.echo(f"{each:<14} {variant.title}" + (f" ({variant.paper})" if variant.paper else ""))
        return
    variant = load_variant(name)
    for node in without:
        variant = variant.without(node)
    check(variant, BUILT_IN)
    typer.echo(mermaid(variant), nl=False)
