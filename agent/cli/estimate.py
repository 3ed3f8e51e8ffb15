"""`agent annotate --dry-run`: what the run would take, without asking or writing anything."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from agent.cli.summary import money
from agent.cli.text import Console, one_line, print_json, say
from agent.config import Config
from agent.datasets import group_by_query
from agent.errors import UsageError
from agent.evaluation.costs import CACHED_FROM, FEWEST, Earlier, Plan, earlier
from agent.evaluation.forecast import Expected, Forecast, forecast
from agent.graph import Variant, known_roles
from agent.job import Turn
from agent.llm.limits import START
from agent.llm.models import Models
from agent.prompts import Prompts
from agent.store import files
from agent.store.cache import SqliteReplyCache
from agent.store.run_view import RunView, load_run
from agent.types import Pair
from agent.wording import counted

_PIPED_WIDTH = 120
_MINUTE, _HOUR = 60, 3600


def run(
    pairs: Sequence[Pair],
    variant: Variant,
    models: Models,
    config: Config,
    *,
    prompts: Path | None,
    out: Path,
    like: Path | None,
    cache: Path,
    retry_errors: bool,
    as_json: bool,
) -> None:
    """Print what remains to be done of a run in `out`, which may be begun or not, and what that will take.

    Raises:
        UsageError: the folder, or the run that it is to be `like`, is of another variant, or the latter is too small.
    """
    with ExitStack() as stack:
        begun = stack.enter_context(load_run(out)) if (out / files.MANIFEST).is_file() else None
        if begun is not None:
            _check(begun, variant, "choose another folder (-o)")
            if begun.manifest["identity"].get("model") != models.identity():
                cause = f"is a run of another model, or of other parameters, than {models.label()}"
                raise UsageError(f"{out}: {cause}; choose another folder (-o), and go by this one with --like {out}")

        def remains(turn: Turn) -> bool:
            return begun is None or not begun.index.finished(turn.key, retry_errors=retry_errors)

        rounds = range(config.runner.rounds)
        turns = [turn for pair in group_by_query(pairs) for n in rounds if remains(turn := Turn(pair, n))]
        if not turns:
            _print_nothing(out, as_json)
            return
        replies = stack.enter_context(SqliteReplyCache(cache, read_only=True)) if cache.is_file() else None
        plan = Plan(turns, variant, models, Prompts(prompts, known_roles()), config, replies)
        before, source = _before(begun, like, variant)
        found = forecast(plan, before)
    if as_json:
        print_json(_as_json(found, source))
    else:
        _print(plan, found, source)


def _before(begun: RunView | None, like: Path | None, variant: Variant) -> tuple[Earlier | None, Path | None]:
    """Return the annotations that a forecast goes by, and their folder: those of `like`, else what is done already."""
    if like is not None:
        with load_run(like) as view:
            _check(view, variant, "give a run of that one, or leave --like out")
            found = earlier(view)
            if found is None:
                raise UsageError(f"{like}: to go by a run takes {FEWEST} annotations of it, and its {files.EVIDENCE}")
            return found, like
    found = None if begun is None else earlier(begun)
    return found, None if found is None or begun is None else begun.path


def _check(view: RunView, variant: Variant, remedy: str) -> None:
    made = view.manifest["identity"].get("variant")
    if not isinstance(made, dict) or (made.get("start"), made.get("nodes")) != (variant.start, variant.nodes):
        name = made.get("name") if isinstance(made, dict) else None
        raise UsageError(f"{view.path}: is a run of the variant {name}, not {variant.name}; {remedy}")


def _print_nothing(out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"annotations": 0})
    else:
        say(Console(), f"Nothing is left to annotate: all of it is in {out}.")


def _as_json(found: Forecast, source: Path | None) -> dict[str, Any]:
    """Return a forecast for programs: numbers with their 90% intervals, and what they rest on."""
    document = asdict(found)
    for name, value in document.items():
        if isinstance(value, Expected):
            document[name] = value._asdict()
    document["roles"] = {name: role._asdict() for name, role in found.roles.items()}
    return {**document, "like": None if source is None else str(source)}


def _print(plan: Plan, found: Forecast, source: Path | None) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    pairs = counted(len({turn.pair.id for turn in plan.turns}), "pair")
    roles = " · ".join(f"{name} {_short(role.input_tokens)}" for name, role in found.roles.items())
    rows = {
        "to do": f"{pairs}, {counted(found.annotations, 'annotation')}",
        "how": f"variant {plan.variant.name}, model {plan.models.label()}",
        "calls": _range(found.calls),
        "tokens in": f"{_range(found.input_tokens)}: {roles}",
        "tokens out": _range(found.output_tokens),
        "cost": _cost(found),
        "time": f"{_time(found.seconds)}, {_at_once(plan)}",
        **_caching(found),
        "tokens": _tokens(found),
        "outcomes": _outcomes(plan, found, source),
    }
    for name, value in rows.items():
        table.add_row(name, Text(one_line(value, 1000)))
    console = Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)
    console.print(table)
    say(console, "\nNothing was asked, and nothing written. In parentheses: 90% intervals.")


def _short(value: float) -> str:
    """Return a number with three digits that mean something."""
    digits = 0 if value < 1 else max(0, int(math.log10(value)) - 2)
    return f"{round(value, -digits):,.0f}"


def _range(expected: Expected) -> str:
    return f"{_short(expected.value)} ({_short(expected.low)} to {_short(expected.high)})"


def _cost(found: Forecast) -> str:
    if found.cost_usd is None:
        return "unknown: give the model's prices in a file (--prices)"
    return f"{money(found.cost_usd.value)} ({money(found.cost_usd.low)} to {money(found.cost_usd.high)})"


def _time(seconds: Expected) -> str:
    unit, name = (_HOUR, "h") if seconds.value >= 2 * _HOUR else (_MINUTE, "min") if seconds.value >= 120 else (1, "s")
    value, low, high = (f"{number / unit:.3g}" for number in seconds)
    return f"{value} {name} ({low} to {high})"


def _at_once(plan: Plan) -> str:
    given = plan.config.runner.concurrency
    return f"{START} at once; sooner where the server takes more" if given == "auto" else f"{given} at once"


def _caching(found: Forecast) -> dict[str, str]:
    """Return what a server and the reply cache may save, where a model is paid for."""
    rows: dict[str, str] = {}
    if found.characters_per_token is None:
        return rows
    saves = "" if found.saved_usd is None else f"saves up to {money(found.saved_usd)}: "
    share = f"{found.equal_share:.0%} of the tokens in are in a beginning equal to that of the prompt before"
    none = f"no prompts begin with the same {CACHED_FROM:,} tokens or more"
    rows["caching"] = f"{saves}{share}" if found.equal_share else none
    if found.in_cache:
        rows["cached"] = (
            f"{found.in_cache:.0%} of the first questions are answered by the reply cache, and cost nothing; they are "
            "counted all the same"
        )
    return rows


def _tokens(found: Forecast) -> str:
    if found.characters_per_token is None:
        return "none: this is no language model"
    each = f"{found.characters_per_token:.2f} characters each"
    if found.tokens_from == "assumption":
        return f"assumed: {each}, give or take a fifth, as no reply of the model is known"
    return f"{each}, as the model reported of replies in the {found.tokens_from.replace('earlier ', '')}"


def _outcomes(plan: Plan, found: Forecast, source: Path | None) -> str:
    if source is not None:
        share = "" if found.went_on is None else f", {found.went_on:.0%} of which went on after {plan.first.name}"
        return f"as in {source}: {counted(found.sampled, 'annotation')}{share}"
    screens = "screen" in plan.variant.nodes
    screened = "the screener settles two thirds as in the paper, or from one third to all; " if screens else ""
    return (
        f"assumed: {screened}replies are as long as usual, without reasoning. To go by what is so, annotate a few "
        "(--limit 50) and ask again, or give --like RUN"
    )
