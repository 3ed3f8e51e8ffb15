"""Says which options make no difference, since nothing in the variants that run reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.cli.console import Console
from agent.cli.run_options import RunOptions
from agent.cli.text import say
from agent.graph import Variant, load_variant, readers, roles
from agent.llm.models import Models, unreached


def tell_without_effect(console: Console, options: RunOptions, variants: Sequence[Variant], models: Models) -> None:
    """Say once of each option without effect why it has none; options with their default value are not spoken of."""
    asked = [*variants, load_variant("single_llm")] if options.unsupported == "judge" else variants
    for option, why in (*_settings(options, variants), *_models(options, asked, models)):
        say(console, f"note: {option} has no effect: {why}")


def _settings(options: RunOptions, variants: Sequence[Variant]) -> Iterator[tuple[str, str]]:
    for setting, flag in options.setting_flags().items():
        found = readers(setting)
        if found is not None and not any(readers(setting, variant) for variant in variants):
            yield flag, f"of the nodes that it is for ({', '.join(found)}) none is in {_named(variants)}"


def _models(options: RunOptions, variants: Sequence[Variant], models: Models) -> Iterator[tuple[str, str]]:
    for role in models.roles:
        if not any(role in roles(variant) for variant in variants):
            yield f"--model {role}=…", f"nothing asks in this role in {_named(variants)}"
    if unreached(models.all()):
        for flag in options.model_flags():
            yield flag, f"{models.label()} is no language model, and takes no such option"


def _named(variants: Sequence[Variant]) -> str:
    names = ", ".join(variant.name for variant in variants)
    return f"{'variant' if len(variants) == 1 else 'variants'} {names}"
