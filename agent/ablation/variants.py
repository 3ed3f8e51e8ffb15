"""Which variants are compared, and in which order."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.errors import ConfigError
from agent.graph import Variant, load_variant, variant_names
from agent.store.files import ABLATION, ABLATION_CSV, ABLATION_MARKDOWN

REFERENCE = "full"
"""The variant that all others are compared with where none is named (paper, Table VI)."""

_WITHOUT = "-without-"
_TABLES = frozenset({ABLATION, ABLATION_CSV, ABLATION_MARKDOWN})


def choose_variants(names: Sequence[str] = ()) -> list[Variant]:
    """Return the variants of these names, in their order; without names all that ship, the paper's first.

    A name is that of a variant, a YAML file, or `VARIANT-without-NODE`, also with several nodes.

    Raises:
        ConfigError: a name is unknown, is a table's, or two variants have the same.
        GraphError: a description is malformed, or a node cannot be left out.
    """
    if not names:
        return sorted(map(load_variant, variant_names()), key=lambda each: (each.paper is None, len(each.nodes)))
    chosen: dict[str, Variant] = {}
    for name in names:
        variant = _variant(name.strip())
        if _place(variant).removesuffix(".tmp") in _TABLES:
            raise ConfigError(f"the folder of a variant named {variant.name!r} would be where a table goes: rename it")
        if _place(variant) in map(_place, chosen.values()):
            raise ConfigError(f"two variants are named {variant.name!r}; each has a folder of its own")
        chosen[variant.name] = variant
    return list(chosen.values())


def choose_reference(variants: Sequence[Variant], name: str | None = None) -> str | None:
    """Return the name of the variant that the others are tested against; None when `full` would be, and is not there.

    Raises:
        ConfigError: the one that was named is not among the variants.
    """
    names = [variant.name for variant in variants]
    if name is None:
        return REFERENCE if REFERENCE in names else None
    if name not in names:
        raise ConfigError(
            f"--against {name}: is not among the variants that are compared ({', '.join(names)}); "
            "name one of these, or add it to --variants"
        )
    return name


def folder_name(variant: Variant) -> str:
    """Return the name of the variant's folder: its own name without what file names cannot hold."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", variant.name).strip("._") or "variant"


def _place(variant: Variant) -> str:
    """Return what tells folders apart on every file system."""
    return folder_name(variant).casefold()


def _variant(name: str) -> Variant:
    if not name:
        raise ConfigError("--variants: a name is empty; separate names by single commas")
    base, *nodes = [name] if name.endswith((".yaml", ".yml")) else name.split(_WITHOUT)
    variant = load_variant(base)
    for node in nodes:
        variant = variant.without(node)
    return variant
