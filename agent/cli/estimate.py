"""Prints the forecast for `agent annotate --dry-run`."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.cli.summary import format_cost
from agent.cli.text import Console, make_rows_table, one_line, print_json, print_text
from agent.evaluation.forecast import CHARACTERS_PER_TOKEN, MIN_ANNOTATIONS, Forecast
from agent.text import plural

_MINUTE, _HOUR = 60, 3600


def report_estimate(forecast: Forecast | None, out: Path, *, as_json: bool, **more: Any) -> None:
    """Print a forecast for the run in `out` as a table, or as JSON that also contains `more`."""
    if as_json and forecast is not None:
        roles = {
            name: {key: None if math.isnan(value) else value for key, value in cost._asdict().items()}
            for name, cost in forecast.roles.items()
        }
        print_json({**more, **asdict(forecast), "roles": roles})
    elif as_json:
        print_json({**more, "annotations": 0})
    elif forecast is None:
        print_text(Console(), f"Nothing to annotate: {out} is complete.")
    else:
        _print(forecast, out)


def _print(forecast: Forecast, out: Path) -> None:
    roles = " · ".join(f"{name} {_format_number(role.input_tokens)}" for name, role in forecast.roles.items())
    rows = {
        "to do": f"{plural(forecast.pairs, 'pair')}, {plural(forecast.annotations, 'annotation')}",
        "how": f"variant {forecast.variant}, model {forecast.model}",
        "calls": _format_number(forecast.calls),
        "tokens in": f"{_format_number(forecast.input_tokens)}: {roles}",
        "tokens out": _format_number(forecast.output_tokens),
        "cost": _describe_cost(forecast),
        "time": _describe_time(forecast),
    }
    if forecast.in_cache:
        rows["cached"] = (
            f"{forecast.in_cache:.0%} of annotations have a cached reply to their first call; this call costs nothing, "
            "but the estimate includes its cost"
        )
    rows["based on"] = _describe_basis(forecast, out)
    console = Console(piped_width=120)
    console.print(make_rows_table({name: one_line(value, 1000) for name, value in rows.items()}))
    print_text(console, "\nNo model was called, and no run was written.")


def _format_number(value: float) -> str:
    digits = 0 if value < 1 else max(0, int(math.log10(value)) - 2)
    return f"{round(value, -digits):,.0f}"


def _describe_cost(forecast: Forecast) -> str:
    if forecast.cost_usd is None:
        return "unknown: pass a file with the model's prices (-c prices=FILE)"
    return format_cost(forecast.cost_usd)


def _describe_time(forecast: Forecast) -> str:
    seconds = forecast.seconds
    if seconds is None:
        return f"up to one day per batch; each pair needs {plural(len(forecast.roles), 'batch', 'consecutive batches')}"
    unit, name = (_HOUR, "h") if seconds >= 2 * _HOUR else (_MINUTE, "min") if seconds >= 120 else (1, "s")
    return f"{seconds / unit:.3g} {name}, if the server answers {plural(forecast.parallel, 'call')} at a time"


def _describe_basis(forecast: Forecast, out: Path) -> str:
    if forecast.sampled:
        return f"{plural(forecast.sampled, 'finished annotation')} in {out}"
    assumed = [f"{CHARACTERS_PER_TOKEN} characters per token"] if forecast.input_tokens else []
    if "screen" in forecast.roles:
        assumed.append("the screener decides two thirds of the pairs, as in the CoSQA+ paper")
    assumed.append("replies have a typical length, without reasoning")
    advice = f"For a better estimate, annotate at least {MIN_ANNOTATIONS} pairs first (--limit 50)."
    return f"assumptions: {'; '.join(assumed)}. {advice}"
