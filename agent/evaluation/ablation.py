"""Runs the chosen variants one after another over one reply cache, sandbox backend, memo of executions and budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agent.annotator import Annotator
from agent.config import Config
from agent.errors import ConfigError
from agent.events import Event, Note
from agent.graph import Pipeline, Variant, build, list_variants, load_variant
from agent.llm.budget import Budget
from agent.llm.models import Models
from agent.sandbox.base import SandboxBackend
from agent.sandbox.select import choose
from agent.sandbox.session import SharedExecutions
from agent.store import files
from agent.store.cache import SqliteReplyCache
from agent.store.files import ABLATION, ABLATION_CSV, ABLATION_MARKDOWN
from agent.store.run_view import load_run
from agent.types import Pair, add_known

# the variant that all others are compared with where none is named (paper, Table VI)
REFERENCE = "full"

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
        return sorted(map(load_variant, list_variants()), key=lambda each: (each.paper is None, len(each.nodes)))
    # by what distinguishes folders on every file system
    chosen: dict[str, Variant] = {}
    for name in names:
        variant = _variant(name.strip())
        folder = folder_name(variant).casefold()
        if folder.removesuffix(".tmp") in _TABLES:
            raise ConfigError(f"the folder of a variant named {variant.name!r} would be where a table goes: rename it")
        if folder in chosen:
            raise ConfigError(f"two variants are named {variant.name!r}; each has a folder of its own")
        chosen[folder] = variant
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


def _variant(name: str) -> Variant:
    if not name:
        raise ConfigError("--variants: a name is empty; separate names by single commas")
    base, *nodes = [name] if name.endswith((".yaml", ".yml")) else name.split(_WITHOUT)
    variant = load_variant(base)
    for node in nodes:
        variant = variant.without(node)
    return variant


@dataclass(frozen=True)
class VariantRun:
    """A variant and the folder of its run."""

    variant: Variant
    folder: Path
    executes: bool


@dataclass
class AblationRuns:
    """The runs of all variants on the same pairs, each an ordinary run folder that goes on where it stopped.

    One variant after another: what one asked is in the cache when the next asks it, the limits on calls and sandboxes
    hold as in one run, and a run that is stopped has finished variants rather than all of them begun. Executions are
    shared in memory, so that a run that goes on runs programs of its unfinished variants again.

    Raises:
        ConfigError: a variant cannot be built, or there is no model for one of its roles.
    """

    variants: Sequence[Variant]
    out: Path
    models: Models
    config: Config
    cache: Path
    on_event: Callable[[Event], None]
    prompts: Path | None = None
    unsupported: Literal["fail", "judge", "skip"] = "fail"
    retry_errors: bool = False
    runs: tuple[VariantRun, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.runs = tuple(
            VariantRun(variant, self.out / folder_name(variant), _checked(variant, self.models).uses_sandbox)
            for variant in self.variants
        )

    async def run(self, pairs: Sequence[Pair], limit: int | None = None) -> None:
        """Annotate the pairs (only the first `limit` of them) with each variant, as far as that is not done.

        Raises:
            UsageError: no sandbox works here, a folder holds another run, or a language is unsupported.
            RunStopped: the run cannot go on; what is finished is kept.
        """
        async with AsyncExitStack() as stack:
            cache = stack.enter_context(SqliteReplyCache(self.cache))
            budget = self._budget()
            async with budget.enforce_deadline():
                backend = await self._backend(stack)
            executions = SharedExecutions()
            for run in self.runs:
                annotator = Annotator(
                    model=self.models,
                    sandbox=backend if run.executes else None,
                    variant=run.variant,
                    prompts=self.prompts,
                    unsupported=self.unsupported,
                    run_dir=run.folder,
                    cache=cache,
                    retry_errors=self.retry_errors,
                    config=self.config,
                    executions=executions,
                    budget=budget,
                    on_event=self.on_event,
                )
                async with annotator:
                    async for _annotation in annotator.annotate(pairs, limit=limit):
                        pass

    def _budget(self) -> Budget:
        """Return the limits of all variants together: what their folders spent before counts."""
        cost, tokens = list[float | None](), list[int | None]()
        for run in self.runs:
            if (run.folder / files.MANIFEST).exists():
                with load_run(run.folder) as view:
                    cost.append(view.spent_usd(self.models.price))
                    tokens.append(view.spent_tokens())
        before = None if None in tokens else sum(filter(None, tokens))
        return Budget.of(self.config.runner).with_spending(add_known(cost), before)

    async def _backend(self, stack: AsyncExitStack) -> SandboxBackend | None:
        if not any(run.executes for run in self.runs):
            return None
        backend = await choose(self.config.sandbox, lambda line: self.on_event(Note(line)))
        stack.push_async_callback(backend.close)
        return backend


def _checked(variant: Variant, models: Models) -> Pipeline:
    pipeline = build(variant)
    for role in pipeline.roles:
        models.for_role(role)
    return pipeline
