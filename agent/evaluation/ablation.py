"""Runs variants sequentially. The variants share a reply cache, a sandbox backend, execution results and a budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agent.annotator import Annotator
from agent.config import Config, RunnerConfig, build_config
from agent.errors import ConfigError
from agent.events import Event, Note
from agent.llm.budget import Budget
from agent.llm.models import Models
from agent.pipeline.graph import Variant, build, list_variants, load_variant, writes_programs
from agent.runs.store import files
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.files import ABLATION, ABLATION_CSV, ABLATION_MARKDOWN
from agent.runs.store.run_view import load_run
from agent.sandbox.select import choose
from agent.sandbox.session import SharedExecutions
from agent.types import Pair, sum_or_none

# default reference variant for the paired tests (CoSQA+ paper, Table VI)
REFERENCE = "full"

_WITHOUT = "-without-"
_TABLES = frozenset({ABLATION, ABLATION_CSV, ABLATION_MARKDOWN})


def choose_variants(names: Sequence[str] = (), context: str = "none") -> list[Variant]:
    """Load variants by name, in the given order. `context` applies to the variants that write tests.

    If there are no names, load all built-in variants with the criterion `exact`, starting with the variants from the
    CoSQA+ paper. A name is the name of a built-in variant, the path of a YAML file, or `VARIANT-without-NODE`. The
    `-without-NODE` part can be repeated.

    Raises:
        ConfigError: a name is unknown, empty, reserved for an output file, or used twice.
        GraphError: a graph is malformed, or a node cannot be left out.
    """
    if not names:
        every = (_load_variant(name, context) for name in list_variants())
        comparable = (variant for variant in every if variant.criterion == "exact")
        return sorted(comparable, key=lambda variant: (variant.paper is None, len(variant.nodes)))
    # keyed by case-folded folder name, because file systems may be case-insensitive
    chosen: dict[str, Variant] = {}
    for name in names:
        variant = _load_variant(name.strip(), context)
        folder = make_folder_name(variant).casefold()
        if folder.removesuffix(".tmp") in _TABLES:
            raise ConfigError(f"variant name {variant.name!r} is reserved for an output file. Rename the variant.")
        if folder in chosen:
            raise ConfigError(
                f"variant {variant.name!r} would use the same folder as another variant. Rename one of them."
            )
        chosen[folder] = variant
    return list(chosen.values())


def choose_reference(variants: Sequence[Variant], name: str | None = None) -> str | None:
    """Return the name of the reference variant.

    The default is `full`, or None if `full` is not among the variants.

    Raises:
        ConfigError: `name` is not among the variants.
    """
    names = [variant.name for variant in variants]
    if name is None:
        return REFERENCE if REFERENCE in names else None
    if name not in names:
        raise ConfigError(
            f"--against {name}: not among the variants ({', '.join(names)}). Choose one of them, or add {name} "
            "to --variants."
        )
    return name


def choose_criterion(variants: Sequence[Variant], criterion: str | None) -> str:
    """Return the criterion of all variants: `criterion`, or their own if it is None.

    Raises:
        ConfigError: `criterion` is None, and the variants use different criteria.
    """
    criteria = {variant.criterion: variant.name for variant in variants}
    if criterion is None and len(criteria) > 1:
        cause = " and ".join(f"{name} uses {key}" for key, name in criteria.items())
        raise ConfigError(
            f"--variants: labels by different criteria cannot be compared, but {cause}. Pass --criterion."
        )
    return criterion or variants[0].criterion


def make_folder_name(variant: Variant) -> str:
    """Turn the name of a variant into a folder name by replacing unsafe characters."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", variant.name).strip("._") or "variant"


def _load_variant(name: str, context: str) -> Variant:
    if not name:
        raise ConfigError("--variants contains an empty name. Separate names with single commas.")
    base, *nodes = [name] if name.endswith((".yaml", ".yml")) else name.split(_WITHOUT)
    variant = load_variant(base)
    if context == "module" and writes_programs(variant):
        variant = variant.with_context()
    for node in nodes:
        variant = variant.without(node)
    return variant


@dataclass(frozen=True)
class VariantRun:
    """A variant, its run folder, and whether it uses a sandbox."""

    variant: Variant
    folder: Path
    executes: bool


@dataclass
class AblationRuns:
    """Runs all variants on the same pairs. Each variant has an ordinary run folder.

    Variants run sequentially, and later variants reuse cached replies from earlier variants. Because only one
    variant runs at a time, the limits on calls and sandboxes apply in the same way as in a single run.

    If an ablation is stopped, all variants before the current one are complete, and the ablation can be resumed.
    Execution results are shared only in memory, so a resumed ablation executes the programs of unfinished variants
    again.

    Raises:
        ConfigError: a variant cannot be built, or one of its roles has no model.
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
        runs = []
        for variant in self.variants:
            pipeline = build(variant)
            for role in pipeline.roles:
                self.models.for_role(role)
            runs.append(VariantRun(variant, self.out / make_folder_name(variant), pipeline.uses_sandbox))
        self.runs = tuple(runs)

    async def run(self, pairs: Sequence[Pair], limit: int | None = None) -> None:
        """Annotate all pairs, or the first `limit` pairs, with each variant. Finished annotations are skipped.

        Raises:
            UsageError: no sandbox works on this machine, a folder contains another run, or a language is unsupported.
            RunStopped: the current run ended early. Finished annotations are saved.
        """
        async with AsyncExitStack() as stack:
            cache = stack.enter_context(SqliteReplyCache(self.cache))
            budget, backend = make_budget([run.folder for run in self.runs], self.models, self.config.runner), None
            async with budget.enforce_deadline():
                if any(run.executes for run in self.runs):
                    backend = await choose(self.config.sandbox, lambda line: self.on_event(Note(line)))
                    stack.push_async_callback(backend.close)
            executions = SharedExecutions()
            # `choose_variants` has applied this setting to the variants that write tests
            config = build_config({"pipeline.context": "none"}, self.config)
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
                    config=config,
                    executions=executions,
                    budget=budget,
                    on_event=self.on_event,
                )
                async with annotator:
                    async for _annotation in annotator.annotate(pairs, limit=limit):
                        pass


def make_budget(folders: Iterable[Path], models: Models, config: RunnerConfig) -> Budget:
    """Return the budget that several runs share, minus what earlier sessions spent."""
    costs, tokens = list[float | None](), list[int | None]()
    for folder in folders:
        if (folder / files.MANIFEST).exists():
            with load_run(folder) as view:
                costs.append(view.spent_usd(models.price))
                tokens.append(view.spent_tokens())
    spent_tokens = None if None in tokens else sum(filter(None, tokens))
    return Budget.of(config).with_spending(sum_or_none(costs), spent_tokens)
