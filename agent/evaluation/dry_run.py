"""What remains to be done of a run that may be begun or not, and what that will take. Asks and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from agent.batches import check_possible
from agent.config import Config
from agent.datasets import group_by_query
from agent.errors import UsageError
from agent.evaluation.costs import FEWEST, Earlier, Plan, earlier, requested
from agent.evaluation.forecast import Forecast, forecast
from agent.graph import Variant, known_roles
from agent.job import Turn
from agent.llm.models import Models
from agent.prompts import Prompts
from agent.store import files
from agent.store.cache import SqliteReplyCache
from agent.store.run_view import RunView, load_run
from agent.types import Pair


@dataclass(frozen=True)
class RunForecast:
    """What is to be done, what it will take, and the run that the forecast goes by. `notes` are warnings in words."""

    plan: Plan
    forecast: Forecast
    like: Path | None
    notes: tuple[str, ...]


def forecast_run(
    pairs: Sequence[Pair],
    variant: Variant,
    models: Models,
    config: Config,
    *,
    out: Path,
    cache: Path,
    prompts: Path | None = None,
    like: Path | None = None,
    retry_errors: bool = False,
) -> RunForecast | None:
    """Forecast what remains of the run in `out`, by the run `like` or what is done already; None if nothing remains.

    Raises:
        UsageError: one of the runs is of another variant, `like` is too small, or `out` is of another model; or the
            models have no batches and are to be asked by them.
    """
    if config.runner.batch:
        check_possible(config.runner, models, out, cache)
    with ExitStack() as stack:
        begun = stack.enter_context(load_run(out)) if (out / files.MANIFEST).is_file() else None
        if begun is not None:
            _check_variant(begun, variant, "choose another folder (-o)")
            if begun.manifest["identity"].get("model") != models.identity():
                cause = f"is a run of another model, or of other parameters, than {models.label()}"
                raise UsageError(f"{out}: {cause}; choose another folder (-o), and go by this one with --like {out}")
        every = (Turn(pair, number) for pair in group_by_query(pairs) for number in range(config.runner.rounds))
        turns = [
            turn for turn in every if begun is None or not begun.index.finished(turn.key, retry_errors=retry_errors)
        ]
        if not turns:
            return None
        replies = stack.enter_context(SqliteReplyCache(cache, read_only=True)) if cache.is_file() else None
        plan = Plan(turns, variant, models, Prompts(prompts, known_roles()), config, replies)
        if like is not None:
            before: Earlier | None = _read_like(like, variant)
        else:
            before = None if begun is None else earlier(begun)
        source = like or (None if before is None else out)
        notes = () if before is None or like is None else tuple(_other_models(plan, before, like))
        return RunForecast(plan, forecast(plan, before), source, notes)


def _read_like(like: Path, variant: Variant) -> Earlier:
    with load_run(like) as view:
        _check_variant(view, variant, "give a run of that one, or leave --like out")
        before = earlier(view)
    if before is None:
        raise UsageError(f"{like}: to go by a run takes {FEWEST} annotations of it, and its {files.EVIDENCE}")
    return before


def _check_variant(view: RunView, variant: Variant, remedy: str) -> None:
    made = view.manifest["identity"].get("variant")
    if not isinstance(made, dict) or (made.get("start"), made.get("nodes")) != (variant.start, variant.nodes):
        name = made.get("name") if isinstance(made, dict) else None
        raise UsageError(f"{view.path}: is a run of the variant {name}, not {variant.name}; {remedy}")


def _other_models(plan: Plan, before: Earlier, like: Path) -> Iterator[str]:
    """Yield a warning where the earlier run asked other models in some of the roles."""
    identity = plan.models.identity()
    differing = [role for role in plan.roles if requested(before.model, role) != requested(identity, role)]
    if differing:
        names = dict.fromkeys(f"{requested(before.model, role)}" for role in differing)
        yield (
            f"{like} asked {', '.join(names)}, not {plan.models.label()}. The intervals do not include that replies "
            "may be longer or shorter, and other pairs unclear"
        )
