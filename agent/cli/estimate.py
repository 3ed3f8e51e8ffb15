"""Prints the forecast for `agent annotate --dry-run`."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.cli.summary import format_cost
from agent.cli.text import Console, make_rows_table, one_line, print_json, print_text
from agent.evaluation.costs import MIN_CACHED_TOKENS, Plan
from agent.evaluation.forecast import Forecast, PredictionInterval, RunForecast
from agent.text import plural

_MINUTE, _HOUR = 60, 3600


def report_estimate(estimate: RunForecast | None, out: Path, console: Console, *, as_json: bool, **more: Any) -> None:
    """Print a forecast for the run in `out` as a table, or as JSON that also contains `more`.

    The JSON contains 90% prediction intervals and the run on which the forecast is based. The forecast's notes are
    printed on `console`.
    """
    if as_json:
        print_json({**more, **_as_json(estimate)})
    elif estimate is None:
        print_text(Console(), f"Nothing to annotate: {out} is complete.")
    else:
        _print(estimate)
    for note in () if estimate is None else estimate.notes:
        print_text(console, f"note: {note}")


def _as_json(estimate: RunForecast | None) -> dict[str, Any]:
    if estimate is None:
        return {"annotations": 0}
    document = asdict(estimate.forecast)
    for name, value in document.items():
        if isinstance(value, PredictionInterval):
            document[name] = value._asdict()
    document["roles"] = {name: role._asdict() for name, role in estimate.forecast.roles.items()}
    return {**document, "like": None if estimate.like is None else str(estimate.like)}


def _print(estimate: RunForecast) -> None:
    plan, forecast = estimate.plan, estimate.forecast
    pairs = plural(len({turn.pair.id for turn in plan.turns}), "pair")
    roles = " · ".join(f"{name} {_format_number(role.input_tokens)}" for name, role in forecast.roles.items())
    rows = {
        "to do": f"{pairs}, {plural(forecast.annotations, 'annotation')}",
        "how": f"variant {plan.variant.name}, model {plan.models.join_names()}",
        "calls": _format_range(forecast.calls),
        "tokens in": f"{_format_range(forecast.input_tokens)}: {roles}",
        "tokens out": _format_range(forecast.output_tokens),
        "cost": _describe_cost(forecast),
        "time": _describe_time(plan, forecast),
        **_describe_caching(forecast),
        "tokens": _describe_tokens(forecast),
        "outcomes": _describe_outcomes(estimate),
    }
    console = Console(piped_width=120)
    console.print(make_rows_table({name: one_line(value, 1000) for name, value in rows.items()}))
    print_text(console, "\nNo model was called, and no run was written. 90% prediction intervals are in parentheses.")


def _format_number(value: float) -> str:
    digits = 0 if value < 1 else max(0, int(math.log10(value)) - 2)
    return f"{round(value, -digits):,.0f}"


def _format_range(expected: PredictionInterval) -> str:
    return f"{_format_number(expected.value)} ({_format_number(expected.low)} to {_format_number(expected.high)})"


def _describe_cost(forecast: Forecast) -> str:
    if forecast.cost_usd is None:
        return "unknown: pass a file with the model's prices (--prices)"
    value, low, high = map(format_cost, forecast.cost_usd)
    return f"{value} ({low} to {high})"


def _describe_time(plan: Plan, forecast: Forecast) -> str:
    seconds = forecast.seconds
    if seconds is None:
        return f"up to one day per batch; each pair needs {plural(len(forecast.roles), 'batch', 'consecutive batches')}"
    unit, name = (_HOUR, "h") if seconds.value >= 2 * _HOUR else (_MINUTE, "min") if seconds.value >= 120 else (1, "s")
    value, low, high = (f"{number / unit:.3g}" for number in seconds)
    fewest, most = plan.concurrency_range
    parallel = f"{most} in parallel" if fewest == most else f"{fewest} to {most} in parallel, depending on the server"
    return f"{value} {name} ({low} to {high}), {parallel}"


def _describe_caching(forecast: Forecast) -> dict[str, str]:
    """Describe the savings from the server's prompt cache and from the reply cache."""
    rows: dict[str, str] = {}
    if forecast.characters_per_token is None:
        return rows
    saves = "" if forecast.saved_usd is None else f"saves up to {format_cost(forecast.saved_usd)}: "
    share = f"{forecast.equal_share:.0%} of input tokens repeat the beginning of an earlier prompt"
    if forecast.equal_share:
        rows["caching"] = f"{saves}{share}"
    else:
        rows["caching"] = f"no two prompts start with the same {MIN_CACHED_TOKENS:,} tokens"
    if forecast.in_cache:
        rows["cached"] = (
            f"{forecast.in_cache:.0%} of annotations have a cached reply to their first call; this call costs nothing, "
            "but the estimate includes its cost"
        )
    return rows


def _describe_tokens(forecast: Forecast) -> str:
    if forecast.characters_per_token is None:
        return "none, because the model is not a language model"
    length = f"{forecast.characters_per_token:.2f} characters each"
    if forecast.tokens_from == "assumption":
        return f"assumed: {length}, plus or minus 20%, because there is no earlier reply from this model"
    return f"{length}, as reported by the model for replies in the {forecast.tokens_from.replace('earlier ', '')}"


def _describe_outcomes(estimate: RunForecast) -> str:
    plan, forecast = estimate.plan, estimate.forecast
    if estimate.like is not None:
        first = plan.first_role.name
        share = "" if forecast.went_on is None else f", {forecast.went_on:.0%} of which made more calls after {first}"
        return f"as in {estimate.like}: {plural(forecast.sampled, 'annotation')}{share}"
    screening = "the screener decides two thirds of the pairs, as in the CoSQA+ paper (interval: one third to all); "
    return (
        f"assumed: {screening if 'screen' in plan.variant.nodes else ''}"
        "replies have a typical length, without reasoning. "
        "For a better estimate, annotate a few pairs first (--limit 50), or pass --like RUN"
    )
