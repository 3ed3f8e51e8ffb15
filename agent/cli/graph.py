"""`agent graph`: prints variants as Mermaid flowcharts."""

from __future__ import annotations

import typer

from agent.cli.text import print_json
from agent.pipeline.graph import check_variant, list_variants, load_variant, render_mermaid
from agent.pipeline.nodes.registry import BUILT_IN

_LISTED_FIELDS = {"name", "title", "paper"}


def run(name: str | None, without: tuple[str, ...], *, as_json: bool) -> None:
    """Print a variant's flowchart, or the list of variants.

    Raises:
        UsageError: the variant does not exist or is invalid.
    """
    if name is None:
        variants = [load_variant(name) for name in list_variants()]
        if as_json:
            print_json([variant.model_dump(include=_LISTED_FIELDS) for variant in variants])
            return
        for variant in variants:
            typer.echo(f"{variant.name:<14} {variant.title}" + (f" ({variant.paper})" if variant.paper else ""))
        return
    variant = load_variant(name)
    for node in without:
        variant = variant.without(node)
    check_variant(variant, BUILT_IN)
    if as_json:
        print_json({**variant.model_dump(), "mermaid": render_mermaid(variant)})
    else:
        typer.echo(render_mermaid(variant), nl=False)
